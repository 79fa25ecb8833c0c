//! How much is brought ahead of a program: no more than it was seen to use of what was brought before, and a little.
//!
//! Each huge page that is touched ahead is taken on budget. When the program uses it the budget comes back, with a
//! little more; what it leaves unused is lost. So for a program that goes through all it asks for, the background
//! thread is soon far ahead. Of all that was brought, at most a few huge pages and a small part are never used.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Slots on budget at first, and at most (128 MiB).
const FIRST: usize = 2;
const MOST: usize = 64;
/// Slots beyond the budget, to see what they take, of which it is not seen yet that the program uses them.
const BEYOND: usize = 2;
/// This many that were used are good for one more.
const SHARE: usize = 32;

/// What is left of the budget, in parts of a slot.
#[derive(Debug)]
pub(crate) struct PrefaultBudget {
    left: AtomicUsize,
    /// Slots that were taken on it, and that the program was not seen to use.
    taken: AtomicUsize,
    /// The same beyond the budget.
    beyond: AtomicUsize,
}

impl PrefaultBudget {
    pub(crate) fn new() -> Self {
        Self { left: AtomicUsize::new(FIRST * SHARE), taken: AtomicUsize::new(0), beyond: AtomicUsize::new(0) }
    }

    /// Whether one more slot may be brought; it is taken then.
    pub(crate) fn take(&self) -> bool {
        let is_taken = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(SHARE)).is_ok();
        self.taken.fetch_add(usize::from(is_taken), Relaxed);
        is_taken
    }

    /// Whether one more slot may be brought beyond the budget; it is taken then.
    pub(crate) fn take_beyond(&self) -> bool {
        self.beyond.fetch_update(Relaxed, Relaxed, |beyond| (beyond < BEYOND).then_some(beyond + 1)).is_ok()
    }

    /// One that was taken was not brought.
    pub(crate) fn give_back(&self) {
        self.end(1);
        self.left.fetch_add(SHARE, Relaxed);
    }

    /// The same of one beyond the budget.
    pub(crate) fn give_back_beyond(&self) {
        self.end_beyond(1);
    }

    /// The program uses `n` slots of those that were brought. Some may have been brought beyond the budget: they stand
    /// for slots that were taken and lost, and are worth no more than that.
    pub(crate) fn note_used(&self, n: usize) {
        self.end_beyond(n);
        let back = self.end(n) * SHARE + n;
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| Some((left + back).min(MOST * SHARE)));
    }

    fn end_beyond(&self, n: usize) {
        let end = |beyond: usize| (n > 0 && beyond > 0).then(|| beyond.saturating_sub(n));
        let _ = self.beyond.fetch_update(Relaxed, Relaxed, end);
    }

    /// Up to `n` slots that were taken are so no more: how many.
    fn end(&self, n: usize) -> usize {
        let end = |taken: usize| (n > 0).then(|| taken.saturating_sub(n));
        self.taken.fetch_update(Relaxed, Relaxed, end).map_or(0, |taken| taken.min(n))
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
        for _ in 0..SHARE {
            budget.note_used(1);
            assert!(budget.take());
        }
        assert!(budget.take() && !budget.take());
        budget.give_back();
        assert!(budget.take());
        budget.note_used(1000 * MOST);
        assert_eq!((0..).take_while(|_| budget.take()).count(), MOST);
    }

    #[test]
    fn few_are_beyond_it_that_the_program_is_not_seen_to_use() {
        let budget = PrefaultBudget::new();
        let take_all = || (0..).take_while(|_| budget.take_beyond()).count();
        assert_eq!(take_all(), BEYOND);
        budget.note_used(1);
        assert_eq!(take_all(), 1);
        budget.give_back_beyond();
        assert_eq!(take_all(), 1);
        budget.note_used(5 * BEYOND);
        assert_eq!(take_all(), BEYOND);
    }

    #[test]
    fn what_was_brought_beyond_it_makes_good_what_was_lost_and_little_more() {
        let budget = PrefaultBudget::new();
        assert!(budget.take() && budget.take());
        // Both are lost; four others are used.
        budget.note_used(4);
        assert!(budget.take() && budget.take() && !budget.take());
        budget.give_back();
        budget.give_back();
        budget.note_used(SHARE - 4);
        assert_eq!((0..).take_while(|_| budget.take()).count(), FIRST + 1);
    }
}
