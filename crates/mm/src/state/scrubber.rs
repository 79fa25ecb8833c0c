//! What the scrubber has in its hands. [`crate::background::scrub`] does the work.

use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::predict::pace::Pace;

/// The scrubber.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    /// How far ahead it works, and when it is woken.
    pub(crate) pace: Pace,
    /// Slots that it has taken out of the free lists for a moment. A thread that wants memory reads it after it found
    /// too little in the lists.
    away: AtomicUsize,
    /// Whether a request wants the memory that it has. Any thread sets it, the scrubber clears it before a block.
    recalled: AtomicBool,
    /// Whether it has zeroed something since it woke; its own.
    scrubbed: AtomicBool,
}

impl Scrubber {
    /// It begins a block: what was recalled before is back.
    pub(crate) fn begin(&self) {
        self.recalled.store(false, Ordering::Relaxed);
    }

    /// It has taken `n` slots out of the lists.
    pub(crate) fn take_away(&self, n: usize) {
        self.away.fetch_add(n, Ordering::SeqCst);
    }

    /// It has put them back, zeroed or not.
    pub(crate) fn bring_back(&self, n: usize) {
        self.away.fetch_sub(n, Ordering::SeqCst);
        self.scrubbed.store(true, Ordering::Relaxed);
    }

    /// Whether it has any slots.
    pub(crate) fn has_slots(&self) -> bool {
        self.away.load(Ordering::SeqCst) > 0
    }

    /// Calls back what it has.
    pub(crate) fn recall(&self) {
        self.recalled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_recalled(&self) -> bool {
        self.recalled.load(Ordering::Relaxed)
    }

    /// It falls asleep.
    pub(crate) fn sleep(&self, now_ms: u32) {
        self.pace.sleep(now_ms, self.scrubbed.swap(false, Ordering::Relaxed));
    }

    /// In a forked child: it is not here.
    pub(crate) fn forget(&self) {
        self.away.store(0, Ordering::Relaxed);
    }
}
