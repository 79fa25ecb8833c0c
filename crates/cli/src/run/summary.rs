//! What is said at the end.
//!
//! As text, and with `--json FILE` as one object, `version` 1:
//!
//! | field | meaning |
//! |---|---|
//! | `version` | of this table; a field that changes its meaning makes it grow |
//! | `command` | the program and its arguments |
//! | `exit_status` | as the shell gives it: 128 and the signal for a killed program |
//! | `signal` | the signal that killed it, or null |
//! | `wall_s`, `user_s`, `system_s` | time from start to end, and used up in the program and the kernel |
//! | `max_rss_bytes` | most memory resident at once, in the largest process that was waited for |
//! | `minor_faults`, `major_faults` | page faults taken by all of them |
//! | `not_covered` | why the program itself was not covered, or null |
//! | `unreadable` | what is wrong with counters pages that could not be read |
//! | `estimate` | null if nothing was served, else an object: |
//! | `.faults_avoided`, `.seconds_avoided` | see [`Estimate`] |
//! | `.measured_bytes` | memory touched to measure, in each of two ways: |
//! | `.ordinary_faults`, `.ordinary_s` | cost of its first touch, as the system gives it |
//! | `.huge_faults`, `.huge_s` | cost of its first touch, with huge pages |
//! | `processes` | each process that has counters, served or not: `pid` and `counters` |
//! | `totals` | the counters, summed |
//!
//! Counters are objects from name to number; names and meanings are those of `faultless_mm::stats::COUNTERS`. A
//! process that replaces its program by another (exec) goes on counting where it was.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use faultless_base::zero::Engine;
use faultless_mm::stats::{COUNTERS, Counter};
use serde::Serialize;

use super::child::{End, Outcome};
use super::estimate::Estimate;
use super::options::Args;
use crate::figures::{seconds, size, wrap};
use crate::pages::{Counters, Dir};

/// Everything that is said.
#[derive(Serialize)]
pub struct Summary {
    version: u32,
    command: Vec<String>,
    exit_status: i32,
    signal: Option<i32>,
    wall_s: f64,
    user_s: f64,
    system_s: f64,
    max_rss_bytes: u64,
    minor_faults: u64,
    major_faults: u64,
    not_covered: Option<String>,
    unreadable: Vec<String>,
    estimate: Option<Estimate>,
    processes: Vec<Process>,
    totals: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    sum: Counters,
    #[serde(skip)]
    served: usize,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    counters: BTreeMap<&'static str, u64>,
}

fn named(counters: &Counters) -> BTreeMap<&'static str, u64> {
    COUNTERS.iter().map(|declared| declared.name).zip(*counters.values()).collect()
}

impl Summary {
    /// Reads the counters in `dir` and puts everything together.
    pub fn new(args: &Args, pid: i32, outcome: Outcome, dir: io::Result<Dir>) -> Self {
        let (pages, unreadable) = match dir.and_then(|dir| dir.read()) {
            Ok(read) => read,
            Err(error) => (Vec::new(), vec![format!("no place for counters: {error}")]),
        };
        let own = pages.iter().find(|page| page.pid == pid as u32);
        let is_covered = own.map_or(!unreadable.is_empty(), Counters::is_served);
        let left = own.map_or(0, |page| page.left().iter().map(|(_, n)| n).sum());
        let served = pages.iter().filter(|page| page.is_served()).count();
        let sum = Counters::sum(&pages);
        let Outcome { end, wall, usage, .. } = outcome;
        Self {
            version: 1,
            command: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_status: end.shell(),
            signal: if let End::Signal(signal) = end { Some(signal) } else { None },
            wall_s: wall.as_secs_f64(),
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            max_rss_bytes: usage.max_rss,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            not_covered: (!is_covered).then(|| super::why_not(args, left)),
            unreadable,
            estimate: if served == 0 { None } else { Estimate::new(&sum) },
            processes: pages.iter().map(|page| Process { pid: page.pid, counters: named(page) }).collect(),
            totals: named(&sum),
            sum,
            served,
        }
    }

    fn sources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |counter| self.sum.get(counter);
        let sources = [
            ("zero already", Counter::BytesZeroed),
            ("as it was, zeroes not needed", Counter::BytesUnzeroed),
            ("zeroed on demand", Counter::BytesHotZeroed),
            ("fresh, with huge pages", Counter::BytesFreshHuge),
            ("fresh, as the system gives it", Counter::BytesFreshSmall),
        ];
        let all = sources.iter().map(|(_, counter)| get(*counter)).sum();
        let requests = get(Counter::MmapServed) + get(Counter::MallocServed);
        row(f, "memory handed out", &size(all), &format!("in {requests} requests"))?;
        for (label, counter) in sources.iter().filter(|(_, counter)| get(*counter) > 0) {
            row(f, &format!("  {label}"), &size(get(*counter)), "")?;
        }
        let zeroing = [
            (
                "touched ahead, in the background",
                get(Counter::BytesTouchedLent) + get(Counter::BytesTouchedAhead),
                get(Counter::TouchNs),
            ),
            ("zeroed in the background", get(Counter::BytesScrubbed), get(Counter::ScrubNs)),
            ("zeroed on demand", get(Counter::BytesHotZeroed), get(Counter::HotZeroNs)),
        ];
        for (label, bytes, ns) in zeroing.iter().filter(|(_, bytes, _)| *bytes > 0) {
            row(f, label, &size(*bytes), &format!("in {}", seconds(*ns as f64 / 1e9)))?;
        }
        if get(Counter::BytesMoved) > 0 {
            let windows = format!("in {} windows", get(Counter::MoveWindows));
            row(f, "moved ahead of the program", &size(get(Counter::BytesMoved)), &windows)?;
        }
        if get(Counter::MovesRefused) > 0 {
            row(f, "nothing moved ahead (mapped)", "", "userfaultfd is refused: see faultless doctor")?;
        }
        match get(Counter::EnginesDropped) {
            0 => Ok(()),
            n => row(f, "zeroing engines given up", &n.to_string(), &given_up(&self.sum)),
        }
    }

    fn left(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons = self.sum.left();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let calls: u64 = reasons.iter().map(|(_, count)| count).sum();
        row(f, "requests left to the kernel", &calls.to_string(), "")?;
        for (name, count) in reasons {
            row(f, &format!("  {}", name.replace('_', " ")), &count.to_string(), "")?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = match self.served {
            0 if !self.unreadable.is_empty() => "what was covered is not known".to_owned(),
            0 => "nothing covered".to_owned(),
            1 => "1 process covered".to_owned(),
            n => format!("{n} processes covered"),
        };
        let times = [self.wall_s, self.user_s, self.system_s].map(seconds);
        writeln!(f, "faultless: {served}; {} wall, {} user, {} system", times[0], times[1], times[2])?;
        if let Some(reason) = &self.not_covered {
            let what = if self.served == 0 { "Nothing" } else { "Of the program itself, nothing" };
            writeln!(f, "{}", wrap(&format!("{what} was covered: {reason}."), "  "))?;
        }
        for wrong in &self.unreadable {
            writeln!(f, "{}", wrap(&format!("Counters of a process are missing: {wrong}."), "  "))?;
        }
        if self.served > 0 {
            self.sources(f)?;
        }
        let major = format!("and {} that waited for input", self.major_faults);
        row(f, "page faults taken", &self.minor_faults.to_string(), &major)?;
        if let Some(estimate) = &self.estimate {
            let time = format!("and {}, an estimate:", seconds(estimate.seconds_avoided));
            row(f, "page faults avoided, at most", &estimate.faults_avoided.to_string(), &time)?;
            let how = format!(
                "(memory that was ready x the cost of a first touch, measured now: {} of ordinary memory cost {} \
                 faults and {}, with huge pages {} and {}; less the time of zeroing on demand)",
                size(estimate.measured_bytes as u64),
                estimate.ordinary_faults,
                seconds(estimate.ordinary_s),
                estimate.huge_faults,
                seconds(estimate.huge_s),
            );
            writeln!(f, "{}", wrap(&how, "    "))?;
        }
        if !self.processes.is_empty() {
            self.left(f)?;
        }
        row(f, "peak resident memory", &size(self.max_rss_bytes), "of the largest process")
    }
}

/// Which zeroing engines are not used any more, and why.
fn given_up(sum: &Counters) -> String {
    let named = |counters: &[(Counter, &str)]| {
        let counted = counters.iter().filter(|(counter, _)| sum.get(*counter) > 0);
        let several = |n| if n > 1 { format!(" ({n} times)") } else { String::new() };
        counted
            .map(|(counter, name)| format!("{name}{}", several(sum.get(*counter))))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let engines = Engine::ALL.map(|engine| (Counter::dropped(engine), engine.name()));
    let why = [
        (Counter::EnginesFailed, "failed"),
        (Counter::EnginesHung, "did not get on"),
        (Counter::EnginesSlow, "slower than promised"),
    ];
    format!("{}: {}", named(&engines), named(&why))
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, value: &str, more: &str) -> fmt::Result {
    writeln!(f, "{}", format!("  {label:<34}{value:>12}  {more}").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_were_given_up_are_named_with_the_reason() {
        use faultless_mm::page::Page;
        let page = Page::new();
        page.start(7, 0);
        let text = || {
            let values = COUNTERS.iter().enumerate().map(|(i, _)| page.block.iter().map(|b| b.get(i)).sum());
            given_up(&Counters::from_values(7, values))
        };
        page.block[0].add(Counter::dropped(Engine::Dsa), 1);
        page.block[1].add(Counter::EnginesHung, 1);
        assert_eq!(text(), "Intel DSA: did not get on");
        page.block[2].add(Counter::dropped(Engine::Stream32), 2);
        page.block[2].add(Counter::EnginesSlow, 2);
        assert_eq!(
            text(),
            "AVX2 non-temporal (2 times), Intel DSA: did not get on, slower than promised (2 times)"
        );
    }
}
