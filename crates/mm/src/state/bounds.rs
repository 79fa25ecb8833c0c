//! The lowest and the highest place that was ever noted.

use core::ops::Range;

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bounds that only widen, by any thread. A thread widens them before it notes the place.
#[derive(Debug)]
pub(crate) struct Bounds {
    first: AtomicUsize,
    end: AtomicUsize,
}

impl Bounds {
    /// Around nothing.
    pub(crate) fn new() -> Self {
        Self { first: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) }
    }

    /// Widens them around `range`.
    pub(crate) fn widen(&self, range: Range<usize>) {
        self.first.fetch_min(range.start, Relaxed);
        self.end.fetch_max(range.end, Relaxed);
    }

    /// The part of `range` inside; perhaps an empty one.
    pub(crate) fn clip(&self, range: Range<usize>) -> Range<usize> {
        range.start.max(self.first.load(Relaxed))..range.end.min(self.end.load(Relaxed))
    }

    /// Whether a part of `range` may be inside.
    pub(crate) fn meet(&self, range: Range<usize>) -> bool {
        range.end > self.first.load(Relaxed) && range.start < self.end.load(Relaxed)
    }
}
