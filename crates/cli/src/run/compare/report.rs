//! A comparison as text, as a table in Markdown, and as lines of figures.

use std::fmt::Write;

use comfy_table::{Table, presets};

use super::metrics::{Difference, METRICS};
use super::output::{Finding, PARTS};
use super::{Comparison, Memory};
use crate::run::child::Outcome;
use faultless_measure::figures::wrap;
use faultless_measure::pages::shown;
use faultless_measure::paired::{RESOLVING, Spread};

/// A ratio for people.
fn figure(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.5}") } else { format!("{ratio:.3}") }
}

/// What stands between a figure and its range.
#[derive(Clone, Copy)]
enum Cells {
    /// A line each.
    Tall,
    /// All in one line.
    Flat,
}

fn rows(of: &Comparison, cells: Cells) -> Vec<[String; 4]> {
    let with_range = |value: String, low: String, high: String| match cells {
        Cells::Tall => format!("{value}\n{low} .. {high}"),
        Cells::Flat => format!("{value} ({low} .. {high})"),
    };
    let row = |metric: &super::metrics::Metric| {
        let row = &of.rows[metric.name];
        let text = metric.text;
        let spread = |s: Spread| with_range(text(s.median), text(s.min), text(s.max));
        let ratio = |r: Difference| {
            let value = figure(r.ratio) + r.verdict.words();
            match r.low.zip(r.high) {
                Some((low, high)) => with_range(value, figure(low), figure(high)),
                None => value,
            }
        };
        let cells = [row.plain.map(spread), row.faultless.map(spread), row.ratio.map(ratio)];
        let [plain, faultless, ratio] = cells.map(|cell| cell.unwrap_or("-".into()));
        [metric.label.to_owned(), plain, faultless, ratio]
    };
    METRICS.iter().map(row).collect()
}

impl Comparison {
    /// What is different, before everything else; nothing if nothing is.
    pub fn headline(&self) -> String {
        let mut text = String::new();
        for (part, finding) in PARTS.iter().zip(&self.findings) {
            if let Finding::Differs(n, how) = finding {
                let runs = self.pairs + self.more_covered;
                let line = format!(
                    "DIFFERENT: the {part} under faultless is not as plain, in {n} of {runs} runs: {how}."
                );
                text += &(wrap(&line, "") + "\n");
            }
        }
        text
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = self.headline();
        if self.pairs > 0 {
            let mut table = Table::new();
            table.load_preset(presets::NOTHING).set_header(["", "plain", "faultless", "ratio"]);
            table.add_rows(rows(self, Cells::Tall));
            text.extend(table.lines().map(|line| line.trim_end().to_owned() + "\n"));
        }
        for line in self.notes() {
            text += &(wrap(&line, "") + "\n");
        }
        text + &self.tree
    }

    fn notes(&self) -> Vec<String> {
        let (pairs, plural) = (self.pairs, if self.pairs == 1 { "" } else { "s" });
        let meaning = match pairs < RESOLVING {
            true => format!("not enough runs to tell whether the two differ: that takes {RESOLVING} pairs."),
            false => {
                "ratio of the pairs (Hodges-Lehmann), below it its 95 % interval (Wilcoxon's signed ranks); less \
                      and more: 1 is outside of it."
                    .into()
            }
        };
        let mut notes =
            vec![format!("{pairs} pair{plural} of runs, by turns; median, below it min .. max; {meaning}")];
        if self.interrupted {
            notes.insert(0, format!("Interrupted: {pairs} of {} pairs were run.", self.wanted));
        }
        let same: Vec<_> = self.parts(|finding| *finding == Finding::Same);
        if !same.is_empty() && pairs > 0 {
            notes.push(format!("The same in all runs, byte for byte: {}.", same.join(", ")));
        }
        let varies = self.parts(|finding| *finding == Finding::Varies);
        if !varies.is_empty() {
            let what = varies.join(", ");
            notes.push(format!("Not compared, because plain runs differ among themselves: {what}."));
        }
        if self.too_long {
            notes.push(
                "A run was ended because files are limited (ulimit -f): the comparison keeps output in files."
                    .into(),
            );
        }
        notes.extend(self.memory.as_ref().map(Memory::words));
        notes.extend(self.not_covered.as_deref().map(shown));
        notes
    }

    fn parts(&self, of: impl Fn(&Finding) -> bool) -> Vec<&'static str> {
        PARTS.iter().zip(&self.findings).filter(|(_, finding)| of(finding)).map(|(part, _)| *part).collect()
    }

    /// A table in Markdown.
    pub fn markdown(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(["", "plain", "faultless", "ratio"]);
        table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        table.add_rows(rows(self, Cells::Flat));
        let mut text = format!("{table}\n");
        for line in self.headline().lines().map(str::to_owned).chain(self.notes()) {
            text += &format!("\n{line}\n");
        }
        text
    }
}

/// A line for every run that counts.
pub fn csv(outcomes: &[(Outcome, Outcome)]) -> String {
    let mut text = String::from("pair,way,position");
    METRICS.iter().for_each(|metric| text += &format!(",{}", metric.name));
    text += ",end\n";
    for (pair, (plain, faultless)) in outcomes.iter().enumerate() {
        for (way, outcome, first) in [("plain", plain, pair % 2 == 0), ("faultless", faultless, pair % 2 == 1)] {
            let _ = write!(text, "{},{way},{}", pair + 1, if first { 1 } else { 2 });
            METRICS.iter().for_each(|metric| text += &format!(",{}", (metric.value)(outcome)));
            let _ = writeln!(text, ",{}", outcome.end);
        }
    }
    text
}
