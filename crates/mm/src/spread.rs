//! A number that many threads change and few want to know. It is spread over cache lines, so that threads do not wait for each
//! other's.

use faultless_base::sync::atomic::{AtomicIsize, Ordering};

/// Lines that it is spread over; a thread has one of them, alone or with others.
pub const LINES: usize = 64;
/// So many of them; a checker looks at each.
const USED: usize = if cfg!(debug_assertions) { 2 } else { LINES };

#[repr(align(64))]
struct Part(AtomicIsize);

/// The sum of its parts, of which each alone may be below zero.
pub struct Spread([Part; USED]);

impl Spread {
    /// Nothing.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| Part(AtomicIsize::new(0))))
    }

    /// Adds `n`; `hint` tells threads apart.
    pub fn add(&self, n: isize, hint: usize) {
        self.0[hint % USED].0.fetch_add(n, Ordering::Relaxed);
    }

    /// All of it. Exact while nobody adds.
    pub fn sum(&self) -> isize {
        self.0.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_adds_another_may_take_away() {
        let spread = Spread::new();
        (0..1000).for_each(|hint| spread.add(3, hint));
        spread.add(-3000, 7);
        assert_eq!(spread.sum(), 0);
        spread.add(-1, 8);
        assert_eq!(spread.sum(), -1);
    }
}
