//! How much new memory the program takes, and how much of it the warm reserve was told.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Slots from which on it is worth a message (8 MiB).
const LEAST: usize = 4;
/// A message covers at least that many slots more than were taken (32 MiB), or this share of them: so messages are few.
const MORE: usize = 16;
const SHARE: usize = 4;
/// Slots of an extent that are announced before the program is seen to use it (512 MiB).
const UNSEEN: usize = 256;

/// Slots since the process began.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// The program got them without memory, or is about to touch them.
    taken: AtomicUsize,
    /// How many the reserve was told.
    told: AtomicUsize,
}

impl Announced {
    /// The program takes `n` more: how many there are in all, if the reserve is to be told now.
    pub(crate) fn take(&self, n: usize) -> Option<usize> {
        let taken = self.taken.fetch_add(n, Relaxed).saturating_add(n);
        let told = self.told.load(Relaxed);
        if taken < LEAST || taken <= told {
            return None;
        }
        let next = taken + MORE.max(taken / SHARE);
        // Another thread tells it, perhaps of less: the next call makes that good.
        self.told.compare_exchange(told, next, Relaxed, Relaxed).is_ok().then_some(next)
    }

    /// In a forked child, which has taken nothing so far.
    pub(crate) fn begin_again(&self) {
        self.taken.store(0, Relaxed);
        self.told.store(0, Relaxed);
    }
}

/// How many of the first slots of an extent of `n` are announced once the program has come to slot `reached`: what it
/// reserves and never touches is not.
pub(crate) fn expected(n: usize, reached: usize) -> usize {
    n.min(UNSEEN.max(reached.saturating_mul(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_few_and_ahead_of_the_program() {
        let announced = Announced::default();
        assert_eq!((announced.take(3), announced.take(1)), (None, Some(4 + MORE)));
        assert_eq!((announced.take(MORE), announced.take(1)), (None, Some(21 + MORE)));
        let mut messages = 0;
        for taken in 22..100_000 {
            messages += announced.take(1).is_some_and(|told| told > taken) as usize;
        }
        assert!((10..60).contains(&messages), "{messages}");
        announced.begin_again();
        assert_eq!(announced.take(1), None);
    }

    #[test]
    fn what_is_reserved_is_announced_as_the_program_gets_there() {
        assert_eq!(
            [(10, 0), (5000, 0), (5000, 200), (5000, 4000)].map(|(n, reached)| expected(n, reached)),
            [10, UNSEEN, 400, 5000]
        );
    }
}
