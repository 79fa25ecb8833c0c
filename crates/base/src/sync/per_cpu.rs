//! Numbers that many threads change, spread over places on cache lines of their own, so that threads do not wait for
//! each other.

use super::atomic::{AtomicIsize, Ordering};
use super::{CHECKED, Table};

/// Places at least: more than a small machine has processors, because streams are kept by thread.
const LEAST: usize = 64;

/// Places of a region with `lines` lines of counters: a power of two.
pub const fn places(lines: usize) -> usize {
    match lines {
        _ if CHECKED => 2,
        ..LEAST => LEAST,
        lines => lines,
    }
}

/// A number that many threads change and few want to know: the sum of parts, of which each alone may be below zero.
pub struct PerCpu(Table<Part>);

#[repr(align(64))]
struct Part(AtomicIsize);

impl PerCpu {
    /// Nothing, in `parts` parts, a power of two. `None` when there is no memory for them.
    pub fn new(parts: usize) -> Option<Self> {
        Some(Self(Table::new(parts, || Part(AtomicIsize::new(0)))?))
    }

    /// Adds `n`, on this processor.
    pub fn add(&self, n: isize, cpu: usize) {
        self.0[cpu & (self.0.len() - 1)].0.fetch_add(n, Ordering::Relaxed);
    }

    /// All of it. Exact while no thread adds.
    pub fn sum(&self) -> isize {
        self.0.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_adds_another_may_take_away() {
        let spread = PerCpu::new(64).unwrap();
        (0..1000).for_each(|cpu| spread.add(3, cpu));
        spread.add(-3000, 7);
        assert_eq!(spread.sum(), 0);
        spread.add(-1, 8);
        assert_eq!(spread.sum(), -1);
    }
}
