//! The two records of a fault put together: that of its beginning, and that of its end.
//!
//! One beginning in this many has a record; of ends all have one, or none, by turns. So an end belongs to the beginning
//! before it if the address is the same. A fault that a signal ended has no end of its own: where ends are recorded,
//! that of another address follows.

use crate::map::HashMap;
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

/// Ends that are less than that apart, in nanoseconds, have no pause of recording between them: see `collect::pace`.
const APART: u64 = 10_000_000;

/// Beginnings that wait for their ends, by thread.
#[derive(Default)]
pub struct Pairs {
    /// With it: when the fault before it ended, if that has a record.
    open: HashMap<u32, (Sample, Option<u64>)>,
    /// Threads whose last record is an end, and when that was.
    ended: HashMap<u32, u64>,
    /// Faults that the beginnings stand for that lie between two ends, and those of them that have no end.
    seen: u64,
    failed: u64,
}

impl Pairs {
    /// The next record. Gives back the beginning of which all is known now, with its end if there is one.
    pub fn add(&mut self, sample: Sample) -> Option<(Sample, Option<Ended>)> {
        let tid = sample.tid;
        if sample.what == What::Begin {
            let before = self.ended.remove(&tid);
            return self.open.insert(tid, (sample, before)).map(|(before, _)| (before, None));
        }
        self.ended.insert(tid, sample.time);
        let (begin, before) = self.open.remove(&tid)?;
        let is_same = begin.address == sample.address && begin.pid == sample.pid && sample.time >= begin.time;
        if before.is_some_and(|before| sample.time.saturating_sub(before) < APART) {
            self.seen = self.seen.saturating_add(begin.period);
            self.failed = self.failed.saturating_add(if is_same { 0 } else { begin.period });
        }
        let ended = is_same.then(|| Ended {
            ns: sample.time - begin.time,
            page: sample.page,
            major: sample.what == What::Major,
        });
        Some((begin, ended))
    }

    /// A thread has ended.
    pub fn end(&mut self, tid: u32) -> Option<Sample> {
        self.ended.remove(&tid);
        self.open.remove(&tid).map(|(begin, _)| begin)
    }

    /// Faults that ended by a signal, as a part of all.
    pub fn failed(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.failed as f64 / self.seen as f64 }
    }

    /// Beginnings that have no end.
    pub fn rest(self) -> Vec<Sample> {
        let mut rest: Vec<_> = self.open.into_values().map(|(begin, _)| begin).collect();
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

/// The mean of some figures without the largest hundredth. A thread may have lost its CPU within a fault, and the time
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
        Sample {
            what,
            ip: 1,
            pid: 7,
            tid,
            time,
            address,
            period: 1,
            stack: Vec::new(),
            memory: Vec::new(),
            page: 4096,
        }
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
        let end = pairs.add(sample(What::Minor, 2, 27, 0x1000)).unwrap().1;
        assert_eq!(end, Some(Ended { ns: 2, page: 4096, major: false }));
        assert_eq!(pairs.add(sample(What::Minor, 2, 27, 0x1000)), None, "the same end once more");
        pairs.add(sample(What::Begin, 2, 30, 0x1000));
        assert_eq!(pairs.add(sample(What::Begin, 2, 31, 0x2000)).unwrap().0.time, 30);
        assert_eq!(pairs.rest()[0].time, 31);
    }

    #[test]
    fn a_fault_between_two_ends_that_has_none_has_failed() {
        let mut pairs = Pairs::default();
        // Ends were not recorded before: this beginning may be of a fault whose end has no record.
        pairs.add(sample(What::Begin, 1, 1, 0x1000));
        pairs.add(sample(What::Minor, 1, 2, 0x2000));
        assert_eq!(pairs.failed(), 0.0);
        for (time, end) in [(10, 0x1000), (20, 0x1000), (30, 0x1000), (40, 0x5000)] {
            pairs.add(sample(What::Begin, 1, time, 0x1000));
            pairs.add(sample(What::Minor, 1, time + 1, end));
        }
        assert_eq!(pairs.failed(), 0.25);
        // Between these two, recording may have paused.
        pairs.add(sample(What::Begin, 1, 42, 0x1000));
        pairs.add(sample(What::Minor, 1, 42 + APART, 0x2000));
        assert_eq!(pairs.failed(), 0.25);
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
