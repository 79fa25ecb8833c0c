//! Page faults that the kernel took for the processes that are watched.
//!
//! `/proc/PID/stat` has them while a process runs: those of one that has ended are as many as at the last look. The
//! kernel's figure for a command and all that it waited for is exact, and comes at the end. A process that runs since
//! before the watch, and turns up later, counts from there: it had no counters before its first large request.

use std::collections::BTreeMap;

use faultless_measure::pages::find::Covered;
use faultless_measure::pages::process::Stat;

/// In the place of processes that ended between two looks: no process has this number.
const UNSEEN: (u32, u64) = (0, 0);

/// What was seen so far, by process.
#[derive(Default)]
pub struct Faults {
    /// The latest figures, by number and start.
    seen: BTreeMap<(u32, u64), u64>,
    /// What does not count: taken before.
    base: u64,
    /// As many as at the last report.
    reported: u64,
    /// When the watch began, in ticks as processes begin.
    begun: Option<u64>,
}

/// Ticks of the clock by which the kernel says when a process began.
fn now() -> u64 {
    // SAFETY: a structure that is writable, and a query.
    let (time, ticks) = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time);
        (time, libc::sysconf(libc::_SC_CLK_TCK).max(1) as u64)
    };
    time.tv_sec as u64 * ticks + time.tv_nsec as u64 * ticks / 1_000_000_000
}

impl Faults {
    /// Looks at those that run.
    pub fn look(&mut self, processes: &[Covered]) {
        for covered in processes.iter().filter(|covered| covered.runs()) {
            if let Some(stat) = Stat::read(covered.pid) {
                self.see((covered.pid, stat.started), stat.faults);
            }
        }
    }

    fn see(&mut self, process: (u32, u64), faults: u64) {
        let is_first = self.seen.insert(process, faults).is_none();
        if is_first && self.begun.is_some_and(|begun| process.1 < begun) {
            self.base += faults;
            self.reported += faults;
        }
    }

    fn all(&self) -> u64 {
        self.seen.values().sum()
    }

    /// Counts from now on.
    pub fn begin(&mut self) {
        self.begin_at(now());
    }

    fn begin_at(&mut self, now: u64) {
        (self.base, self.reported, self.begun) = (self.all(), self.all(), Some(now));
    }

    /// Since the beginning.
    pub fn total(&self) -> u64 {
        self.all() - self.base
    }

    /// The kernel's own figure came, for all processes since the beginning: what was not seen is in the next report.
    pub fn settle(&mut self, total: u64) {
        let unseen = total.saturating_sub(self.total());
        *self.seen.entry(UNSEEN).or_default() += unseen;
    }

    /// Whether there is something to report.
    pub fn has_more(&self) -> bool {
        self.all() > self.reported
    }

    /// Since the last report, of which this is the next.
    pub fn report(&mut self) -> u64 {
        let all = self.all();
        all - std::mem::replace(&mut self.reported, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_by_process_and_report() {
        let mut faults = Faults::default();
        faults.see((1, 10), 100);
        faults.begin_at(20);
        faults.see((1, 10), 130);
        // One that came up later counts from its start, also when it has the number of another one.
        faults.see((1, 20), 7);
        assert_eq!((faults.report(), faults.total()), (37, 37));
        faults.see((1, 20), 9);
        assert_eq!((faults.report(), faults.report(), faults.total()), (2, 0, 39));
        // One that had begun before counts from where it came up.
        faults.see((2, 19), 50_000);
        assert_eq!((faults.has_more(), faults.report(), faults.total()), (false, 0, 39));
        faults.see((2, 19), 50_004);
        assert_eq!((faults.report(), faults.total()), (4, 43));
    }

    #[test]
    fn reports_add_up_to_what_the_kernel_counted() {
        let mut faults = Faults::default();
        faults.see((1, 10), 100);
        faults.begin();
        faults.see((1, 10), 110);
        let first = faults.report();
        assert!(!faults.has_more());
        // Children that no look met.
        faults.settle(5000);
        assert!(faults.has_more());
        assert_eq!((first, faults.report(), faults.total()), (10, 4990, 5000));
        // Never less than what was reported.
        faults.settle(4000);
        assert_eq!((faults.report(), faults.total()), (0, 5000));
    }
}
