//! Page faults that the kernel took for the processes that are watched.
//!
//! `/proc/PID/stat` has them while a process runs: those of one that has ended are as many as at the last look. A process
//! that runs since before the watch, and turns up later, counts from there: it had no counters before its first large
//! request.
//!
//! Of a program that this command started, the kernel has a figure at its end. It holds the program, and every process
//! that its parent waited for. Others come to it as they were last seen: those that run on, and those that ended after
//! their parents. Unknown is what these took after the last look, and what those took that no look met.

use std::collections::{BTreeMap, HashMap};

use faultless_measure::pages::find::Covered;
use faultless_measure::pages::process::{Process, Stat};

/// A process as it was last seen.
#[derive(Clone, Copy)]
struct Seen {
    faults: u64,
    /// With those of children that it has waited for.
    with_children: u64,
    /// No process waits for it whose figure has it: not the program, nor another one that is seen.
    is_apart: bool,
}

/// What was seen so far.
#[derive(Default)]
pub struct Faults {
    /// Processes that ran at the last look.
    running: BTreeMap<Process, Seen>,
    /// Of those that have ended: all, and as far as they were apart.
    ended: u64,
    ended_apart: u64,
    /// The program below which all processes are, if it was started here.
    program: Option<u32>,
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

/// How many steps up a process may be looked for, and numbers that are taken again may close a circle.
const STEPS: usize = 1000;

impl Faults {
    /// For processes that `program` starts.
    pub fn below(program: u32) -> Self {
        Self { program: Some(program), ..Self::default() }
    }

    /// Looks at those that run.
    pub fn look(&mut self, processes: &[Covered]) {
        let running = processes.iter().filter(|covered| covered.runs());
        let stats = running.filter_map(|covered| Some((covered.pid, Stat::read(covered.pid)?)));
        let stats: BTreeMap<u32, Stat> = stats.collect();
        self.take(&stats, |pid| Stat::read(pid).map(|stat| stat.parent));
        let is_it = |stat: &Stat, process: &Process| stat.started == process.started;
        let gone = |process: &Process| {
            let is_seen = stats.get(&process.pid).is_some_and(|stat| is_it(stat, process));
            // An error: it cannot be told now.
            !is_seen && Stat::find(process.pid).is_ok_and(|stat| !stat.is_some_and(|stat| is_it(&stat, process)))
        };
        let ended: Vec<_> = self.running.keys().filter(|process| gone(process)).copied().collect();
        ended.into_iter().for_each(|process| self.end(process));
    }

    /// Takes up what was read of processes; `parent` tells that of others.
    fn take(&mut self, stats: &BTreeMap<u32, Stat>, parent: impl Fn(u32) -> Option<u32>) {
        let mut parents: HashMap<u32, Option<u32>> = HashMap::new();
        for (pid, stat) in stats {
            let mut above = |pid: &u32| match stats.get(pid) {
                Some(stat) => Some(stat.parent),
                None => *parents.entry(*pid).or_insert_with(|| parent(*pid)),
            };
            let waits = |pid: u32| self.program == Some(pid) || stats.contains_key(&pid);
            let mut ancestors = std::iter::successors(above(pid), |pid| above(pid)).take(STEPS);
            let is_apart = self.program != Some(*pid) && self.program.is_some() && !ancestors.any(waits);
            let with_children = stat.faults.saturating_add(stat.waited_faults);
            let seen = Seen { faults: stat.faults, with_children, is_apart };
            self.see(Process { pid: *pid, started: stat.started }, seen);
        }
    }

    fn see(&mut self, process: Process, seen: Seen) {
        let is_first = self.running.insert(process, seen).is_none();
        if is_first && self.begun.is_some_and(|begun| process.started < begun) {
            self.base += seen.faults;
            self.reported += seen.faults;
        }
    }

    fn end(&mut self, process: Process) {
        let Some(seen) = self.running.remove(&process) else { return };
        self.ended += seen.faults;
        self.ended_apart += if seen.is_apart { seen.with_children } else { 0 };
    }

    fn all(&self) -> u64 {
        self.ended + self.running.values().map(|seen| seen.faults).sum::<u64>()
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

    /// The program has ended, and the kernel's figure of it and of all that was waited for came. What was not seen is in
    /// the next report. Nothing that was reported is taken back.
    pub fn settle(&mut self, waited: u64) {
        let run_on: u64 = self.running.values().map(|seen| seen.with_children).sum();
        let total = waited.saturating_add(self.ended_apart).saturating_add(run_on);
        self.ended += total.saturating_sub(self.total());
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

    fn see(faults: &mut Faults, pid: u32, started: u64, n: u64) {
        let seen = Seen { faults: n, with_children: n, is_apart: false };
        faults.see(Process { pid, started }, seen);
    }

    #[test]
    fn faults_are_told_by_process_and_report() {
        let mut faults = Faults::default();
        see(&mut faults, 1, 10, 100);
        faults.begin_at(20);
        see(&mut faults, 1, 10, 130);
        // One that came up later counts from its start, also when it has the number of another one.
        faults.end(Process { pid: 1, started: 10 });
        see(&mut faults, 1, 20, 7);
        assert_eq!((faults.report(), faults.total()), (37, 37));
        see(&mut faults, 1, 20, 9);
        assert_eq!((faults.report(), faults.report(), faults.total()), (2, 0, 39));
        // One that had begun before counts from where it came up.
        see(&mut faults, 2, 19, 50_000);
        assert_eq!((faults.has_more(), faults.report(), faults.total()), (false, 0, 39));
        see(&mut faults, 2, 19, 50_004);
        assert_eq!((faults.report(), faults.total()), (4, 43));
    }

    #[test]
    fn reports_add_up_to_what_the_kernel_counted() {
        let mut faults = Faults::below(1);
        see(&mut faults, 1, 10, 10);
        let first = faults.report();
        assert!(!faults.has_more());
        faults.end(Process { pid: 1, started: 10 });
        // With children that no look met.
        faults.settle(5000);
        assert!(faults.has_more());
        assert_eq!((first, faults.report(), faults.total()), (10, 4990, 5000));
        // Never less than what was reported.
        faults.settle(4000);
        assert_eq!((faults.report(), faults.total()), (0, 5000));
    }

    /// | process | what it is |
    /// |---|---|
    /// | 10, 11 | the program and its child |
    /// | 20 | it has lost its parent |
    /// | 21 | the child of a shell without counters, which is a child of 20 |
    /// | 30 | it has lost its parent, runs on, and has waited for children with 5 faults |
    #[test]
    fn those_that_are_not_waited_for_count_once() {
        let stat = |parent, faults, waited_faults| {
            let (name, started) = (String::new(), 1);
            Stat { name, started, faults, waited_faults, parent }
        };
        let parent = |pid| (pid == 15).then_some(20);
        let mut faults = Faults::below(10);
        let all = [
            (10, stat(2, 100, 0)),
            (11, stat(10, 200, 0)),
            (20, stat(1, 1000, 0)),
            (21, stat(15, 2000, 0)),
            (30, stat(1, 7, 5)),
        ];
        faults.take(&BTreeMap::from(all), parent);
        assert_eq!(faults.total(), 100 + 200 + 1000 + 2000 + 7);
        // 21 ends, and the shell waits for it, and 20 for the shell.
        faults.end(Process { pid: 21, started: 1 });
        faults.take(&BTreeMap::from([(20, stat(1, 1001, 2500))]), parent);
        for pid in [10, 11, 20] {
            faults.end(Process { pid, started: 1 });
        }
        faults.settle(350);
        assert_eq!(faults.total(), 350 + (1001 + 2500) + (7 + 5));
    }
}
