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
use super::options::Args;
use super::sys::{self, Pages};
use crate::pages::{Counters, Dir};

/// Memory touched to learn what a first touch costs.
const MEASURED: usize = 8 << 20;

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

/// Faults that the program did not have to wait for, and the time of them.
///
/// Memory that was resident when it was handed out, or that was touched in the background, needs no fault; memory
/// with huge pages needs fewer. Each is counted with the cost that a first touch is measured to have here and now,
/// less the time of zeroing in the program's own threads. An estimate, and an upper bound: the program may not have
/// touched all of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    faults_avoided: u64,
    seconds_avoided: f64,
    measured_bytes: usize,
    ordinary_faults: u64,
    ordinary_s: f64,
    huge_faults: u64,
    huge_s: f64,
}

impl Estimate {
    fn new(sum: &Counters) -> Option<Self> {
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

/// `text` in lines of 80 columns at most, each after `indent`.
pub fn wrap(text: &str, indent: &str) -> String {
    wrap_at(text, indent, 80)
}

/// `text` in lines of `columns` columns at most, each after `indent`.
pub fn wrap_at(text: &str, indent: &str, columns: usize) -> String {
    let mut lines = indent.to_owned();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && indent.len() + column + 1 + width > columns {
            lines.push('\n');
            lines.push_str(indent);
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

/// A number of bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value.fract() == 0.0 || value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

/// A time for people.
pub fn seconds(s: f64) -> String {
    match s.abs() {
        0.0 => "0 s".into(),
        a if a < 1e-3 => format!("{:.0} µs", s * 1e6),
        a if a < 1.0 => format!("{:.1} ms", s * 1e3),
        _ => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        let sizes =
            [(0, "0 bytes"), (1023, "1023 bytes"), (64 << 10, "64 KiB"), (1536, "1.50 KiB"), (5 << 40, "5 TiB")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(300 * (1 << 30) + (1 << 29)), "300.5 GiB");
        for (s, text) in
            [(0.0, "0 s"), (5e-6, "5 µs"), (0.0125, "12.5 ms"), (2.345, "2.35 s"), (-0.002, "-2.0 ms")]
        {
            assert_eq!(seconds(s), text);
        }
    }

    #[test]
    fn lines_end_at_80_columns() {
        let text = wrap(&"word ".repeat(40), "  ");
        assert!(text.lines().all(|line| line.len() <= 80 && line.starts_with("  word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
        assert_eq!(text.lines().next().unwrap().len(), 76);
        assert_eq!(wrap(&"x".repeat(100), "").len(), 100);
    }

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

    #[test]
    fn a_first_touch_is_measured() {
        let sum = Counters::sum(&[]);
        let estimate = Estimate::new(&sum).unwrap();
        assert!(estimate.ordinary_faults >= 4 && estimate.huge_faults >= 1, "{estimate:?}");
        assert!(estimate.ordinary_s > 0.0);
        assert_eq!(estimate.faults_avoided, 0);
    }
}
