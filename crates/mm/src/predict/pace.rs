//! How far ahead zeroing works, and when the scrubber is woken.
//!
//! Memory is worth zeroing ahead as far as zeroes will be asked for. So this module counts the slots that were asked
//! for with zeroes, zeroed ahead or not. It also counts the slots that were zeroed ahead in vain: given back to the
//! kernel, or handed to a block of `malloc`. A program that never asks for zeroes causes no zeroing at all. One that
//! asks for some gets as many ahead as it ever asked for. While more than half of the zeroing goes to waste, it gets
//! no more than it asked for in the last seconds.
//!
//! A wake-up costs a system call. The scrubber is woken when a large dirty block appears while it sleeps. If it then
//! finds that block taken again, it is left alone for a while, each time for longer.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Slots asked for and wasted are remembered up to here; then both count half.
const MEMORY: usize = 1 << 16;
/// Asked for lately: in this period and the one before, in ms.
const PERIOD_MS: u32 = 1024;
/// How long the scrubber is left alone, at least and at most.
const HOLD_MS: u32 = 4;
const HOLD_MAX_MS: u32 = 128;

/// What was learned. Counts may lose a little when threads meet.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    asked: AtomicUsize,
    wasted: AtomicUsize,
    /// Slots asked for in the present period, and in the one before.
    recent: [AtomicUsize; 2],
    period: AtomicU32,
    awake: AtomicBool,
    called: AtomicBool,
    hold: AtomicU32,
    /// When the scrubber fell asleep, in ms.
    asleep_since: AtomicU32,
}

impl Pace {
    /// Slots were handed out that had to be zero. The time is asked for only if it matters: this path is hot.
    pub(crate) fn note_asked(&self, n: usize, now_ms: impl FnOnce() -> u32) {
        if self.is_wasteful() {
            self.turn(now_ms());
            self.recent[0].fetch_add(n, Relaxed);
        }
        if self.asked.fetch_add(n, Relaxed) + n > MEMORY {
            for count in [&self.asked, &self.wasted] {
                count.store(count.load(Relaxed) / 2, Relaxed);
            }
        }
    }

    /// Slots that were zeroed ahead went where no zeroes were needed.
    pub(crate) fn note_wasted(&self, n: usize) {
        let _ = self.wasted.fetch_update(Relaxed, Relaxed, |wasted| Some((wasted + n).min(MEMORY)));
    }

    /// How many slots are to be zero and free.
    pub(crate) fn target(&self, now_ms: u32) -> usize {
        if !self.is_wasteful() {
            return self.asked.load(Relaxed);
        }
        self.turn(now_ms);
        self.recent.iter().map(|n| n.load(Relaxed)).max().unwrap_or(0)
    }

    /// Whether more than half of the zeroing is wasted.
    fn is_wasteful(&self) -> bool {
        self.wasted.load(Relaxed) * 2 > self.asked.load(Relaxed)
    }

    /// Begins a new period if it is time.
    fn turn(&self, now_ms: u32) {
        let (now, last) = (now_ms / PERIOD_MS, self.period.load(Relaxed));
        if now != last && self.period.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            let before = self.recent[0].swap(0, Relaxed);
            self.recent[1].store(if now == last.wrapping_add(1) { before } else { 0 }, Relaxed);
        }
    }

    /// Whether the scrubber is at work.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake.load(Relaxed)
    }

    /// It begins.
    pub(crate) fn wake(&self) {
        self.called.store(false, Relaxed);
        self.awake.store(true, Relaxed);
    }

    /// It has zeroed something: wake-ups are worth it.
    pub(crate) fn note_zeroed(&self) {
        self.hold.store(0, Relaxed);
    }

    /// It ends, having found something to zero or not.
    pub(crate) fn sleep(&self, now_ms: u32, found: bool) {
        if !found {
            let hold = self.hold.load(Relaxed);
            self.hold.store((hold * 2).clamp(HOLD_MS, HOLD_MAX_MS), Relaxed);
        }
        self.asleep_since.store(now_ms, Relaxed);
        self.awake.store(false, Relaxed);
    }

    /// Whether a large dirty block is to wake it.
    pub(crate) fn wants_call(&self, now_ms: u32) -> bool {
        let slept = now_ms.wrapping_sub(self.asleep_since.load(Relaxed));
        !self.is_awake() && slept >= self.hold.load(Relaxed)
    }

    /// It is called for such a block.
    pub(crate) fn call(&self) {
        self.called.store(true, Relaxed);
    }

    /// There is nothing for it to do. If it was called, the block is taken again.
    pub(crate) fn note_nothing(&self, now_ms: u32) {
        if self.called.swap(false, Relaxed) {
            self.sleep(now_ms, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_zeroed_for_a_program_that_never_asks() {
        let pace = Pace::default();
        pace.note_wasted(3);
        assert_eq!(pace.target(0), 0);
    }

    #[test]
    fn as_much_is_zeroed_as_was_asked_for_while_half_of_it_is_used() {
        let pace = Pace::default();
        pace.note_asked(100, || 0);
        pace.note_wasted(50);
        assert_eq!(pace.target(60_000), 100);
        pace.note_wasted(1);
        assert_eq!(pace.target(60_000), 0, "nothing was asked for lately");
        pace.note_asked(1, || 60_001);
        assert_eq!(pace.target(60_002), 1);
        assert_eq!(pace.target(60_002 + PERIOD_MS), 1);
        assert_eq!(pace.target(60_002 + 2 * PERIOD_MS), 0);
        pace.note_asked(1, || 70_000);
        assert_eq!(pace.target(70_000), 102, "half of it is used again");
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let pace = Pace::default();
        pace.note_asked(100, || 0);
        pace.note_wasted(MEMORY);
        (0..8).for_each(|_| pace.note_asked(MEMORY / 2, || 0));
        assert!(pace.wasted.load(Relaxed) <= MEMORY / 4 && pace.asked.load(Relaxed) >= MEMORY / 2);
    }

    #[test]
    fn wake_ups_for_nothing_become_rare() {
        let pace = Pace::default();
        assert!(pace.wants_call(10_000));
        pace.wake();
        assert!(!pace.wants_call(10_000));
        for hold in [4, 8, 16, 32, 64, 128, 128] {
            pace.sleep(10_000, false);
            assert!(!pace.wants_call(10_000 + hold - 1) && pace.wants_call(10_000 + hold));
        }
        pace.note_zeroed();
        assert!(pace.wants_call(10_000));
    }

    #[test]
    fn a_call_for_a_block_that_is_taken_again_counts_as_one_for_nothing() {
        let pace = Pace::default();
        pace.note_nothing(10_000);
        assert!(pace.wants_call(10_000), "it was not called");
        pace.call();
        pace.note_nothing(10_000);
        assert!(!pace.wants_call(10_000 + HOLD_MS - 1) && pace.wants_call(10_000 + HOLD_MS));
        pace.note_nothing(10_000 + HOLD_MS);
        assert!(pace.wants_call(10_000 + HOLD_MS), "the call before was for nothing, and this one is none");
    }
}
