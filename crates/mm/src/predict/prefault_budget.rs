//! How much is brought ahead of a program: no more than it was seen to use of what was brought before, and a little.
//!
//! Each huge page that is touched ahead is taken on budget. When the program uses it the budget comes back, with a
//! little more; what it leaves unused is lost. So for a program that goes through all it asks for, the background
//! thread is soon far ahead. Of all that was brought, at most a few huge pages and a small part are never used.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Slots on budget at first, and at most (128 MiB).
const FIRST: usize = 2;
const MOST: usize = 64;
/// This many that were used are good for one more.
const SHARE: usize = 32;

/// What is left of the budget, in parts of a slot.
#[derive(Debug)]
pub(crate) struct PrefaultBudget(AtomicUsize);

impl PrefaultBudget {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(FIRST * SHARE))
    }

    /// Whether one more slot may be brought; it is taken then.
    pub(crate) fn take(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(SHARE)).is_ok()
    }

    /// One that was taken was not brought.
    pub(crate) fn give_back(&self) {
        self.0.fetch_add(SHARE, Relaxed);
    }

    /// The program uses `n` slots of those that were brought.
    pub(crate) fn note_used(&self, n: usize) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |left| Some((left + n * (SHARE + 1)).min(MOST * SHARE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_comes_back_with_a_little_more_and_what_is_not_is_lost() {
        let budget = PrefaultBudget::new();
        assert!((0..FIRST).all(|_| budget.take()));
        assert!(!budget.take());
        budget.note_used(SHARE);
        assert!((0..SHARE + 1).all(|_| budget.take()));
        assert!(!budget.take());
        budget.give_back();
        assert!(budget.take());
        budget.note_used(1000 * MOST);
        assert_eq!((0..).take_while(|_| budget.take()).count(), MOST);
    }
}
