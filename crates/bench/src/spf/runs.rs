//! Runs the programs, and remembers.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use faultless_page::stats::Counter;

use crate::loops::{ENDS, Reached, SpfWay as Way};
use crate::machine::Machine;
use crate::measure::{Sample, measure};
use crate::plan::Context;
use crate::rule::{Found, Verdict};
use crate::turns::{Rounds, Turns, ratio};
use faultless_measure::paired::Ratio;

/// From then on every part makes one round only, so that the whole stays below eight minutes.
const TIME: Duration = Duration::from_secs(430);
const LIMIT: Duration = Duration::from_secs(60);

/// A way, and how many threads do the work.
pub type Case = (Way, usize);

/// As it stands in the tables.
pub fn name(case: Case) -> String {
    format!("{}, {} thread{}", case.0.name(), case.1, if case.1 == 1 { "" } else { "s" })
}

/// One run, for the file of figures.
#[derive(serde::Serialize)]
struct Record {
    table: String,
    way: String,
    threads: usize,
    reached: Option<Reached>,
    used: Sample,
}

/// Runs programs.
pub struct Runs {
    start: Instant,
    /// What they are made for.
    pub context: Context,
    records: Vec<Record>,
}

impl Runs {
    /// None yet.
    pub fn new(context: Context) -> Self {
        Self { start: Instant::now(), context, records: Vec::new() }
    }

    /// `usual` rounds; one in a quick run, three times as many in a full one. Only a full run has no deadline.
    pub fn turns(&self, usual: usize) -> Turns {
        let rounds = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => usual * 3,
            _ => usual,
        };
        Turns { rounds, deadline: (!self.context.full).then_some(self.start + TIME) }
    }

    /// Numbers of threads: one, two, and twice as many as CPUs.
    pub fn threads(&self) -> Vec<usize> {
        let mut all = vec![1, 2, 2 * self.context.cpus];
        all.dedup();
        all
    }

    /// Each of the ways with each number of threads.
    pub fn cases(&self, ways: &[Way]) -> Vec<Case> {
        self.threads().into_iter().flat_map(|threads| ways.iter().map(move |way| (*way, threads))).collect()
    }

    /// Runs a program, and remembers what it used.
    pub fn sample(&mut self, table: &str, way: &str, command: &mut Command) -> Result<Sample, String> {
        let used = measure(command.env_remove("LD_PRELOAD").env("LC_ALL", "C"), LIMIT)?;
        self.records.push(Record {
            table: table.to_owned(),
            way: way.to_owned(),
            threads: 0,
            reached: None,
            used: used.clone(),
        });
        Ok(used)
    }

    /// Runs our program with these words and what the case says.
    pub fn reached(&mut self, table: &str, case: Case, words: &str) -> Result<Reached, String> {
        let (way, threads) = case;
        let name = clap::ValueEnum::to_possible_value(&way).map_or(String::new(), |v| v.get_name().to_owned());
        let seconds = self.context.seconds(0.3);
        let all = format!("loop spf --way {name} --threads {threads} --seconds {seconds} {words}");
        let mut command = Command::new(&self.context.own);
        let used = self.sample(table, way.name(), command.args(all.split_whitespace()))?;
        let reached: Reached = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        if let Some(record) = self.records.last_mut() {
            record.threads = threads;
            record.reached = Some(reached.clone());
        }
        Ok(reached)
    }

    /// Runs the cases in turns.
    pub fn rounds(&mut self, table: &str, cases: &[Case], usual: usize, words: &str) -> Rounds<Case, Reached> {
        self.turns(usual).run(cases, name, |case| self.reached(table, case, words))
    }

    /// All figures.
    pub fn json(&self, machine: &Machine) -> Result<String> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            machine: &'a Machine,
            ends: [&'static str; ENDS.len()],
            runs: &'a [Record],
        }
        let ends = ENDS.map(|counter| counter.declared().name);
        Ok(serde_json::to_string_pretty(&File { machine, ends, runs: &self.records })? + "\n")
    }
}

/// How many times faster one case was than another, round by round.
pub fn speed(rounds: &Rounds<Case, Reached>, case: Case, other: Case) -> Found<Ratio> {
    ratio(rounds, &case, &other, |reached| reached.rate)
}

/// What became of the faults of all rounds of a case, as [`ENDS`].
pub fn ends(rounds: &[Reached]) -> [u64; ENDS.len()] {
    std::array::from_fn(|i| rounds.iter().map(|reached| reached.ends[i]).sum())
}

/// The part of the speculative tries that was given up, in percent. Without a try there is none.
pub fn aborted(ends: &[u64; ENDS.len()]) -> Found<f64> {
    let of = |counter: Counter| ENDS.iter().position(|end| *end == counter).map_or(0, |at| ends[at]);
    let succeeded = of(Counter::SpeculativePgfault);
    let given_up: u64 = ends[2..].iter().sum();
    match given_up + succeeded {
        0 => Err(Verdict::Unresolved("nothing was tried".into())),
        tries => Ok(100.0 * given_up as f64 / tries as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborts_are_a_part_of_the_tries() {
        let once = Reached { ends: [100, 90, 5, 1, 1, 2, 1], ..Reached::default() };
        let ends = ends(&[once.clone(), once]);
        assert_eq!(ends[0], 200);
        assert_eq!(aborted(&ends), Ok(10.0));
        assert!(matches!(aborted(&[7, 0, 0, 0, 0, 0, 0]), Err(Verdict::Unresolved(_))), "nothing was tried");
    }
}
