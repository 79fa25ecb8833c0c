//! Whether huge pages are cold.
//!
//! A hypervisor with free page reporting takes idle memory back in whole huge pages: the kernel reports only free
//! blocks of this size. To touch such a block again costs milliseconds, because the host has to find memory for it,
//! while small pages still come from blocks that were never taken. Measured: 1.5 GiB after 8 s of idleness took 0.8 s
//! in small pages and 4 s in huge ones. So while huge pages are seen to be cold, extents of a program that does not
//! give memory back get small ones: the cost would not be earned again.
//!
//! Cold and warm memory come mixed, and small pages may be cold, too. So the means of both sizes are compared.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Small pages for a slot take this long where they are warm, as far as is known before any came. The first touch of a
/// huge page takes 0.1 to 0.2 ms where it is warm, 2 to 6 ms where it is cold.
pub(super) const SMALL_US: u32 = 800;
/// No touch counts for more: a single one that took long says little.
const MOST_US: u32 = 3_000;
/// One part of a mean in this many is the last touch.
const SHARE: u32 = 4;
/// Huge pages are cold for this long; then they are tried again.
const LASTS_MS: u32 = 2_000;
/// Quick touches tell the state for this long: warm memory is handed out first, and cold memory may come right
/// behind.
const HOLDS_MS: u32 = 4;
/// Touches that may be needed to know.
pub(crate) const PROBES: usize = 3;
/// It is worth looking from this many slots on (8 MiB).
pub(crate) const LARGE: usize = 4;

/// A mean in which older touches count less and less, in microseconds a slot. Threads may lose each other's touches.
#[derive(Debug, Default)]
struct Mean {
    us: AtomicU32,
    /// When a touch was last noted, in ms; odd, 0 for never.
    noted: AtomicU32,
}

impl Mean {
    /// A touch took `ns`. Those of long ago say nothing, and the mean begins at `first`.
    fn note(&self, ns: u64, now_ms: u32, first: u32) {
        let before = if self.is_within(now_ms, LASTS_MS) { self.us.load(Relaxed) } else { first };
        self.us.store(next(before, ns), Relaxed);
        self.noted.store(now_ms | 1, Relaxed);
    }

    fn is_within(&self, now_ms: u32, ms: u32) -> bool {
        let noted = self.noted.load(Relaxed);
        noted != 0 && now_ms.wrapping_sub(noted).wrapping_add(1) <= ms
    }

    fn get(&self, now_ms: u32) -> Option<u32> {
        self.is_within(now_ms, LASTS_MS).then(|| self.us.load(Relaxed))
    }
}

/// The mean after one more touch.
fn next(mean: u32, ns: u64) -> u32 {
    let us = u32::try_from(ns / 1000).map_or(MOST_US, |us| us.min(MOST_US));
    mean - mean / SHARE + us / SHARE
}

/// Whether huge pages cost more than small ones, by their means, and more than warm ones ever do. Within a quarter they
/// are better: the program runs faster on them.
fn is_dearer(huge_us: u32, small_us: u32) -> bool {
    huge_us > SMALL_US && huge_us * 4 > small_us * 5
}

/// What the last touches cost, and whether memory comes back.
#[derive(Debug, Default)]
pub(crate) struct HugeCost {
    huge: Mean,
    small: Mean,
    /// Slots handed out without memory, and slots that came back.
    grown: AtomicUsize,
    returned: AtomicUsize,
}

impl HugeCost {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A huge page was touched for the first time, in `ns` of processor time.
    pub(crate) fn note_huge(&self, ns: u64, now_ms: u32) {
        self.huge.note(ns, now_ms, 0);
    }

    /// The same for a slot's small pages, one after the other.
    pub(crate) fn note_small(&self, ns: u64, now_ms: u32) {
        self.small.note(ns, now_ms, SMALL_US);
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
        let huge = self.huge.get(now_ms)?;
        let small = self.small.get(now_ms).unwrap_or(SMALL_US);
        if is_dearer(huge, small) {
            return Some(true);
        }
        (self.huge.is_within(now_ms, HOLDS_MS) && !is_dearer(2 * huge, small)).then_some(false)
    }

    /// Whether an extent without memory is better off with small pages.
    pub(crate) fn is_too_cold(&self, now_ms: impl FnOnce() -> u32) -> bool {
        self.huge.us.load(Relaxed) > SMALL_US
            && self.is_cold(now_ms()) == Some(true)
            && self.returned.load(Relaxed) * 2 < self.grown.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLD_NS: u64 = 4_000_000;
    const WARM_NS: u64 = 150_000;

    fn cold(w: &HugeCost, now: u32) -> bool {
        w.is_too_cold(|| now)
    }

    fn grown() -> HugeCost {
        let w = HugeCost::new();
        w.note_growth(100);
        w
    }

    #[test]
    fn two_slow_touches_are_cold_for_a_while_and_quick_ones_end_it() {
        let w = grown();
        w.note_huge(COLD_NS, 5);
        assert!(!cold(&w, 5));
        w.note_huge(COLD_NS, 5);
        assert!(cold(&w, 6));
        assert!(!cold(&w, 6 + 2 * LASTS_MS));
        (0..3).for_each(|_| w.note_huge(WARM_NS, 7));
        assert!(!cold(&w, 7));
        w.note_huge(COLD_NS, 7 + 2 * LASTS_MS);
        assert!(!cold(&w, 7 + 2 * LASTS_MS), "long ago says nothing");
    }

    #[test]
    fn only_recent_touches_tell() {
        let w = HugeCost::new();
        assert_eq!(w.is_cold(9), None);
        w.note_huge(WARM_NS, 9);
        assert_eq!((w.is_cold(9), w.is_cold(9 + 2 * HOLDS_MS)), (Some(false), None));
        w.note_huge(COLD_NS, 50);
        assert_eq!(w.is_cold(50), None);
        w.note_huge(COLD_NS, 60);
        assert_eq!(
            (w.is_cold(60), w.is_cold(60 + LASTS_MS), w.is_cold(62 + LASTS_MS)),
            (Some(true), Some(true), None)
        );
    }

    #[test]
    fn memory_that_comes_back_is_worth_the_cost() {
        let w = grown();
        (0..2).for_each(|_| w.note_huge(COLD_NS, 1));
        assert!(cold(&w, 1));
        w.note_return(50);
        assert!(!cold(&w, 1));
    }

    #[test]
    fn small_pages_that_are_as_cold_are_not_better() {
        let w = grown();
        (0..4).for_each(|_| w.note_huge(COLD_NS, 1));
        assert!(cold(&w, 1));
        (0..20).for_each(|_| w.note_small(COLD_NS, 1));
        assert!(!cold(&w, 1));
        (0..20).for_each(|_| w.note_small(WARM_NS * 5, 1));
        assert!(cold(&w, 1));
    }

    proptest! {
        // Warm touches take 0.1 to 0.2 ms. From a third of one on, a single long one makes the mean dearer.
        #[test]
        fn warm_memory_is_never_cold_for_all_that_one_touch_takes_long(
            warm in prop::collection::vec(1_000u64..330_000, 1..60), at in 0usize..60, long: u64,
        ) {
            let w = grown();
            for (i, ns) in warm.iter().enumerate() {
                w.note_huge(if i == at { long } else { *ns }, 1);
                prop_assert!(!cold(&w, 1));
            }
        }

        #[test]
        fn memory_of_the_host_is_cold_from_the_third_touch_on(all in prop::collection::vec(2_000_000u64.., 3..60)) {
            let w = grown();
            for (i, ns) in all.iter().enumerate() {
                w.note_huge(*ns, 1);
                prop_assert!(i < 2 || cold(&w, 1));
            }
        }

        #[test]
        fn what_is_chosen_costs_no_more_than_the_other_in_the_mean(
            huge in prop::collection::vec(1_000u64..3_000_000, 40..60),
            small in prop::collection::vec(1_000u64..3_000_000, 40..60),
        ) {
            let w = grown();
            huge.iter().for_each(|ns| w.note_huge(*ns, 1));
            small.iter().for_each(|ns| w.note_small(*ns, 1));
            let mean = |all: &[u64], first: f64| all.iter().fold(first, |mean, ns| {
                mean + (*ns as f64 / 1000.0 - mean) / f64::from(SHARE)
            });
            let (huge, small) = (mean(&huge, 0.0), mean(&small, f64::from(SMALL_US)));
            // Rounding takes a few microseconds off.
            if cold(&w, 1) {
                prop_assert!(huge > 1.2 * small - 20.0);
            } else {
                prop_assert!(huge < 1.3 * small + 20.0 || huge < f64::from(SMALL_US) + 20.0);
            }
        }
    }
}
