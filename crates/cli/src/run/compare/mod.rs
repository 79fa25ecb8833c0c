//! `--compare N`: the program plain and under faultless, N times each, in pairs.
//!
//! The first of a pair is plain and faultless by turns, so that what the first leaves behind (warm caches, a warm
//! processor) helps both alike. Every run reads the same standard input: a file, the bytes of a pipe, or nothing. Its
//! output and its end are compared byte for byte with the first plain run. How ratios are made:
//! [`faultless_measure::paired`].
//!
//! `--json FILE` gets an object:
//!
//! | field | value |
//! |---|---|
//! | `version` | 2 |
//! | `command`, `pairs`, `wanted_pairs`, `interrupted` | |
//! | `same` | for `output`, `error_output` and `end`: `same`, `differs`, or `varies` where plain runs differ among themselves |
//! | `differences` | in words |
//! | `covered`, `not_covered` | as without --compare, of the last run |
//! | `memory` | `before` and `after` the runs: `first_touch_ns` and `second_touch_ns` of 4 KiB, `warm`; or null |
//! | `programs` | as without, of all runs |
//! | `wall_s`, `user_s`, `system_s`, `minor_faults`, `max_rss_bytes` | see below |
//!
//! Each of the last ones has `plain` and `faultless` (median, min, max), `runs` (both figures of each pair) and
//! `ratio`. A ratio is null if a run took none; else it has ratio, low, high and verdict. `wall_s` is without the time
//! for which the program was stopped.

mod metrics;
mod output;
mod report;
mod runs;

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use faultless_page::knobs::Knob;
use serde::Serialize;

use super::child::{End, Outcome};
use super::complain;
use super::options::Args;
use super::reason::{Known, Reason};
use super::sys;
use super::tree::{Program, Tree, programs};
use crate::replaced::Replaced;
use faultless_measure::costs::Warmth;
use faultless_measure::pages::{Counters, Dir};
use metrics::{METRICS, Row};
use output::{Finding, Outputs};
use runs::{Run, Runner, Way};

/// Memory that is touched to see whether it is warm.
const TOUCHED: usize = 64 << 20;

#[derive(Serialize)]
struct Touch {
    first_touch_ns: f64,
    second_touch_ns: f64,
    warm: bool,
}

impl Touch {
    fn measure() -> Option<Self> {
        let warmth = Warmth::measure(TOUCHED)?;
        let warm = warmth.is_warm();
        Some(Self { first_touch_ns: warmth.first_ns, second_touch_ns: warmth.second_ns, warm })
    }

    fn words(&self) -> String {
        let name = if self.warm { "warm" } else { "cold" };
        format!(
            "{name} ({:.0} ns for the first touch of 4 KiB, {:.0} for the second)",
            self.first_touch_ns, self.second_touch_ns
        )
    }
}

/// Whether memory was there, or had to be brought by a hypervisor.
#[derive(Serialize)]
struct Memory {
    before: Touch,
    after: Touch,
}

impl Memory {
    fn words(&self) -> String {
        format!("Memory was {} before the runs, {} after them.", self.before.words(), self.after.words())
    }
}

#[derive(Serialize)]
struct Comparison {
    version: u32,
    command: Vec<String>,
    pairs: usize,
    #[serde(rename = "wanted_pairs")]
    wanted: u32,
    interrupted: bool,
    same: BTreeMap<&'static str, &'static str>,
    differences: Vec<String>,
    covered: Option<bool>,
    not_covered: Option<String>,
    memory: Option<Memory>,
    programs: Vec<Program>,
    #[serde(flatten)]
    rows: BTreeMap<&'static str, Row>,
    #[serde(skip)]
    findings: [Finding; 3],
    /// Runs under faultless that do not count.
    #[serde(skip)]
    more_covered: usize,
    #[serde(skip)]
    tree: String,
    /// A run was ended for what it wrote: its output goes to files here.
    #[serde(skip)]
    too_long: bool,
}

/// Files that the comparison is written to, opened before anything runs.
struct Exports(Vec<(PathBuf, Replaced, Format)>);

#[derive(Clone, Copy)]
enum Format {
    Json,
    Csv,
    Markdown,
}

impl Exports {
    fn open(args: &Args) -> Result<Self> {
        let wanted = [
            (&args.json, Format::Json),
            (&args.export_csv, Format::Csv),
            (&args.export_markdown, Format::Markdown),
        ];
        let open = |(path, format): (&Path, Format)| Ok((path.to_owned(), Replaced::open(path)?, format));
        let all = wanted.into_iter().filter_map(|(path, format)| Some((path.as_deref()?, format)));
        let files: Vec<(PathBuf, Replaced, Format)> = all.map(open).collect::<Result<_>>()?;
        let mut known = HashSet::new();
        for (path, file, _) in &files {
            // A pipe or a terminal takes one after the other.
            let about = file.about()?;
            if about.is_file() && !known.insert((about.dev(), about.ino())) {
                bail!("{} cannot hold two reports: name a file for each", path.display());
            }
        }
        Ok(Self(files))
    }

    /// Writes all that can be written; the first error.
    fn write(self, comparison: &Comparison, outcomes: &[(Outcome, Outcome)]) -> Result<()> {
        let write = |(path, mut file, format): (PathBuf, Replaced, Format)| {
            let about = file.about()?;
            // Nothing was measured.
            if outcomes.is_empty() && about.is_file() && about.len() > 0 {
                return Ok(());
            }
            let text = match format {
                Format::Json => serde_json::to_string_pretty(comparison)? + "\n",
                Format::Csv => report::csv(outcomes),
                Format::Markdown => comparison.markdown(),
            };
            file.write(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        };
        let done: Vec<Result<()>> = self.0.into_iter().map(write).collect();
        done.into_iter().collect()
    }
}

#[derive(Default)]
struct Done {
    outcomes: Vec<(Outcome, Outcome)>,
    outputs: Outputs,
    /// The signal that ended them early.
    interrupted: Option<i32>,
    /// What else ended them early.
    failed: Option<anyhow::Error>,
    /// The process of the last run under faultless.
    last: u32,
}

/// Makes the runs: those before that do not count, and the pairs. What was measured before an error is not lost.
fn run_all(runner: &Runner, args: &Args, pairs: u32) -> Result<Done> {
    let mut done = Done::default();
    match run_into(&mut done, runner, args, pairs) {
        Err(error) if done.outcomes.is_empty() => Err(error),
        Err(error) => Ok(Done { failed: Some(error), ..done }),
        Ok(()) => Ok(done),
    }
}

fn run_into(done: &mut Done, runner: &Runner, args: &Args, pairs: u32) -> Result<()> {
    // The first run of all has to be plain: the others are compared with it.
    for pair in (0..args.warmup).map(|_| None).chain((0..pairs).map(Some)) {
        let (mut outcomes, mut last) = ([None, None], 0);
        for way in Way::of_pair(pair.unwrap_or(0)) {
            match runner.run(way)? {
                Run::Interrupted(signal) => {
                    done.interrupted = Some(signal);
                    return Ok(());
                }
                Run::Done(run) => {
                    let (pid, outcome, captured) = *run;
                    done.outputs.add(way == Way::Plain, captured, outcome.end)?;
                    if way == Way::Faultless {
                        last = pid as u32;
                    }
                    outcomes[(way == Way::Faultless) as usize] = Some(outcome);
                }
            }
        }
        if let ([Some(plain), Some(faultless)], Some(_)) = (outcomes, pair) {
            done.outcomes.push((plain, faultless));
            done.last = last;
        }
    }
    if done.outputs.is_undecided() {
        match runner.run(Way::Plain)? {
            Run::Interrupted(signal) => done.interrupted = Some(signal),
            Run::Done(run) => {
                let (_, outcome, captured) = *run;
                done.outputs.add(true, captured, outcome.end)?;
            }
        }
    }
    Ok(())
}

/// Runs the pairs and prints the comparison. The end is the program's, or status 1 if the two ways did not do the same.
pub fn main(args: &Args, pairs: u32) -> Result<End> {
    let exports = Exports::open(args)?;
    let runner = Runner::new(args)?;
    let before = Touch::measure();
    let mut done = run_all(&runner, args, pairs)?;
    let failed = done.failed.take();
    let is_early = failed.is_some() || done.interrupted.is_some();
    let after = if !is_early { Touch::measure() } else { None };
    let memory = before.zip(after).map(|(before, after)| Memory { before, after });
    let comparison =
        Comparison { interrupted: is_early, ..Comparison::new(args, pairs, &done, memory, &runner.dir) };
    let text = if args.is_on(Knob::Quiet) { String::new() } else { comparison.text() };
    let said = match super::print(&text) {
        // Its reader wants no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        said => said.context("cannot write the comparison"),
    };
    let written = exports.write(&comparison, &done.outcomes).and(said);
    if let Some(error) = failed {
        return Err(error);
    }
    written?;
    if let Some(signal) = done.interrupted {
        return Ok(End::Signal(signal));
    }
    let headline = comparison.headline();
    if headline.is_empty() {
        return Ok(done.outcomes.last().map_or(End::Status(0), |(_, faultless)| faultless.end));
    }
    complain("the program does not do the same under faultless: see above");
    Ok(End::Status(1))
}

impl Comparison {
    fn new(args: &Args, wanted: u32, done: &Done, memory: Option<Memory>, dir: &std::io::Result<Dir>) -> Self {
        let rows = METRICS.iter().map(|metric| {
            let value = metric.value;
            let runs = done.outcomes.iter().map(|(plain, faultless)| (value(plain), value(faultless)));
            (metric.name, Row::new(runs.collect()))
        });
        let pages = dir.as_ref().ok().and_then(|dir| dir.read().ok()).map_or_else(Vec::new, |(pages, _)| pages);
        let reason = done.outcomes.last().and_then(|(_, outcome)| {
            let own = pages.iter().find(|page| page.pid == done.last);
            let known = Known { args, page: own, evidence: &outcome.evidence, dir: dir.as_ref() };
            (!own.is_some_and(Counters::is_served)).then(|| known.reason())
        });
        let folded = dir.as_ref().map(Dir::folded).unwrap_or_default();
        let programs = programs(&pages, &folded);
        let lost = dir.as_ref().is_ok_and(Dir::has_lost);
        let is_other = lost || programs.iter().any(|program| program.served_processes > 0);
        let what = if is_other { "Of the program itself, nothing" } else { "Nothing" };
        let tree = if args.tree { Tree::Processes(&pages) } else { Tree::Programs(&programs) };
        let findings = done.outputs.findings();
        let words = |finding: &Finding| match finding {
            Finding::Same => "same",
            Finding::Differs(..) => "differs",
            Finding::Varies => "varies",
        };
        let mut comparison = Self {
            version: 2,
            command: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            pairs: done.outcomes.len(),
            wanted,
            interrupted: done.interrupted.is_some(),
            same: ["output", "error_output", "end"].into_iter().zip(findings.iter().map(words)).collect(),
            differences: Vec::new(),
            covered: reason.as_ref().map_or(Some(!done.outcomes.is_empty()), Reason::is_covered),
            not_covered: reason.map(|reason| reason.text(what)),
            memory,
            tree: tree.to_string(),
            programs,
            rows: rows.collect(),
            findings,
            too_long: sys::limit(libc::RLIMIT_FSIZE).is_some()
                && done.outcomes.iter().any(|(plain, faultless)| {
                    [plain, faultless].iter().any(|outcome| outcome.end.shell() == 128 + libc::SIGXFSZ)
                }),
            more_covered: done.outputs.covered().saturating_sub(done.outcomes.len()),
        };
        comparison.differences = comparison.headline().lines().map(str::to_owned).collect();
        comparison
    }
}
