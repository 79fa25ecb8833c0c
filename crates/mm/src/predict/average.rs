//! The average of what came lately: each value counts for a sixteenth of it.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};

const LATELY: usize = 16;

/// Threads may note values at the same time. It begins with 0.
pub struct Average(AtomicUsize);

impl Average {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The next value.
    pub fn note(&self, value: usize) {
        let next = |sum: usize| Some(sum - sum / LATELY + value);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// The average now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed) / LATELY
    }
}
