//! What a fault counts, kept until its end: threads that share a block of counters then pass its lines on once for
//! each fault, not once for each number.

use faultless_page::stats::Counter;

/// Counters that one fault may come to.
const MOST: usize = 10;

/// Numbers to be added to counters.
pub struct FaultStats {
    /// The processor.
    pub cpu: usize,
    counts: [(Counter, usize); MOST],
    len: usize,
}

impl FaultStats {
    /// Nothing, on a processor.
    pub fn new(cpu: usize) -> Self {
        Self { cpu, counts: [(Counter::RegionPgfault, 0); MOST], len: 0 }
    }

    /// Counts `n` more.
    pub fn add(&mut self, counter: Counter, n: usize) {
        if let Some((_, sum)) = self.counts[..self.len].iter_mut().find(|(other, _)| *other == counter) {
            *sum += n;
        } else if n > 0 {
            debug_assert!(self.len < MOST, "a fault counts more than was thought");
            self.counts[self.len] = (counter, n);
            self.len += 1;
        }
    }

    /// What there is.
    pub fn counts(&self) -> &[(Counter, usize)] {
        &self.counts[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counter_has_one_sum_and_nothing_is_not_counted() {
        let mut stats = FaultStats::new(1);
        stats.add(Counter::RegionPages, 0);
        stats.add(Counter::RegionPgfault, 1);
        stats.add(Counter::RegionPages, 3);
        stats.add(Counter::RegionPages, 4);
        assert_eq!(stats.counts(), [(Counter::RegionPgfault, 1), (Counter::RegionPages, 7)]);
    }
}
