//! The two records of a fault put together: that of its beginning, and that of its end.
//!
//! Both events have the same period. So their records belong to the same faults, until a fault ends otherwise (with
//! input, or by a signal), or its thread moves to another CPU within it. From then on only ends that are recorded in a
//! window have beginnings: a fault's end is taken for that of the beginning before it only if the address is the same.

use std::collections::HashMap;

use crate::sys::event::What;
use crate::wire::Sample;

/// The end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Nanoseconds from its beginning.
    pub ns: u64,
    /// Bytes of the page that is there now.
    pub page: u64,
    /// Whether it waited for input.
    pub major: bool,
}

/// Beginnings that wait for their ends, by thread.
#[derive(Default)]
pub struct Pairs {
    open: HashMap<u32, Sample>,
}

impl Pairs {
    /// The next record. Gives back the beginning of which all is known now, with its end if there is one.
    pub fn add(&mut self, sample: Sample) -> Option<(Sample, Option<Ended>)> {
        let tid = sample.tid;
        if sample.what == What::Begin {
            return self.open.insert(tid, sample).map(|before| (before, None));
        }
        let begin = self.open.remove(&tid)?;
        let is_same = begin.address == sample.address && begin.pid == sample.pid && sample.time >= begin.time;
        let ended = is_same.then(|| Ended {
            ns: sample.time - begin.time,
            page: sample.page,
            major: sample.what == What::Major,
        });
        Some((begin, ended))
    }

    /// A thread has ended.
    pub fn end(&mut self, tid: u32) -> Option<Sample> {
        self.open.remove(&tid)
    }

    /// Beginnings that have no end.
    pub fn rest(self) -> Vec<Sample> {
        let mut rest: Vec<_> = self.open.into_values().collect();
        rest.sort_by_key(|sample| (sample.time, sample.tid));
        rest
    }
}

/// The middle of some figures; 0 of none.
pub fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Figures from which their largest hundredth tells disturbances from what is usual.
const MANY: usize = 100;

/// The mean of some figures without the largest hundredth: a thread may have lost its CPU within a fault, and the time
/// until it goes on is no cost of the fault. Of few figures it is the mean of the middle half.
pub fn usual(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    let n = figures.len();
    let kept = if n >= MANY { 0..n - n.div_ceil(100) } else { n / 4..n - n / 4 };
    let kept = &figures[kept];
    if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / kept.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(what: What, tid: u32, time: u64, address: u64) -> Sample {
        Sample { what, ip: 1, pid: 7, tid, time, address, period: 1, stack: Vec::new(), page: 4096 }
    }

    #[test]
    fn an_end_belongs_to_the_beginning_at_the_same_address() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.add(sample(What::Begin, 1, 10, 0x1000)), None);
        assert_eq!(pairs.add(sample(What::Begin, 2, 11, 0x9000)), None);
        let (begin, end) = pairs.add(sample(What::Minor, 1, 15, 0x1000)).unwrap();
        assert_eq!((begin.time, end), (10, Some(Ended { ns: 5, page: 4096, major: false })));
        assert_eq!(pairs.add(sample(What::Major, 1, 16, 0x1000)), None, "an end without a beginning");
        let (begin, end) = pairs.add(sample(What::Minor, 2, 20, 0xa000)).unwrap();
        assert_eq!((begin.tid, end), (2, None), "that of another fault");
        pairs.add(sample(What::Begin, 2, 25, 0x1000));
        let end = pairs.add(sample(What::Window, 2, 27, 0x1000)).unwrap().1;
        assert_eq!(end, Some(Ended { ns: 2, page: 4096, major: false }));
        assert_eq!(pairs.add(sample(What::Minor, 2, 27, 0x1000)), None, "the same end once more");
        pairs.add(sample(What::Begin, 2, 30, 0x1000));
        assert_eq!(pairs.add(sample(What::Begin, 2, 31, 0x2000)).unwrap().0.time, 30);
        assert_eq!(pairs.rest()[0].time, 31);
    }

    #[test]
    fn the_usual_mean_leaves_a_disturbance_out() {
        let mut figures = vec![10.0; 99];
        figures.push(1e9);
        assert_eq!(usual(&mut figures), 10.0);
        assert_eq!((usual(&mut [5.0]), usual(&mut [5.0, 7.0])), (5.0, 6.0));
        assert_eq!(usual(&mut [1e9, 4.0, 5.0, 6.0, 7.0, 1.0, 8.0, 1e9]), 6.5);
        assert_eq!((usual(&mut []), middle(&mut [])), (0.0, 0.0));
        assert_eq!(middle(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
