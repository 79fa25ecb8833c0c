//! When the account was last brought up to date, and what is known of the control group.
//!
//! [`crate::space::account`] looks. Several threads may be at it: of two that find it is time, one looks.

use faultless_base::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Least time between two looks.
const LOOK_NS: u64 = 500_000;
/// The same where the background thread has to look for the program's.
const WAKE_MS: u32 = 10;
/// A promise counts for this long, and at most for twice as long.
const PROMISE_MS: u32 = 250;
/// It counts on while the program's threads had a processor for less than this since: they wait for one, and will touch
/// the memory once they have it.
const PROMISE_RUN_MS: u32 = 50;
/// But no longer than this: they wait for something else.
const PROMISE_WAIT_MS: u32 = 10 * PROMISE_MS;

/// The clock of the looks.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// When the account was last brought up to date, in ns; 0 for never. The thread that sets it looks.
    looked_ns: AtomicUsize,
    /// When promises last grew older, in ms. Only the thread that looks sets it.
    promised_ms: AtomicU32,
    /// How long the process had had a processor then, in ms; likewise.
    promised_ran_ms: AtomicU32,
    /// When the background thread was last asked to look at the control group, in ms; likewise.
    asked_ms: AtomicU32,
    /// Whether the control group may have a limit; as the last look said.
    grouped: AtomicBool,
    /// Whether the program's threads could not look at the group. The background thread takes it by a swap.
    group_unknown: AtomicBool,
}

impl Looks {
    /// Whether it is time for a look; it is the caller's then.
    pub(crate) fn begin(&self, now_ns: u64) -> bool {
        let last = self.looked_ns.load(Relaxed) as u64;
        (last == 0 || now_ns.wrapping_sub(last) >= LOOK_NS)
            && self.looked_ns.compare_exchange(last as usize, now_ns as usize, Relaxed, Relaxed).is_ok()
    }

    /// Whether promises are a period older; the next period begins then. `ran_ms` says for how long the process had a
    /// processor.
    pub(crate) fn ages_promises(&self, now_ms: u32, ran_ms: impl FnOnce() -> u32) -> bool {
        let passed = now_ms.wrapping_sub(self.promised_ms.load(Relaxed));
        if passed <= PROMISE_MS {
            return false;
        }
        let ran_ms = ran_ms();
        let ran = ran_ms.wrapping_sub(self.promised_ran_ms.load(Relaxed));
        if ran <= PROMISE_RUN_MS && passed <= PROMISE_WAIT_MS {
            return false;
        }
        self.promised_ms.store(now_ms, Relaxed);
        self.promised_ran_ms.store(ran_ms, Relaxed);
        true
    }

    /// The control group has a limit, or may have one.
    pub(crate) fn note_group(&self, has_limit: bool) {
        self.grouped.store(has_limit, Relaxed);
    }

    /// Whether the control group has a limit.
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped.load(Relaxed)
    }

    /// A thread of the program could not look at the group. Whether the background thread is to be asked now.
    pub(crate) fn asks_for_group(&self, now_ms: u32) -> bool {
        let is_time = now_ms.wrapping_sub(self.asked_ms.load(Relaxed)) > WAKE_MS;
        if is_time {
            self.asked_ms.store(now_ms, Relaxed);
            self.group_unknown.store(true, Relaxed);
        }
        is_time
    }

    /// Whether the background thread was asked since it last looked.
    pub(crate) fn is_group_asked_for(&self) -> bool {
        self.group_unknown.load(Relaxed) && self.group_unknown.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// When promises grow older, of a program that runs for `ran` of each 1000 ms.
    fn ages(ran: u32) -> Vec<u32> {
        let looks = Looks::default();
        assert!(looks.ages_promises(10_000, || 0), "the first look");
        (10_000..20_000).filter(|ms| looks.ages_promises(*ms, || (ms - 10_000) * ran / 1000)).take(2).collect()
    }

    #[test]
    fn promises_age_by_the_clock_and_by_the_time_that_the_program_had() {
        assert_eq!(ages(1000), [10_251, 10_502]);
        assert_eq!(ages(8000), [10_251, 10_502], "many threads");
        assert_eq!(ages(100), [10_510, 11_020], "it had a tenth of a processor");
        assert_eq!(ages(0), [12_501, 15_002], "it sleeps");
    }
}
