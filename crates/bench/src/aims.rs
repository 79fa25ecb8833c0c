//! What is aimed at, and what was reached: the lines below the tables. [`rule`](super::rule) judges them.

use super::rule::{Aim, Judged, Reached, Verdict, judge};
use super::table;
use faultless_measure::paired::{Estimate, Ratio};

/// Lines, in the order in which they were found.
#[derive(Default)]
pub struct Aims(Vec<(String, Judged)>);

impl Aims {
    /// At least `n` times as fast.
    pub fn at_least(&mut self, what: &str, n: f64, ratio: Option<Ratio>) {
        if let Some(ratio) = ratio {
            let line = format!("{what}: {} times as fast, aimed at {n}", table::interval(&ratio));
            self.0.push((line, judge(Aim::AtLeast(n), ratio)));
        }
    }

    /// At most `n` times as long.
    pub fn at_most(&mut self, what: &str, n: f64, ratio: Option<Ratio>) {
        if let Some(ratio) = ratio {
            let line = format!("{what}: {} times as long, aimed at {n} at most", table::interval(&ratio));
            self.0.push((line, judge(Aim::AtMost(n), ratio)));
        }
    }

    /// A figure of all rounds, in words of the caller's.
    pub fn figure(&mut self, line: String, values: &[f64], aim: Aim) {
        if let Some(estimate) = Estimate::of(values) {
            self.0.push((line, judge(aim, estimate)));
        }
    }

    /// Something that is counted, or that is no measurement.
    pub fn counted(&mut self, line: String, value: f64, aim: Aim) {
        self.0.push((line, judge(aim, Reached::counted(value))));
    }

    /// Something that did not come about.
    pub fn failed(&mut self, line: &str) {
        self.0.push((line.into(), Judged::without_figure(Verdict::Missed)));
    }

    /// Says which were reached.
    pub fn print(&self) {
        for (line, judged) in &self.0 {
            println!("- {line}: {judged}");
        }
        println!();
    }
}
