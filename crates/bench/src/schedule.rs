//! Runs the rows: contenders in turns, in an order that is another in each round, within the time there is.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::Contender;
use super::contenders::Contenders;
use super::loops::Outcome;
use super::measure::Sample;
use super::plan::{Context, Launch, Metric, Row, Start};
use super::turns::{Same, order};

/// How long memory lies idle before a cold run: a machine below takes it back within that.
const IDLE: Duration = Duration::from_secs(15);

/// One run that came to its end.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// Which round it belongs to.
    pub round: usize,
    /// What a loop measured itself.
    pub cost: Option<f64>,
    /// What it used.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Run {
    /// The figure that is compared.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Cost | Metric::Bytes => self.cost,
            Metric::Wall => Some(self.sample.wall),
            Metric::System => Some(self.sample.used.system),
            Metric::Peak => self.sample.peak.map(|peak| peak.bytes as f64),
        }
    }
}

/// What became of a row.
#[derive(Debug, Default, serde::Serialize)]
pub struct Results {
    /// Why nothing ran.
    pub missing: Option<String>,
    /// What the program really was.
    pub note: Option<String>,
    /// The runs.
    pub runs: BTreeMap<Contender, Vec<Run>>,
    /// Why a contender has no figure.
    pub failures: BTreeMap<Contender, String>,
    /// What the runs computed.
    #[serde(skip)]
    pub computed: Same<u64>,
}

impl Results {
    /// Takes in one run; one that computed something else than the first of the row is a failure.
    fn add(&mut self, contender: Contender, run: Result<(Run, u64), String>) {
        let failure = match run {
            Ok((run, sum)) => match self.computed.check(sum) {
                Ok(()) => return self.runs.entry(contender).or_default().push(run),
                Err(wrong) => wrong,
            },
            Err(reason) => reason,
        };
        self.runs.remove(&contender);
        self.failures.insert(contender, failure);
    }

    /// One contender's figures with their rounds.
    pub fn values(&self, contender: Contender, metric: Metric) -> Vec<(usize, f64)> {
        let runs = self.runs.get(&contender).map_or(&[][..], Vec::as_slice);
        runs.iter().filter_map(|run| Some((run.round, run.value(metric)?))).collect()
    }
}

/// Runs all rows and returns what became of each, in the same order. `time` is what all may take together; each
/// group of rows runs one round at least.
pub fn run(context: &Context, rows: &[Row], contenders: &Contenders, time: Option<Duration>) -> Vec<Results> {
    let start = Instant::now();
    let mut results: Vec<Results> = rows.iter().map(|_| Results::default()).collect();
    let mut weight_left: f64 = rows.iter().map(|row| row.seconds).sum();
    let groups = groups(rows);
    let progress = Progress { start, groups: groups.len() };
    for (number, members) in groups.iter().enumerate() {
        let weight: f64 = members.iter().map(|index| rows[*index].seconds).sum();
        let share = time.map(|time| {
            let left = time.saturating_sub(start.elapsed()).as_secs_f64();
            Duration::from_secs_f64(left * weight / weight_left)
        });
        weight_left -= weight;
        let group = Group { context, rows, contenders, members };
        group.run(&mut results, share, |round| progress.show(number, &rows[members[0]], round));
    }
    progress.clear();
    results
}

/// Indices of the rows that take turns, in the order of their first.
fn groups(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        match groups.iter_mut().find(|members| rows[members[0]].group == row.group) {
            Some(members) => members.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

struct Group<'a> {
    context: &'a Context,
    rows: &'a [Row],
    contenders: &'a Contenders,
    members: &'a [usize],
}

impl Group<'_> {
    fn run(&self, results: &mut [Results], share: Option<Duration>, show: impl Fn(usize)) {
        let start = Instant::now();
        let launches = self.prepare(results);
        let jobs: Vec<(usize, &Launch, Contender)> = launches
            .iter()
            .flat_map(|(index, launch)| {
                self.contenders.of(&self.rows[*index]).into_iter().map(move |c| (*index, launch, c))
            })
            .collect();
        let rounds = self.members.iter().map(|index| self.rows[*index].rounds).max().unwrap_or(0);
        for round in 0..rounds {
            let spent = start.elapsed();
            if round > 0 && share.is_some_and(|share| spent + spent / round as u32 > share) {
                break;
            }
            show(round);
            for (index, launch, contender) in order(&jobs, round) {
                let row = &self.rows[index];
                if round < row.rounds && !results[index].failures.contains_key(&contender) {
                    if row.is_cold && !self.context.quick {
                        thread::sleep(IDLE);
                    }
                    self.warm(row);
                    let run = self.contenders.run(row, launch, contender);
                    results[index].add(contender, run.and_then(|sample| read(row, launch, round, sample)));
                }
            }
        }
    }

    fn prepare(&self, results: &mut [Results]) -> Vec<(usize, Launch)> {
        let mut launches = Vec::new();
        for index in self.members {
            match (self.rows[*index].prepare)(self.context) {
                Ok(launch) => {
                    results[*index].note = launch.note.clone();
                    launches.push((*index, launch));
                }
                Err(reason) => results[*index].missing = Some(reason),
            }
        }
        launches
    }

    /// Touches as much memory as the row will need. That it failed would show in the figures, not in results.
    fn warm(&self, row: &Row) {
        let most = row.warm;
        if most > 0 && !self.context.quick {
            let row = Row::new("warm", super::plan::Section::Loops, "");
            let launch = Launch::new(&self.context.own, ["loop", "warm", "--size", &most.to_string()]);
            let _ = self.contenders.run(&row, &launch, Contender::Plain);
        }
    }
}

/// The run's figures and its checksum.
pub fn read(row: &Row, launch: &Launch, round: usize, sample: Sample) -> Result<(Run, u64), String> {
    let mut hasher = DefaultHasher::new();
    let mut cost = None;
    match row.start {
        Start::Loop => {
            let outcome: Outcome =
                serde_json::from_str(&sample.output).map_err(|error| format!("no result: {error}"))?;
            cost = Some(outcome.cost);
            outcome.checksum.hash(&mut hasher);
        }
        Start::Program | Start::Run => sample.output.hash(&mut hasher),
    }
    take(&launch.outputs, &mut hasher)?;
    Ok((Run { round, cost, sample }, hasher.finish()))
}

/// Of files that a run wrote.
pub fn checksum(outputs: &[PathBuf]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    take(outputs, &mut hasher)?;
    Ok(hasher.finish())
}

fn take(outputs: &[PathBuf], hasher: &mut DefaultHasher) -> Result<(), String> {
    for path in outputs {
        let text = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::read(path).map_err(text)?.hash(hasher);
        // Who writes nothing must not be judged by what the one before wrote.
        fs::remove_file(path).map_err(text)?;
    }
    Ok(())
}

struct Progress {
    start: Instant,
    groups: usize,
}

impl Progress {
    fn show(&self, group: usize, row: &Row, round: usize) {
        let elapsed = self.start.elapsed().as_secs();
        let line = format!("{elapsed:>4} s  {} of {}: {}, round {}", group + 1, self.groups, row.title, round + 1);
        if stderr().is_terminal() {
            eprint!("\r\x1b[K{}", line.chars().take(78).collect::<String>());
        } else if round == 0 {
            eprintln!("{line}");
        }
        let _ = stderr().flush();
    }

    fn clear(&self) {
        if stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Section;

    fn run_of(round: usize, cost: f64) -> Run {
        Run { round, cost: Some(cost), sample: Sample::default() }
    }

    #[test]
    fn a_different_checksum_is_a_failure_of_that_contender_alone() {
        let mut results = Results::default();
        results.add(Contender::Plain, Ok((run_of(0, 1.0), 7)));
        results.add(Contender::Faultless, Ok((run_of(0, 1.0), 7)));
        results.add(Contender::Faultless, Ok((run_of(1, 1.0), 8)));
        assert_eq!(results.failures[&Contender::Faultless], "wrong result");
        assert!(results.values(Contender::Faultless, Metric::Cost).is_empty());
        assert_eq!(results.values(Contender::Plain, Metric::Cost), [(0, 1.0)]);
    }

    #[test]
    fn rows_of_one_group_take_turns() {
        let row = |id, group| Row::new(id, Section::Loops, "").group(group);
        let rows = [row("a", "x"), row("b", "y"), row("c", "x")];
        assert_eq!(groups(&rows), [vec![0, 2], vec![1]]);
    }
}
