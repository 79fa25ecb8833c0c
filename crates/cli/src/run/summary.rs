//! What is said at the end: what was counted, and nothing that was not. What a run gained is for `--compare` to measure.
//!
//! As text, and with `--json FILE` as one object, `version` 3:
//!
//! | field | meaning |
//! |---|---|
//! | `version` | of this table; a field that is gone or changes its meaning makes it grow |
//! | `command` | the program and its arguments |
//! | `exit_status` | as the shell gives it: 128 and the signal for a killed program |
//! | `signal` | the signal that killed it, or null |
//! | `wall_s`, `user_s`, `system_s` | time from start to end, and used up in the program and the kernel |
//! | `max_rss_bytes` | most memory resident at once, in the largest process that was waited for |
//! | `minor_faults`, `major_faults` | page faults taken by all of them |
//! | `covered` | whether the program itself was covered; null: that is not known |
//! | `not_covered` | why it was not, or why that is not known; null if it was |
//! | `lost` | whether a process was covered that could not leave its counters: of another user, or where nothing could be written |
//! | `unreadable` | what is wrong with counters pages that could not be read |
//! | `ahead` | null where nothing of it was looked at, else what became of memory that was touched or moved ahead: |
//! | `.seen_bytes`, `.used_bytes` | looked at, and of that used by the program, both by samples |
//! | `files` | null without `--files`, else what became of the files: |
//! | `.files`, `.bytes` | how many were named, and what they hold |
//! | `.brought_bytes`, `.cached_bytes`, `.hole_bytes` | brought into memory, there before (null: not known), holes |
//! | `.seconds` | from the program's start until the last piece was there, or until the program's end |
//! | `.stopped` | why the rest was left to the program, or null |
//! | `.skipped` | files that were not brought, or in part: `file` and `why` |
//! | `programs` | of each name: `served_processes`, `plain_processes`, `plain` (why), `requests`, `bytes`, `ready_bytes`, `ahead_bytes`, `left` |
//! | `processes` | each process that has counters, served or not: `pid`, `name` and `counters`; of those that ended, the last 1000 |
//! | `folded_processes` | how many ended before these; `programs` and `totals` have what they counted |
//! | `totals` | the counters, summed |
//!
//! Counters are objects from name to number; names and meanings are those of `faultless_page::stats::COUNTERS`. A
//! process that replaces its program by another (exec) goes on counting where it was.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use faultless_base::zero::Engine;
use faultless_page::stats::{COUNTERS, Counter};
use serde::Serialize;

use super::child::{End, Outcome};
use super::files::Report;
use super::options::Args;
use super::reason::{Known, Reason};
use super::tree::{Program, Tree, programs};
use super::worth;
use crate::profile::Requests;
use faultless_measure::figures::{seconds, size, wrap};
use faultless_measure::pages::{Counters, Dir, shown};

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
    covered: Option<bool>,
    not_covered: Option<String>,
    lost: bool,
    unreadable: Vec<String>,
    ahead: Option<Ahead>,
    files: Option<Report>,
    programs: Vec<Program>,
    processes: Vec<Process>,
    folded_processes: usize,
    totals: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    sum: Counters,
    #[serde(skip)]
    served: usize,
    /// Every process is named.
    #[serde(skip)]
    pages: Option<Vec<Counters>>,
}

/// What became of memory that was brought ahead of the program. It does not say how many faults that spared. Most
/// faults are spared by huge pages and by memory that is used again, and a program may have huge pages of its own.
/// `--compare` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Ahead {
    seen_bytes: u64,
    used_bytes: u64,
}

impl Ahead {
    /// `None` where nothing was looked at.
    fn new(sum: &Counters) -> Option<Self> {
        let (seen, unused) = (sum.get(Counter::BytesAheadSeen), sum.get(Counter::BytesAheadUnused));
        (seen > 0).then_some(Self { seen_bytes: seen, used_bytes: seen.saturating_sub(unused) })
    }
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    name: String,
    counters: BTreeMap<&'static str, u64>,
}

fn named(counters: &Counters) -> BTreeMap<&'static str, u64> {
    COUNTERS.iter().map(|declared| declared.name).zip(*counters.values()).collect()
}

impl Summary {
    /// Reads the counters in `dir` and puts everything together.
    pub fn new(args: &Args, pid: i32, outcome: Outcome, dir: io::Result<Dir>, files: Option<Report>) -> Self {
        let (pages, unreadable) = match dir.as_ref().map(Dir::read) {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => (Vec::new(), vec![format!("no place for counters: {error}")]),
            Err(error) => (Vec::new(), vec![format!("no place for counters: {error}")]),
        };
        let own = pages.iter().find(|page| page.pid == pid as u32);
        let is_covered = own.is_some_and(Counters::is_served);
        let known = Known { args, page: own, evidence: &outcome.evidence, dir: dir.as_ref() };
        let lost = dir.as_ref().is_ok_and(Dir::has_lost);
        let reason = (!is_covered).then(|| known.reason());
        let folded = dir.as_ref().map(Dir::folded).unwrap_or_default();
        let served = pages.iter().filter(|page| page.is_served()).count() + folded.served();
        let what = if served == 0 && !lost { "Nothing" } else { "Of the program itself, nothing" };
        let sum = folded.with(&pages);
        let Outcome { end, wall, usage, .. } = outcome;
        Self {
            version: 3,
            command: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_status: end.shell(),
            signal: if let End::Signal(signal) = end { Some(signal) } else { None },
            wall_s: wall.as_secs_f64(),
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            max_rss_bytes: usage.max_rss,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            covered: reason.as_ref().map_or(Some(true), Reason::is_covered),
            not_covered: reason.map(|reason| reason.text(what)),
            lost,
            unreadable,
            ahead: Ahead::new(&sum),
            files,
            programs: programs(&pages, &folded),
            folded_processes: folded.processes(),
            processes: pages
                .iter()
                .map(|page| Process { pid: page.pid, name: page.name.clone(), counters: named(page) })
                .collect(),
            totals: named(&sum),
            sum,
            served,
            pages: args.tree.then_some(pages),
        }
    }

    /// The large requests of all processes, served or not, as far as they are known.
    pub fn requests(&self) -> Requests {
        match self.lost || !self.unreadable.is_empty() {
            true => Requests::Many,
            false => worth::requests(&self.programs, &self.sum, self.user_s + self.system_s),
        }
    }

    /// Processor time in µs, without what was done in the background of the programs.
    pub fn own_cpu_us(&self) -> u64 {
        let background_ns = self.sum.get(Counter::TouchNs) + self.sum.get(Counter::ScrubNs);
        let all_us = (self.user_s + self.system_s) * 1e6;
        (all_us as u64).saturating_sub(background_ns / 1000)
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
        let bytes = get(Counter::MmapBytes) + get(Counter::MallocBytes);
        row(f, "memory handed out", &size(bytes), &format!("in {requests} requests"))?;
        // A large block has whole slots, and many small ones share one.
        row(f, "slots of 2 MiB taken for that", &size(all), "")?;
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
        if let Some(ahead) = &self.ahead {
            let of = format!("of {}, by samples", size(ahead.seen_bytes));
            row(f, "  seen to be used (not all zeroes)", &size(ahead.used_bytes), &of)?;
        }
        if get(Counter::BytesMovedAhead) > 0 {
            let windows = match get(Counter::MoveWindows) {
                0 => "slot by slot".into(),
                n => format!("in {n} windows, and slot by slot"),
            };
            row(f, "moved ahead of the program", &size(get(Counter::BytesMovedAhead)), &windows)?;
        }
        if get(Counter::MovesRefused) > 0 {
            row(f, "nothing moved ahead (mapped)", "", "no userfaultfd: see doctor")?;
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
        let served = match (self.served, self.covered) {
            (0, Some(false)) if self.unreadable.is_empty() && !self.lost => "nothing covered".to_owned(),
            (0, _) => "what was covered is not known".to_owned(),
            (1, _) => "1 process covered".to_owned(),
            (n, _) => format!("{n} processes covered"),
        };
        let times = [self.wall_s, self.user_s, self.system_s].map(seconds);
        writeln!(f, "faultless: {served}; {} wall, {} user, {} system", times[0], times[1], times[2])?;
        if let Some(reason) = &self.not_covered {
            writeln!(f, "{}", wrap(&shown(reason), "  "))?;
        }
        // Of the program itself that is said above.
        if self.lost && self.covered == Some(self.not_covered.is_none()) {
            let lost = "A process was covered that could not leave its counters here: of another user, or where nothing could \
                        be written. It is missing below.";
            writeln!(f, "{}", wrap(lost, "  "))?;
        }
        for wrong in &self.unreadable {
            writeln!(f, "{}", wrap(&shown(&format!("Counters of a process are missing: {wrong}.")), "  "))?;
        }
        if self.served > 0 {
            self.sources(f)?;
        }
        for [label, value, more] in self.files.iter().flat_map(Report::rows) {
            row(f, &label, &value, &shown(&more))?;
        }
        let major = format!("and {} that waited for input", self.major_faults);
        row(f, "page faults taken", &self.minor_faults.to_string(), &major)?;
        if !self.processes.is_empty() {
            self.left(f)?;
        }
        row(f, "peak resident memory", &size(self.max_rss_bytes), "of the largest process")?;
        let tree = match &self.pages {
            Some(pages) => Tree::Processes(pages).to_string(),
            None => Tree::Programs(&self.programs).to_string(),
        };
        tree.lines().try_for_each(|line| writeln!(f, "  {line}"))
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
    fn what_was_used_is_what_was_not_seen_unused() {
        let sum = |seen: u64, unused: u64| {
            let mut values = [0; faultless_page::stats::COUNT];
            values[Counter::BytesTouchedLent as usize] = 64 << 20;
            values[Counter::BytesAheadSeen as usize] = seen;
            values[Counter::BytesAheadUnused as usize] = unused;
            Ahead::new(&Counters::from_values(7, values.into_iter())).map(|ahead| ahead.used_bytes)
        };
        assert_eq!(sum(0, 0), None);
        assert_eq!(sum(8 << 20, 8 << 20), Some(0));
        assert_eq!(sum(8 << 20, 6 << 20), Some(2 << 20));
    }

    #[test]
    fn engines_that_were_given_up_are_named_with_the_reason() {
        use faultless_page::layout::Page;
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
