//! Whether the memory that the program takes by itself is warm, by what the kernel counts of it.
//!
//! To see whether huge pages are cold, the engine touches one ([`huge_cost`](super::huge_cost)). The program may never
//! use that page. So the first look is such a touch. From there on the kernel's own account tells: little time in the
//! kernel for the memory and the faults of the program means that they were warm. Much time may have other causes; then
//! the engine touches another page to see.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use faultless_base::sys::Usage;
use faultless_base::{SLOT, SLOT_PAGES};

use super::huge_cost::SMALL_US;

/// What a fault that brings no memory may take.
const FAULT_US: u32 = 2;
/// Slots that are enough to judge by (32 MiB): the kernel may count its time in steps of 4 ms.
const ENOUGH: u32 = 16;
/// Without growth, what was seen holds for so long: idle memory may be gone after that.
const LASTS_MS: u32 = 2_000;

/// What the kernel counted when memory was last seen to be warm; counts and times wrap. Threads may lose each other's
/// looks.
#[derive(Debug, Default)]
pub(crate) struct OwnCost {
    /// Slots in memory.
    slots: AtomicU32,
    faults: AtomicU32,
    system_us: AtomicU32,
    /// In ms; odd, 0 where nothing is known.
    seen: AtomicU32,
}

impl OwnCost {
    /// Memory is warm now, with `resident` bytes in memory.
    pub(crate) fn begin(&self, usage: Usage, resident: usize, now_ms: u32) {
        self.slots.store((resident / SLOT) as u32, Relaxed);
        self.faults.store(usage.minor_faults as u32, Relaxed);
        self.system_us.store(usage.system_us as u32, Relaxed);
        self.seen.store(now_ms | 1, Relaxed);
    }

    /// Memory is cold: nothing is known of what comes after that.
    pub(crate) fn end(&self) {
        self.seen.store(0, Relaxed);
    }

    /// Whether a look would tell something.
    pub(crate) fn has_begun(&self) -> bool {
        self.seen.load(Relaxed) != 0
    }

    /// Whether memory is still warm, as far as the program's own faults tell.
    pub(crate) fn is_warm(&self, usage: Usage, resident: usize, now_ms: u32) -> bool {
        let seen = self.seen.load(Relaxed);
        let slots = ((resident / SLOT) as u32).saturating_sub(self.slots.load(Relaxed));
        let faults = (usage.minor_faults as u32).wrapping_sub(self.faults.load(Relaxed));
        // A fault that brought memory is counted as that.
        let others = faults.saturating_sub(slots.saturating_mul(SLOT_PAGES as u32));
        let most = slots.max(ENOUGH).saturating_mul(SMALL_US).saturating_add(others.saturating_mul(FAULT_US));
        let is_cheap = (usage.system_us as u32).wrapping_sub(self.system_us.load(Relaxed)) <= most;
        if seen == 0 || !is_cheap {
            return false;
        }
        if slots >= ENOUGH {
            self.begin(usage, resident, now_ms);
        }
        slots >= ENOUGH || now_ms.wrapping_sub(seen).wrapping_add(1) <= LASTS_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(minor_faults: usize, system_us: u64) -> Usage {
        Usage { major_faults: 0, minor_faults, system_us }
    }

    #[test]
    fn growth_that_takes_little_time_is_warm_and_growth_that_takes_much_is_not() {
        let own = OwnCost::default();
        assert!(!own.is_warm(usage(0, 0), 0, 1), "nothing is known");
        own.begin(usage(10, 1_000), 5 * SLOT, 1);
        // 100 slots of huge pages, at 150 us each; then 100 slots of small pages, at 700 us each.
        assert!(own.is_warm(usage(110, 16_000), 105 * SLOT, 2));
        assert!(own.is_warm(usage(110 + 51_200, 86_000), 205 * SLOT, 3));
        // Cold huge pages.
        assert!(!own.is_warm(usage(51_410, 86_000 + 300_000), 305 * SLOT, 4));
        own.end();
        assert!(!own.is_warm(usage(51_410, 86_000), 205 * SLOT, 5));
    }

    #[test]
    fn memory_that_comes_and_goes_takes_faults_and_no_more_of_it() {
        let own = OwnCost::default();
        own.begin(usage(0, 0), 100 * SLOT, 1);
        assert!(own.is_warm(usage(100_000, 190_000), 100 * SLOT, 2));
        assert!(!own.is_warm(usage(100_000, 290_000), 100 * SLOT, 2));
    }

    #[test]
    fn without_growth_it_holds_for_a_while() {
        let own = OwnCost::default();
        own.begin(usage(0, 0), SLOT, 1);
        assert!(own.is_warm(usage(5, 100), 2 * SLOT, LASTS_MS));
        assert!(!own.is_warm(usage(5, 100), 2 * SLOT, LASTS_MS + 2));
        assert!(own.is_warm(usage(50, 5_000), 40 * SLOT, LASTS_MS + 3), "it grew, and was warm");
        assert!(own.is_warm(usage(50, 5_000), 40 * SLOT, 2 * LASTS_MS));
    }
}
