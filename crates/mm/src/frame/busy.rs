//! The slots of the program's that one of our threads is in, and the handshake with whoever takes them back.
//!
//! The thread announces the slots, then looks at their state, then uses them. Whoever takes slots back or taints them
//! changes their state, then looks at what is announced. A fence on both sides lets one of the two see the other. What
//! is announced is noted for later, or waited for, but not for long: the thread uses what the program has by system
//! calls alone, which fail where an access would fault.

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::frame::arena::Extent;
use crate::frame::slot::{Slots, State, flag};

/// What is announced: the first address, 0 for none, and the end.
///
/// Whoever reads two words that do not belong together has read one that was written when the thread had left what the
/// other one names.
pub struct Busy {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Busy {
    /// Nothing.
    #[expect(clippy::new_without_default, reason = "there is one")]
    pub fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    /// The one thread that may: enters the slots `e` at `span`, if they are still wholly lent and
    /// untainted, and calls `f`.
    pub fn enter<R>(&self, span: Span, slots: Slots, e: Extent, f: impl FnOnce(Span) -> R) -> Option<R> {
        self.end.store(span.end, Ordering::Release);
        self.start.store(span.start, Ordering::Release);
        // Pairs with the one in `is_left`.
        fence(Ordering::SeqCst);
        let lent = e.slots().all(|i| {
            matches!(slots.state(i), State::Mapped | State::Block) && !slots.has(i, flag::TAINTED | flag::FORKED)
        });
        let result = lent.then(|| f(span));
        self.leave();
        result
    }

    /// The thread is in no slot.
    pub fn leave(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Whether the thread is not in `span`, whose slots the caller has changed, so that they are not entered any more.
    pub fn is_left(&self, span: Span) -> bool {
        // Pairs with the one in `enter`.
        fence(Ordering::SeqCst);
        !self.is_in(span)
    }

    fn is_in(&self, span: Span) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && !span.clip(Span { start, end: self.end.load(Ordering::Acquire) }).is_empty()
    }
}
