//! Times of single steps, and what is said of them.

use std::time::{Duration, Instant};

/// Upper edges of the histogram's steps, in ns; what is above the last is the last step.
pub const EDGES: [u64; 9] = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 1_000_000, 10_000_000];

/// Times that were taken, in ns.
#[derive(Default)]
pub struct Samples(Vec<u64>);

/// What is said of them.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Latency {
    /// How many there are.
    pub count: usize,
    /// The median, in ns.
    pub p50: u64,
    /// What one in a hundred exceeds.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// How many are below each of [`EDGES`] and not below the one before; then the rest.
    pub steps: [usize; EDGES.len() + 1],
}

impl Samples {
    /// Takes the time of a step.
    pub fn time<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = step();
        self.add(start.elapsed());
        result
    }

    /// One that was taken.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_nanos() as u64);
    }

    /// With those of another thread.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// `None` when there are none.
    pub fn latency(mut self) -> Option<Latency> {
        self.0.sort_unstable();
        let at = |percent: usize| self.0.get((self.0.len() * percent / 100).min(self.0.len().checked_sub(1)?));
        let mut steps = [0; EDGES.len() + 1];
        for ns in &self.0 {
            steps[EDGES.partition_point(|edge| edge <= ns)] += 1;
        }
        Some(Latency { count: self.0.len(), p50: *at(50)?, p99: *at(99)?, max: *self.0.last()?, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_steps() {
        let mut samples = Samples::default();
        (1..=200u64).for_each(|i| samples.add(Duration::from_nanos(i * 100)));
        let latency = samples.latency().unwrap();
        assert_eq!((latency.count, latency.p50, latency.p99, latency.max), (200, 10_100, 19_900, 20_000));
        assert_eq!(latency.steps[..6], [9, 10, 20, 40, 80, 41]);
        assert_eq!(latency.steps.iter().sum::<usize>(), 200);
        assert!(Samples::default().latency().is_none());
    }
}
