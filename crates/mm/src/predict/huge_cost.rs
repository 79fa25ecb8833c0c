//! Whether huge pages are cold.
//!
//! A hypervisor with free page reporting takes idle memory back in whole huge pages: the kernel reports only free
//! blocks of this size. To touch such a block again costs milliseconds, because the host has to find memory for it,
//! while small pages still come from blocks that were never taken. Measured: 1.5 GiB after 8 s of idleness took 0.8 s
//! in small pages and 4 s in huge ones. So while huge pages are seen to be cold, extents of a program that does not
//! give memory back get small ones: the cost would not be earned again.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// The first touch of a huge page takes 0.1 to 0.2 ms where it is warm, 2 to 4 ms where it is cold.
const COLD_NS: u64 = 1_000_000;
/// Small pages for a slot take 0.8 ms in all. So they are better when this many of the last touches were slow …
const COLD_TOUCHES: u32 = 2;
const OF_LAST: u32 = 4;
/// … for this long; then huge pages are tried again.
const LASTS_MS: u32 = 2_000;
/// A quick touch tells the state for this long: warm memory is handed out first, and cold memory may come right
/// behind.
const HOLDS_MS: u32 = 4;
/// Touches that may be needed to know.
pub(crate) const PROBES: usize = 3;
/// It is worth looking from this many slots on (8 MiB).
pub(crate) const LARGE: usize = 4;

/// What the last touches cost, and whether memory comes back.
#[derive(Debug, Default)]
pub(crate) struct HugeCost {
    /// A bit for each of the last touches, the newest lowest: whether it was slow.
    slow: AtomicU32,
    /// When huge pages were last seen to be cold, in ms; odd, 0 for never.
    since: AtomicU32,
    /// When a touch was last noted, in ms; odd, 0 for never.
    noted: AtomicU32,
    /// Slots handed out without memory, and slots that came back.
    grown: AtomicUsize,
    returned: AtomicUsize,
}

impl HugeCost {
    pub(crate) const fn new() -> Self {
        Self {
            slow: AtomicU32::new(0),
            since: AtomicU32::new(0),
            noted: AtomicU32::new(0),
            grown: AtomicUsize::new(0),
            returned: AtomicUsize::new(0),
        }
    }

    /// A huge page was touched for the first time, in `ns` of processor time.
    pub(crate) fn note_touch(&self, ns: u64, now_ms: u32) {
        self.noted.store(now_ms | 1, Relaxed);
        let slow = (self.slow.load(Relaxed) << 1 | u32::from(ns >= COLD_NS)) & ((1 << OF_LAST) - 1);
        self.slow.store(slow, Relaxed);
        if slow.count_ones() >= COLD_TOUCHES {
            self.since.store(now_ms | 1, Relaxed);
        } else if slow & 1 == 0 {
            self.since.store(0, Relaxed);
        }
    }

    /// Slots were handed out without memory.
    pub(crate) fn note_growth(&self, n: usize) {
        self.grown.fetch_add(n, Relaxed);
    }

    /// Slots came back.
    pub(crate) fn note_return(&self, n: usize) {
        self.returned.fetch_add(n, Relaxed);
    }

    /// Whether huge pages are cold; `None` when the last touches do not tell.
    pub(crate) fn is_cold(&self, now_ms: u32) -> Option<bool> {
        let within = |then: u32, ms: u32| then != 0 && now_ms.wrapping_sub(then).wrapping_add(1) <= ms;
        if within(self.since.load(Relaxed), LASTS_MS) {
            return Some(true);
        }
        (within(self.noted.load(Relaxed), HOLDS_MS) && self.slow.load(Relaxed) & 1 == 0).then_some(false)
    }

    /// Whether an extent without memory is better off with small pages.
    pub(crate) fn is_too_cold(&self, now_ms: impl FnOnce() -> u32) -> bool {
        self.since.load(Relaxed) != 0
            && self.is_cold(now_ms()) == Some(true)
            && self.returned.load(Relaxed) * 2 < self.grown.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(w: &HugeCost, now: u32) -> bool {
        w.is_too_cold(|| now)
    }

    #[test]
    fn two_slow_touches_of_four_are_cold_and_fast_ones_end_it() {
        let w = HugeCost::new();
        w.note_growth(100);
        w.note_touch(COLD_NS, 5);
        assert!(!cold(&w, 5));
        w.note_touch(COLD_NS / 10, 5);
        w.note_touch(COLD_NS, 5);
        assert!(cold(&w, 6));
        assert!(!cold(&w, 6 + 2 * LASTS_MS));
        w.note_touch(COLD_NS / 10, 7);
        assert!(cold(&w, 7));
        w.note_touch(COLD_NS / 10, 7);
        assert!(!cold(&w, 7));
    }

    #[test]
    fn only_recent_touches_tell() {
        let w = HugeCost::new();
        assert_eq!(w.is_cold(9), None);
        w.note_touch(COLD_NS / 10, 9);
        assert_eq!((w.is_cold(9), w.is_cold(9 + 2 * HOLDS_MS)), (Some(false), None));
        w.note_touch(COLD_NS, 50);
        assert_eq!(w.is_cold(50), None);
        w.note_touch(COLD_NS, 60);
        assert_eq!(
            (w.is_cold(60), w.is_cold(60 + LASTS_MS), w.is_cold(62 + LASTS_MS)),
            (Some(true), Some(true), None)
        );
    }

    #[test]
    fn memory_that_comes_back_is_worth_the_cost() {
        let w = HugeCost::new();
        (0..COLD_TOUCHES).for_each(|_| w.note_touch(COLD_NS, 1));
        w.note_growth(100);
        assert!(cold(&w, 1));
        w.note_return(50);
        assert!(!cold(&w, 1));
    }
}
