//! `faultless bench files`: programs that read files by mmap, which the page cache does not have yet.
//!
//! Before each run the pages of the files are dropped from the page cache, but for the rows of files that are there.

mod rows;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use faultless_measure::paired::Spread;
use faultless_page::knobs::Knob;

use super::aims::Aims;
use super::huge::Huge;
use super::measure::{Sample, measure};
use super::parts::{self, Session};
use super::plan::Context;
use super::read_ahead::{Ahead, ReadAhead, USUAL, drop_pages};
use super::table::{self, NOTHING};
use super::turns::{Rounds, Turns, ratio};
use rows::{Row, walks};

/// How long a run may take, and the rounds of one row.
const LIMIT: Duration = Duration::from_secs(120);
const ROW: Duration = Duration::from_secs(30);
const ROUNDS: usize = 6;
/// How far is read ahead in the ways that do.
const AHEAD: &str = "64M";

/// Options of `faultless bench files`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    parts: parts::Options<Part>,
    #[command(flatten)]
    place: parts::Place,
    /// The Python of the rows, which may have NumPy, PyArrow and safetensors.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A loop that reads a file in several orders, with the device's read-ahead as it is.
    Walks,
    /// The same with 128 KiB of read-ahead.
    Usual,
    /// The same of a file that is in the page cache.
    Cached,
    /// Real programs, with the device's read-ahead as it is.
    Programs,
    /// The same with 128 KiB of read-ahead.
    ProgramsUsual,
}

/// Who runs a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Huge,
    Advice,
    Run,
    Again,
    Ahead,
    Files,
}

impl Way {
    const ALL: [Way; 7] = [Way::Plain, Way::Huge, Way::Advice, Way::Run, Way::Again, Way::Ahead, Way::Files];

    fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Huge => "huge pages always",
            Way::Advice => "best advice",
            Way::Run => "run",
            Way::Again => "run, seen before",
            Way::Ahead => "run, file_ahead=64M",
            Way::Files => "run --files",
        }
    }

    fn is_covered(self) -> bool {
        matches!(self, Way::Run | Way::Again | Way::Ahead | Way::Files)
    }
}

struct Runs {
    context: Context,
    /// Where the files are.
    dir: PathBuf,
    huge: Option<Huge>,
    records: Vec<(String, BTreeMap<&'static str, Vec<Sample>>)>,
}

impl Runs {
    /// What can run a row.
    fn ways(&self, row: &Row) -> Vec<Way> {
        let can = |way: &Way| match way {
            Way::Huge => row.is_program && self.huge.is_some(),
            Way::Again => row.is_program,
            Way::Advice => row.advised.is_some(),
            _ => true,
        };
        Way::ALL.into_iter().filter(can).collect()
    }

    fn command(&self, row: &Row, way: Way) -> Command {
        let c = &self.context;
        let launch = row.advised.as_ref().filter(|_| way == Way::Advice).unwrap_or(&row.launch);
        let mut command = if way.is_covered() { Command::new(&c.exe) } else { Command::new(&launch.program) };
        if way.is_covered() {
            command.args(["run", "--quiet"]);
            if way == Way::Files {
                command.arg("--files").arg(&row.files);
            }
            command.arg("--").arg(&launch.program);
            command.env("XDG_CACHE_HOME", self.context.dir.join("seen"));
            command.env("FAULTLESS_PROFILE", if way == Way::Again { "1" } else { "0" });
        }
        if way == Way::Ahead {
            command.env(Knob::FileAhead.declared().variable, AHEAD);
        }
        command.args(&launch.args).env_remove("LD_PRELOAD").env("LC_ALL", "C").env("FAULTLESS_WARM", "");
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        command
    }

    fn once(&self, row: &Row, way: Way, is_cached: bool) -> Result<Sample, String> {
        if way == Way::Again {
            // What a program did is noted at its end.
            measure(&mut self.command(row, way), LIMIT)?;
        }
        if !is_cached {
            drop_pages(&self.dir).map_err(|error| error.to_string())?;
        }
        let _always = match (&self.huge, way) {
            (Some(huge), Way::Huge) => Some(huge.always().map_err(|error| error.to_string())?),
            _ => None,
        };
        measure(&mut self.command(row, way), LIMIT)
    }

    fn rounds(&self, row: &Row, is_cached: bool) -> Result<Rounds<Way, Sample>, String> {
        // One run that does not count: programs and libraries are in memory from then on.
        let first = self.once(row, Way::Plain, is_cached)?;
        let rounds = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => ROUNDS * 2,
            _ => ROUNDS,
        };
        let deadline = (!self.context.full).then(|| Instant::now() + ROW);
        let same = |sample: Sample| match row.outcome(&sample.output) == row.outcome(&first.output) {
            true => Ok(sample),
            false => Err(format!("it printed something else than plain: {}", sample.output.trim())),
        };
        Ok(Turns { rounds, deadline }.run(
            &self.ways(row),
            |way| format!("{}, {}", row.title, way.name()),
            |way| self.once(row, way, is_cached).and_then(same),
        ))
    }

    /// One table; rows that cannot be made say why.
    fn table(&mut self, heading: &str, rows: Vec<Result<Row, String>>, is_cached: bool, aims: &mut Aims) {
        let mut table = table::new_table(&["work", "way", "wall", "user", "sys", "faults", "to plain"]);
        for row in rows {
            let row = match row {
                Ok(row) => row,
                Err(why) => {
                    println!("{why}\n");
                    continue;
                }
            };
            eprintln!("    {}", row.title);
            let rounds = self.rounds(&row, is_cached).unwrap_or_else(|why| {
                println!("{}: {why}\n", row.title);
                Rounds::default()
            });
            add_rows(&mut table, &row, &rounds);
            judge(aims, heading, &row, &rounds, is_cached);
            let named = rounds.into_iter().map(|(way, samples)| (way.name(), samples));
            self.records.push((format!("{heading}: {}", row.title), named.collect()));
        }
        println!("### {heading}\n\n{table}\n");
    }
}

fn add_rows(table: &mut comfy_table::Table, row: &Row, rounds: &Rounds<Way, Sample>) {
    for (way, samples) in rounds {
        let [wall, user, system] = table::times(samples);
        let faults: Vec<f64> = samples.iter().map(|sample| sample.used.faults as f64).collect();
        let to_plain = ratio(rounds, way, &Way::Plain, |sample| sample.wall).ok().filter(|_| *way != Way::Plain);
        table.add_row([
            row.title.clone(),
            way.name().to_owned(),
            wall,
            user,
            system,
            Spread::of(&faults).map_or(NOTHING.into(), |spread| format!("{:.0}", spread.median)),
            to_plain.map_or(NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
}

fn judge(aims: &mut Aims, heading: &str, row: &Row, rounds: &Rounds<Way, Sample>, is_cached: bool) {
    for (way, name) in [(Way::Ahead, "file_ahead"), (Way::Files, "run --files")] {
        let line = format!("{heading}: {}, {name} beside plain", row.title);
        let ours = ratio(rounds, &way, &Way::Plain, |sample| sample.wall);
        match row.aim.filter(|_| !is_cached) {
            Some(aim) => aims.at_least(&line, aim, ours.map(|ours| ours.inverse())),
            None => aims.at_most(&line, 1.0, ours),
        }
    }
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let files = args.place.folder()?;
    let context = args.parts.context(&session, &args.python)?;
    session.introduce(&[]);
    let huge = Huge::new().map_err(|why| println!("No huge pages always: {why}.\n")).ok();
    let ahead = ReadAhead::of(files.path());
    println!("The device reads {} KiB ahead.\n", ahead.found().map_err(|why| anyhow::anyhow!("{why}"))?);
    let mut runs = Runs { context, dir: files.path().to_owned(), huge, records: Vec::new() };
    let aims = args.parts.run(&session, |part, aims| {
        let rows = match part {
            Part::Walks | Part::Usual | Part::Cached => walks(&runs.context, &runs.dir),
            Part::Programs | Part::ProgramsUsual => rows::programs(&runs.context, &runs.dir),
        };
        let wanted = match part {
            Part::Usual | Part::ProgramsUsual => Ahead::Usual,
            _ => Ahead::Found,
        };
        match ahead.set(wanted) {
            Err(why) => println!("No rows with {USUAL} KiB of read-ahead: {why}.\n"),
            Ok(_usual) => {
                let heading = match part {
                    Part::Walks => "A file that is not in memory",
                    Part::Usual => "The same with 128 KiB of read-ahead",
                    Part::Cached => "A file that is in memory",
                    Part::Programs => "Programs, files not in memory",
                    Part::ProgramsUsual => "Programs with 128 KiB of read-ahead",
                };
                runs.table(heading, rows, *part == Part::Cached, aims);
            }
        }
    });
    args.parts.close(&session, &aims, || parts::figures(&session.machine, &runs.records))
}
