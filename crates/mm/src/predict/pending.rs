//! Windows that streams have left behind, until a thread looks how much of them was used.
//!
//! A look may fault, where the page was dropped meanwhile. So a thread that serves faults leaves it to another one.

use faultless_base::Span;
use faultless_base::sync::Lock;
use faultless_base::sync::atomic::{AtomicUsize, Ordering};

/// Windows at a time; what comes beyond is not looked at.
const MOST: usize = 32;

struct Queue {
    spans: [Span; MOST],
    first: usize,
}

/// The windows of one region that wait.
pub struct Pending {
    queue: Lock<Queue>,
    /// How many wait; written with the lock.
    count: AtomicUsize,
}

impl Pending {
    /// Nothing waits.
    pub fn new() -> Self {
        let queue = Lock::new(Queue { spans: [Span { start: 0, end: 0 }; MOST], first: 0 });
        Self { queue, count: AtomicUsize::new(0) }
    }

    /// One more waits, if there is room.
    pub fn put(&self, span: Span) {
        let mut queue = self.queue.lock();
        let count = self.waiting();
        if count < MOST {
            let at = (queue.first + count) % MOST;
            queue.spans[at] = span;
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    /// The window that has waited for longest.
    pub fn take(&self) -> Option<Span> {
        let mut queue = self.queue.lock();
        let count = self.waiting().checked_sub(1)?;
        let span = queue.spans[queue.first];
        queue.first = (queue.first + 1) % MOST;
        self.count.store(count, Ordering::Relaxed);
        Some(span)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_in_their_order_and_no_more_than_there_is_room_for() {
        let pending = Pending::new();
        let span = |i: usize| Span::new(i << 20, 1 << 12);
        for round in 0..3 {
            (0..MOST + 5).for_each(|i| pending.put(span(round * 100 + i)));
            assert_eq!(pending.waiting(), MOST);
            // A part of them, so that the next round begins elsewhere.
            (0..MOST).for_each(|i| assert_eq!(pending.take(), Some(span(round * 100 + i))));
            assert_eq!((pending.take(), pending.waiting()), (None, 0));
            pending.put(span(7));
            assert_eq!(pending.take(), Some(span(7)));
        }
    }
}
