//! What is aimed at, and what was reached: the lines below the tables.

use super::table;
use faultless_measure::paired::Ratio;

/// Lines, in the order in which they were found.
#[derive(Default)]
pub struct Aims(Vec<(String, bool)>);

impl Aims {
    /// At least `n` times as fast.
    pub fn at_least(&mut self, what: &str, n: f64, ratio: Option<Ratio>) {
        if let Some(ratio) = ratio {
            let line = format!("{what}: {} times as fast, aimed at {n}", table::interval(&ratio));
            self.0.push((line, ratio.value >= n));
        }
    }

    /// No resolved loss beyond a ratio of times.
    pub fn no_loss(&mut self, what: &str, most: f64, ratio: Option<Ratio>) {
        if let Some(ratio) = ratio {
            let line =
                format!("{what}: {} times as long, not to be resolved above {most}", table::interval(&ratio));
            self.0.push((line, ratio.low <= most));
        }
    }

    /// Something else.
    pub fn add(&mut self, line: String, met: bool) {
        self.0.push((line, met));
    }

    /// Says which were reached.
    pub fn print(&self) {
        for (line, met) in &self.0 {
            println!("- {line}: {}", if *met { "met" } else { "missed" });
        }
        println!();
    }
}
