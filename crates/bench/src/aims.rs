//! What is aimed at, and what was reached: the lines below the tables. [`rule`](super::rule) judges them.

use super::format;
use super::rule::{Aim, Found, Judged, Reached, Verdict, judge};
use faultless_measure::paired::{Estimate, Ratio};

/// Lines, in the order in which they were found.
#[derive(Default, serde::Serialize)]
pub struct Aims(Vec<Line>);

#[derive(serde::Serialize)]
struct Line {
    line: String,
    #[serde(flatten)]
    judged: Judged,
}

impl Aims {
    /// At least `n` times as fast.
    pub fn at_least(&mut self, what: &str, n: f64, ratio: Found<Ratio>) {
        self.ratio(what, &format!("times as fast, aimed at {n}"), Aim::AtLeast(n), ratio);
    }

    /// At most `n` times as long.
    pub fn at_most(&mut self, what: &str, n: f64, ratio: Found<Ratio>) {
        self.ratio(what, &format!("times as long, aimed at {n} at most"), Aim::AtMost(n), ratio);
    }

    fn ratio(&mut self, what: &str, aimed: &str, aim: Aim, ratio: Found<Ratio>) {
        match ratio {
            Ok(ratio) => {
                self.push(format!("{what}: {} {aimed}", format::interval(&ratio)), judge(aim, ratio));
            }
            Err(verdict) => self.without_figure(format!("{what}: ? {aimed}"), verdict),
        }
    }

    /// Seconds of each round, at most these.
    pub fn seconds(&mut self, what: &str, most: f64, values: Found<Vec<f64>>) {
        let aimed = format!("aimed at {} at most", format::seconds(most));
        match values.and_then(|values| Estimate::of(&values).ok_or(Verdict::no_figure("it"))) {
            Ok(estimate) => {
                let line = format!("{what}: {}, {aimed}", format::estimate(&estimate, format::seconds));
                self.push(line, judge(Aim::AtMost(most), Reached::shown(&estimate, format::seconds)));
            }
            Err(verdict) => self.without_figure(format!("{what}: ?, {aimed}"), verdict),
        }
    }

    /// Something that is counted, or that is no measurement.
    pub fn counted(&mut self, line: String, value: f64, aim: Aim) {
        self.push(line, judge(aim, Reached::counted(value)));
    }

    /// Something that has no figure, because it did not come about or cannot be said.
    pub fn without_figure(&mut self, line: impl Into<String>, verdict: Verdict) {
        self.push(line.into(), Judged::without_figure(verdict));
    }

    fn push(&mut self, line: String, judged: Judged) {
        self.0.push(Line { line, judged });
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|Line { line, judged }| format!("- {line}: {judged}"))
    }

    /// Says which were reached.
    pub fn print(&self) {
        self.lines().for_each(|line| println!("{line}"));
        println!();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_named_even_if_what_it_is_for_has_no_figure() {
        let mut aims = Aims::default();
        aims.at_most("a", 1.01, Err(Verdict::Missed));
        aims.at_least("b", 2.0, Err(Verdict::no_figure("the other")));
        aims.seconds("c", 1e-3, Err(Verdict::Missed));
        aims.seconds("d", 1e-3, Ok(Vec::new()));
        let lines: Vec<_> = aims.lines().collect();
        let expected = [
            "- a: ? times as long, aimed at 1.01 at most: **missed**",
            "- b: ? times as fast, aimed at 2: unresolved: no figure for the other",
            "- c: ?, aimed at 1.00 ms at most: **missed**",
            "- d: ?, aimed at 1.00 ms at most: unresolved: no figure for it",
        ];
        assert_eq!(lines, expected);
    }
}
