//! `--compare N`: the program plain and under faultless, N times each, in pairs.
//!
//! The first of a pair is plain and faultless by turns, so that what the first leaves behind (warm caches, a warm
//! processor) helps both alike. Every run reads /dev/null and writes its output there; what it says on stderr is
//! shown. Nothing is run beforehand: a file's first reading falls to the first pair. How ratios are made: [`crate::paired`].
//!
//! `--json FILE` gets an object: `version` 1, `command`, `pairs`, `statuses_differ` (in how many pairs),
//! `not_covered` (why, or null), and under `wall_s`, `user_s`, `system_s`, `minor_faults` and `max_rss_bytes` each
//! `plain` and `faultless` (median, min, max), `runs` (both figures of each pair) and `ratio` (null if a run took
//! none; else ratio, low, high, verdict).

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;

use super::child::{End, Outcome, Running};
use super::options::{self, Args};
use super::sys::Inherited;
use super::{NotStarted, complain};
use crate::figures::{seconds, size, wrap};
use crate::pages::{Counters, Dir};
use crate::paired::{RESOLVING, Ratio, Spread};

/// Something measured of each run.
struct Metric {
    name: &'static str,
    label: &'static str,
    value: fn(&Outcome) -> f64,
    text: fn(f64) -> String,
}

const METRICS: [Metric; 5] = [
    Metric { name: "wall_s", label: "wall", value: |o| o.wall.as_secs_f64(), text: seconds },
    Metric { name: "user_s", label: "user", value: |o| o.usage.user.as_secs_f64(), text: seconds },
    Metric { name: "system_s", label: "system", value: |o| o.usage.system.as_secs_f64(), text: seconds },
    Metric {
        name: "minor_faults",
        label: "faults",
        value: |o| o.usage.minor_faults as f64,
        text: |n| format!("{n:.0}"),
    },
    Metric {
        name: "max_rss_bytes",
        label: "resident",
        value: |o| o.usage.max_rss as f64,
        text: |n| size(n as u64),
    },
];

/// What the pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Faultless takes less.
    Less,
    /// Faultless takes more.
    More,
    /// The interval holds 1.
    NotResolved,
    /// Fewer than [`RESOLVING`] pairs.
    TooFewRuns,
}

/// The ratio faultless / plain; its interval where there are pairs enough.
#[derive(Clone, Copy, Debug, Serialize)]
struct Difference {
    ratio: f64,
    low: Option<f64>,
    high: Option<f64>,
    verdict: Verdict,
}

impl Difference {
    /// Of pairs (plain, faultless); `None` if a run took none.
    fn of(runs: &[(f64, f64)]) -> Option<Self> {
        let pairs: Vec<_> = runs.iter().map(|(plain, faultless)| (*faultless, *plain)).collect();
        let Ratio { value: ratio, low, high, pairs } = Ratio::of(&pairs).filter(|r| r.pairs == runs.len())?;
        if pairs < RESOLVING {
            return Some(Self { ratio, low: None, high: None, verdict: Verdict::TooFewRuns });
        }
        let verdict = match () {
            () if high < 1.0 => Verdict::Less,
            () if low > 1.0 => Verdict::More,
            () => Verdict::NotResolved,
        };
        Some(Self { ratio, low: Some(low), high: Some(high), verdict })
    }
}

#[derive(Serialize)]
struct Row {
    plain: Option<Spread>,
    faultless: Option<Spread>,
    ratio: Option<Difference>,
    runs: Vec<(f64, f64)>,
}

impl Row {
    fn new(runs: Vec<(f64, f64)>) -> Self {
        let (plain, faultless): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
        Self { plain: Spread::of(&plain), faultless: Spread::of(&faultless), ratio: Difference::of(&runs), runs }
    }
}

#[derive(Serialize)]
struct Comparison {
    version: u32,
    command: Vec<String>,
    pairs: usize,
    statuses_differ: usize,
    not_covered: Option<String>,
    #[serde(flatten)]
    rows: BTreeMap<&'static str, Row>,
}

/// A ratio for people.
fn figure(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.5}") } else { format!("{ratio:.3}") }
}

/// Runs the pairs and prints the comparison. The end is the program's, or status 1 if the two ways ended differently.
pub fn main(args: &Args, pairs: u32) -> Result<End> {
    let library = options::library()?;
    let json = super::json_file(args.json.as_deref())?;
    let inherited = Inherited::read();
    let dir = Dir::create().ok();
    let run = |mut command: Command| -> Result<Outcome> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let running = Running::start(&mut command, inherited).map_err(|error| NotStarted::new(args, &error))?;
        running.wait().context("lost sight of the program")
    };
    let plain = || run(args.command());
    let faultless = || run(args.covered(&library, dir.as_ref().map(Dir::path)));
    let mut outcomes = Vec::new();
    for pair in 0..pairs {
        let first = if pair % 2 == 0 { plain()? } else { faultless()? };
        let second = if first.interrupted {
            first
        } else if pair % 2 == 0 {
            faultless()?
        } else {
            plain()?
        };
        if second.interrupted {
            complain(&format!("interrupted in pair {} of {pairs}", pair + 1));
            return Ok(second.end);
        }
        outcomes.push(if pair % 2 == 0 { (first, second) } else { (second, first) });
    }
    let comparison = Comparison::new(args, &outcomes, dir);
    if !args.is_on(faultless_mm::knobs::Knob::Quiet) {
        comparison.print();
    }
    super::write_json(json, &comparison);
    let Some((plain, faultless)) = outcomes.iter().find(|(plain, faultless)| plain.end != faultless.end) else {
        return Ok(outcomes[0].1.end);
    };
    let (differ, plain, faultless) = (comparison.statuses_differ, plain.end, faultless.end);
    complain(&format!(
        "ended differently in {differ} of {pairs} pairs: plain by {plain}, faultless by {faultless}"
    ));
    Ok(End::Status(1))
}

impl Comparison {
    fn new(args: &Args, outcomes: &[(Outcome, Outcome)], dir: Option<Dir>) -> Self {
        let rows = METRICS.iter().map(|metric| {
            let runs =
                outcomes.iter().map(|(plain, faultless)| ((metric.value)(plain), (metric.value)(faultless)));
            (metric.name, Row::new(runs.collect()))
        });
        let read = dir.and_then(|dir| dir.read().ok());
        let not_covered = read.filter(|(pages, wrong)| wrong.is_empty() && !pages.iter().any(Counters::is_served));
        let left = |pages: &[Counters]| pages.iter().flat_map(Counters::left).map(|(_, n)| n).sum();
        Self {
            version: 1,
            command: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            pairs: outcomes.len(),
            statuses_differ: outcomes.iter().filter(|(plain, faultless)| plain.end != faultless.end).count(),
            not_covered: not_covered.map(|(pages, _)| super::why_not(args, left(&pages))),
            rows: rows.collect(),
        }
    }

    fn print(&self) {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["", "plain", "faultless", "ratio"]);
        for metric in &METRICS {
            let row = &self.rows[metric.name];
            let spread = |s: Spread| {
                format!("{}\n{} .. {}", (metric.text)(s.median), (metric.text)(s.min), (metric.text)(s.max))
            };
            let ratio = |r: Difference| {
                let verdict = match r.verdict {
                    Verdict::Less => " (less)",
                    Verdict::More => " (more)",
                    Verdict::NotResolved => " (not resolved)",
                    Verdict::TooFewRuns => "",
                };
                let interval =
                    r.low.zip(r.high).map(|(low, high)| format!("\n{} .. {}", figure(low), figure(high)));
                figure(r.ratio) + verdict + &interval.unwrap_or_default()
            };
            let cells = [row.plain.map(spread), row.faultless.map(spread), row.ratio.map(ratio)];
            let cells = cells.into_iter().map(|cell| cell.unwrap_or("-".into()));
            table.add_row([metric.label.to_owned()].into_iter().chain(cells));
        }
        let mut text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let (pairs, plural) = (self.pairs, if self.pairs == 1 { "" } else { "s" });
        let meaning = match pairs < RESOLVING {
            true => format!("not enough runs to tell whether the two differ: that takes {RESOLVING} pairs."),
            false => {
                "ratio of the pairs (Hodges-Lehmann), below it its 95 % interval (Wilcoxon's signed ranks); less \
                      and more: 1 is outside of it."
                    .into()
            }
        };
        let legend = format!("{pairs} pair{plural} of runs, by turns; median, below it min .. max; {meaning}");
        text += &(wrap(&legend, "") + "\n");
        if let Some(reason) = &self.not_covered {
            text += &(wrap(&format!("Nothing was covered: {reason}."), "") + "\n");
        }
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_resolved_only_when_they_are() {
        let of = |ratios: &[f64]| Difference::of(&ratios.iter().map(|r| (2.0, 2.0 * r)).collect::<Vec<_>>());
        let verdict = |ratios: &[f64]| of(ratios).unwrap().verdict;
        assert_eq!(verdict(&[0.5, 0.52, 0.48, 0.51, 0.5, 0.5]), Verdict::Less);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 2.05, 2.0]), Verdict::More);
        assert_eq!(verdict(&[0.5, 2.0, 0.9, 1.2, 1.0, 1.1]), Verdict::NotResolved);
        assert_eq!(verdict(&[1.0; 9]), Verdict::NotResolved);
        let few = of(&[0.5; 5]).unwrap();
        assert_eq!((few.verdict, few.low, few.high), (Verdict::TooFewRuns, None, None));
        assert!((few.ratio - 0.5).abs() < 1e-9);
        // A run of fifteen that somebody else disturbed does not hide what the others say.
        let mut disturbed = [0.5; 15];
        disturbed[3] = 20.0;
        assert_eq!(verdict(&disturbed), Verdict::Less);
    }

    #[test]
    fn a_run_that_took_none_has_no_ratio() {
        assert!(Difference::of(&[(1.0, 1.0), (0.0, 1.0)]).is_none() && Difference::of(&[]).is_none());
    }
}
