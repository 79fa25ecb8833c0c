//! Ranges of the program's memory that threads of ours use, and the handshake with threads that take it back or
//! replace it.
//!
//! Our thread announces the range, then checks that the memory is still the engine's business, then uses it. Other
//! threads wait until an announced range is left, but not for long, or note their work for later. Our thread comes to
//! no harm meanwhile: it uses the program's memory by system calls alone, which fail where an access would fault.
//!
//! - A thread that takes slots back or taints them changes their state first. Then it checks the announced ranges
//!   ([`Busy::is_left`]).
//!
//! - A program that maps something else over a range, moves it or unmaps it announces that. It waits until our
//!   threads have left the range, and makes its call ([`Busy::replace`]). Otherwise our thread could check the
//!   program's memory by one call, and reach a file that was mapped there by the next: a look would give the file
//!   pages.
//!
//! A fence on both sides makes sure that one of the two sees the other.

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicUsize, Ordering, fence};

/// Threads of ours in ranges, and calls of the program, at a time. A thread that finds no place stays away; a call
/// that finds none does not announce itself.
const OURS: usize = 4;
const THEIRS: usize = 64;

/// Where threads of ours are, and what the program replaces.
pub struct Busy {
    ours: [Range; OURS],
    theirs: [Range; THEIRS],
}

/// Memory that the program is replacing, until this is dropped.
pub struct Replaced<'a>(Option<&'a Range>);

impl Busy {
    /// Nothing.
    #[expect(clippy::new_without_default, reason = "there is one")]
    pub fn new() -> Self {
        Self { ours: core::array::from_fn(|_| Range::new()), theirs: core::array::from_fn(|_| Range::new()) }
    }

    /// Calls `f`, which uses memory in `span`, if `is_ours` and the program does not replace it.
    pub fn enter<R>(&self, span: Span, is_ours: impl FnOnce() -> bool, f: impl FnOnce() -> R) -> Option<R> {
        let place = announce(&self.ours, span)?;
        let is_free = !self.theirs.iter().any(|range| range.is_in(span)) && is_ours();
        let result = is_free.then(f);
        place.clear();
        result
    }

    /// The program is about to replace what is mapped in `span`. It has to wait until that [is left](Self::is_left).
    pub fn replace(&self, span: Span) -> Replaced<'_> {
        Replaced(announce(&self.theirs, span))
    }

    /// Whether no thread of ours is in `span`. The caller has changed its slots or [replaces](Self::replace) it, so
    /// that it is not entered any more.
    pub fn is_left(&self, span: Span) -> bool {
        // Pairs with the one in `announce`.
        fence(Ordering::SeqCst);
        !self.ours.iter().any(|range| range.is_in(span))
    }

    /// No other thread is there.
    pub fn forget(&self) {
        self.ours.iter().chain(&self.theirs).for_each(Range::clear);
    }
}

fn announce(places: &[Range], span: Span) -> Option<&Range> {
    let place = places.iter().find(|place| place.claim())?;
    place.set(span);
    fence(Ordering::SeqCst);
    Some(place)
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        if let Some(range) = self.0 {
            range.clear();
        }
    }
}

/// The first address, 0 for nothing, and the end.
///
/// A reader may see a start and an end that do not belong together. Then the thread has left the older of the two
/// ranges; or it has [claimed](Self::claim) the place and announced nothing yet.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// In place of an address.
const CLAIMED: usize = 1;

impl Range {
    fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn claim(&self) -> bool {
        self.start.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn set(&self, span: Span) {
        self.end.store(span.end, Ordering::Release);
        self.start.store(span.start, Ordering::Release);
    }

    fn clear(&self) {
        self.start.store(0, Ordering::Release);
    }

    fn is_in(&self, span: Span) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start > CLAIMED && !span.clip(Span { start, end: self.end.load(Ordering::Acquire) }).is_empty()
    }
}
