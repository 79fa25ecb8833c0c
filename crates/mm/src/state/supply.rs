//! Huge pages to be zeroed beforehand, and what became of them. `mapping/supply.rs` acts on it.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Windows after which a program is known to follow.
const TRUSTED: usize = 10;

/// The supply.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Slots that were asked for and not zeroed since. Any thread adds, the background thread takes.
    due: AtomicUsize,
    /// Windows in which the program followed; the background thread's own.
    followed: AtomicUsize,
}

impl Supply {
    /// `n` more are due, but no more than `most` in all.
    pub(crate) fn ask(&self, n: usize, most: usize) {
        let _ = self.due.fetch_update(Relaxed, Relaxed, |due| Some((due + n).min(most)));
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Relaxed) > 0
    }

    /// One of them is being made.
    pub(crate) fn take(&self) {
        let _ = self.due.fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1));
    }

    /// None is due any more.
    pub(crate) fn clear(&self) {
        self.due.store(0, Relaxed);
    }

    /// The program has come to a window that was brought ahead of it.
    pub(crate) fn note_followed(&self) {
        self.followed.fetch_add(1, Relaxed);
    }

    /// Whether it has so often that windows begin before it comes.
    pub(crate) fn is_trusted(&self) -> bool {
        self.followed.load(Relaxed) >= TRUSTED
    }
}
