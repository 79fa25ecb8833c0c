//! A run-length predictor: what the next one will be like, judged by those before it.

use faultless_base::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One in this many is looked at although its outcome is expected: at first, and in a streak of [`STEADY`] and more.
const LOOK_AT_ONE_IN: u32 = 8;
const STEADY_LOOK_AT_ONE_IN: u32 = 32;
const STEADY: u32 = 256;

/// How many in a row were so; after some, the next ones are expected to be so, too. Threads may lose each other's
/// steps: it is a guess in any case.
pub(crate) struct RunLength {
    long: u32,
    n: AtomicU32,
}

impl RunLength {
    /// A predictor that is `long` after this many in a row.
    pub(crate) fn new(long: u32) -> Self {
        Self { long, n: AtomicU32::new(0) }
    }

    /// Notes what the next one was like. One that was taken for granted counts too.
    pub(crate) fn note(&self, is_so: bool) {
        let next = self.n.load(Relaxed).checked_add(1).unwrap_or(self.long);
        self.n.store(if is_so { next } else { 0 }, Relaxed);
    }

    /// Whether the next one is expected to be so.
    pub(crate) fn is_long(&self) -> bool {
        self.n.load(Relaxed) >= self.long
    }

    /// Whether that can be taken for granted: now and then one is looked at, to see whether it still holds.
    pub(crate) fn is_granted(&self) -> bool {
        let n = self.n.load(Relaxed);
        n >= self.long && n % if n < STEADY { LOOK_AT_ONE_IN } else { STEADY_LOOK_AT_ONE_IN } != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_is_looked_at_and_fewer_in_a_long_streak() {
        let run = RunLength::new(4);
        let mut granted = 0;
        for n in 0..80 {
            assert_eq!(run.is_long(), n >= 4);
            granted += u32::from(run.is_granted());
            run.note(true);
        }
        assert_eq!(granted, 76 - 9);
        (80..STEADY).for_each(|_| run.note(true));
        let steady = (0..320).filter(|_| {
            run.note(true);
            run.is_granted()
        });
        assert_eq!(steady.count(), 320 - 10);
        run.note(false);
        assert!(!run.is_long() && !run.is_granted());
    }

    #[test]
    fn a_streak_without_end_is_looked_at_still() {
        let run = RunLength::new(4);
        run.n.store(u32::MAX - 1, Relaxed);
        let granted = (0..20).filter(|_| {
            run.note(true);
            run.is_granted()
        });
        assert!(granted.count() < 20 && run.is_long());
    }
}
