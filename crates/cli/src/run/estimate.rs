//! What was spared, in faults and in time.

use faultless_mm::stats::Counter;
use serde::Serialize;

use super::sys::{self, Pages};
use crate::pages::Counters;

/// Memory touched to learn what a first touch costs.
const MEASURED: usize = 8 << 20;

/// Faults that the program did not have to wait for, and the time of them.
///
/// Memory that was resident when it was handed out, or that was touched in the background, needs no fault; memory
/// with huge pages needs fewer. Each is counted with the cost that a first touch is measured to have here and now,
/// less the time of zeroing in the program's own threads. An estimate, and an upper bound: the program may not have
/// touched all of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    pub(super) faults_avoided: u64,
    pub(super) seconds_avoided: f64,
    pub(super) measured_bytes: usize,
    pub(super) ordinary_faults: u64,
    pub(super) ordinary_s: f64,
    pub(super) huge_faults: u64,
    pub(super) huge_s: f64,
}

impl Estimate {
    /// What the counters are worth; `None` where nothing can be measured.
    pub(super) fn new(sum: &Counters) -> Option<Self> {
        let (ordinary, ordinary_faults) = sys::touch(MEASURED, Pages::Ordinary)?;
        let (huge, huge_faults) = sys::touch(MEASURED, Pages::Huge)?;
        let mut estimate = Self {
            faults_avoided: 0,
            seconds_avoided: 0.0,
            measured_bytes: MEASURED,
            ordinary_faults,
            ordinary_s: ordinary.as_secs_f64(),
            huge_faults,
            huge_s: huge.as_secs_f64(),
        };
        estimate.apply(sum);
        Some(estimate)
    }

    fn apply(&mut self, sum: &Counters) {
        let get = |counter| sum.get(counter) as f64;
        let lent = get(Counter::BytesTouchedLent) + get(Counter::BytesMoved);
        let ready = get(Counter::BytesZeroed) + get(Counter::BytesUnzeroed) + get(Counter::BytesHotZeroed) + lent;
        let fewer = (get(Counter::BytesFreshHuge) - lent).max(0.0);
        let avoided = |ordinary: f64, huge: f64| {
            (ready * ordinary + fewer * (ordinary - huge).max(0.0)) / self.measured_bytes as f64
        };
        let seconds = avoided(self.ordinary_s, self.huge_s) - get(Counter::HotZeroNs) / 1e9;
        self.faults_avoided = avoided(self.ordinary_faults as f64, self.huge_faults as f64) as u64;
        self.seconds_avoided = seconds;
    }
}

#[cfg(test)]
mod tests {
    use faultless_mm::stats::COUNTERS;

    use super::*;

    #[test]
    fn an_estimate_counts_what_was_ready() {
        use faultless_mm::page::Page;
        let page = Page::new();
        page.start(7, 0);
        // 16 MiB ready; 10 MiB fresh with huge pages, 2 MiB of which were touched in the background; 1 ms of zeroing.
        page.block[0].add(Counter::BytesZeroed, 8 << 20);
        page.block[1].add(Counter::BytesUnzeroed, 6 << 20);
        page.block[2].add(Counter::BytesTouchedLent, 2 << 20);
        page.block[3].add(Counter::BytesFreshHuge, 10 << 20);
        page.block[4].add(Counter::HotZeroNs, 1_000_000);
        let values = COUNTERS.iter().enumerate().map(|(i, _)| page.block.iter().map(|b| b.get(i)).sum());
        let mut estimate = Estimate {
            faults_avoided: 0,
            seconds_avoided: 0.0,
            measured_bytes: 8 << 20,
            ordinary_faults: 2048,
            ordinary_s: 0.010,
            huge_faults: 4,
            huge_s: 0.002,
        };
        estimate.apply(&Counters::from_values(7, values));
        assert_eq!(estimate.faults_avoided, 2 * 2048 + (2048 - 4));
        assert!((estimate.seconds_avoided - (0.020 + 0.008 - 0.001)).abs() < 1e-9, "{estimate:?}");
    }

    #[test]
    fn a_first_touch_is_measured() {
        let sum = Counters::sum(&[]);
        let estimate = Estimate::new(&sum).unwrap();
        assert!(estimate.ordinary_faults >= 4 && estimate.huge_faults >= 1, "{estimate:?}");
        assert!(estimate.ordinary_s > 0.0);
        assert_eq!(estimate.faults_avoided, 0);
    }
}
