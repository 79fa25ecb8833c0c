//! `faultless bench cold`: programs on a machine whose free memory was idle, with and without the warm reserve.
//!
//! Before each run the machine is left idle for a while, so that a hypervisor which takes idle memory has it. The
//! daemon of the reserve runs during the runs of its way alone. With `--warm` there is no idleness, and no reserve:
//! before each run another process touches memory.

mod reserve;
mod work;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use self::reserve::Reserve;
use self::work::{Way, Work};
use super::aims::Aims;
use super::huge::Huge;
use super::measure::{Sample, measure};
use super::parts::Session;
use super::plan::{COUNTED, Context, Launch, Row};
use super::rule::Aim;
use super::table::{self, NOTHING};
use super::turns::{Rounds, Same, Turns, ratio};
use super::{parts, schedule};
use faultless_measure::paired::median;
use faultless_page::stats::Counter;

/// Bytes of the first touch.
const TOUCHED: u64 = 1536 << 20;
/// What the reserve holds.
const RESERVE: u64 = 2 << 30;
/// How long a run may take, and how long the reserve may take to fill.
const LIMIT: Duration = Duration::from_secs(120);

/// Options of `faultless bench cold`.
#[derive(clap::Args)]
pub struct Args {
    /// Only these rows.
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    only: Vec<Work>,
    /// More programs, which the default time does not have room for: an hour and a half.
    #[arg(long)]
    full: bool,
    /// On memory that was in use just before: by default Polars, Java, DuckDB and PyArrow.
    #[arg(long, conflicts_with = "idle")]
    warm: bool,
    /// Rounds.
    #[arg(long, default_value = "3", value_name = "N")]
    rounds: NonZeroUsize,
    /// Seconds for which the machine is idle before each run.
    #[arg(long, default_value_t = 6, value_name = "N")]
    idle: u64,
    /// The Python of the rows, which may have Polars.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Tiny sizes, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

struct Runs<'a> {
    context: &'a Context,
    /// Before each run; without it, another process touches memory.
    idle: Option<Duration>,
    huge: Option<Huge>,
}

impl Runs<'_> {
    /// The program as it is, or under `run`, with notes of earlier runs in `notes`.
    fn command(&self, launch: &Launch, way: Way, notes: &Path) -> Command {
        match way {
            Way::Plain | Way::Huge => launch.plain(),
            _ => launch.noted(&self.context.exe, notes),
        }
    }

    fn once(&self, row: &Row, launch: &Launch, way: Way) -> Result<(Measured, u64), String> {
        let c = self.context;
        let read = |sample| schedule::read(row, launch, 0, sample);
        let notes = tempfile::tempdir_in(&c.dir).map_err(|error| error.to_string())?;
        let mut command = self.command(launch, way, notes.path());
        let first = match way {
            Way::Again => Some(read(measure(&mut self.command(launch, way, notes.path()), LIMIT)?)?.0.sample),
            _ => None,
        };
        let reserve = match way {
            Way::Reserve => Some(Reserve::start(&c.exe, &c.dir, c.size(RESERVE))?),
            _ => None,
        };
        reserve.iter().for_each(|reserve| _ = command.env("FAULTLESS_WARM", &reserve.daemon.socket));
        match self.idle {
            Some(idle) if way != Way::Warm => std::thread::sleep(idle),
            _ => {
                let mut warm = Command::new(&c.own);
                warm.args(["loop", "warm", "--size"]).arg(c.size(RESERVE).to_string()).env_remove("LD_PRELOAD");
                measure(&mut warm, LIMIT)?;
            }
        }
        let before = reserve.as_ref().map(|reserve| reserve.daemon.processor()).transpose()?;
        let _always = match (&self.huge, way) {
            (Some(huge), Way::Huge) => Some(huge.always().map_err(|error| error.to_string())?),
            _ => None,
        };
        let (run, sum) = read(measure(&mut command, LIMIT)?)?;
        let after = reserve.as_ref().map(|reserve| reserve.daemon.processor()).transpose()?;
        let daemon = after.zip(before).map(|(after, before)| after - before);
        let ahead = match way {
            Way::Plain | Way::Huge => None,
            _ => Some(Ahead::read(&notes.path().join(COUNTED))?),
        };
        let earlier = first.and_then(|sample| sample.peak).map(|peak| peak.bytes);
        Ok((Measured { sample: run.sample, earlier, daemon, ahead }, sum))
    }
}

/// A run, and the processor time that the reserve took meanwhile, in seconds.
#[derive(serde::Serialize)]
struct Measured {
    #[serde(flatten)]
    sample: Sample,
    /// The peak of the run before, of which there are notes.
    earlier: Option<u64>,
    daemon: Option<f64>,
    ahead: Option<Ahead>,
}

/// What was brought ahead of the program, in bytes.
#[derive(Clone, Copy, serde::Serialize)]
struct Ahead {
    touched: u64,
    /// Of that, and of what moved: what was looked at later, and what of this was full of zeroes.
    seen: u64,
    unused: u64,
}

impl Ahead {
    /// The share that nobody used.
    fn unused_of(all: impl Iterator<Item = Self>) -> Option<f64> {
        let (seen, unused) = all.fold((0, 0), |(seen, unused), ahead| (seen + ahead.seen, unused + ahead.unused));
        (seen > 0).then(|| unused as f64 / seen as f64)
    }

    /// From what `run` says of a program.
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let said: serde_json::Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let get = |counter: Counter| {
            let name = counter.declared().name;
            said["totals"][name].as_u64().ok_or_else(|| format!("no {name}"))
        };
        Ok(Self {
            touched: get(Counter::BytesTouchedLent)? + get(Counter::BytesTouchedAhead)?,
            seen: get(Counter::BytesAheadSeen)?,
            unused: get(Counter::BytesAheadUnused)?,
        })
    }
}

/// Runs the rows and prints the table.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let context = Context { quick: args.quick, ..session.context(&args.python)? };
    parts::try_open(&[args.json.as_deref()])?;
    session.introduce(&[]);
    let huge = match Huge::new() {
        Ok(huge) => Some(huge),
        Err(why) => {
            println!("No huge pages always: {why}.\n");
            None
        }
    };
    let all_ways = if args.warm { &Way::IN_USE[..] } else { &Way::ALL };
    let ways: Vec<_> = all_ways.iter().copied().filter(|way| huge.is_some() || *way != Way::Huge).collect();
    let runs = Runs { context: &context, idle: (!args.warm).then(|| Duration::from_secs(args.idle)), huge };
    let mut all = BTreeMap::new();
    let mut aims = Aims::default();
    let mut unused = Vec::new();
    let mut table = table::new_table(&[
        "work",
        "way",
        "wall",
        "user",
        "sys",
        "faults",
        "peak of all processes",
        "brought ahead",
        "never used",
        "processor time of the reserve",
        "to plain",
    ]);
    let is_wanted = |work: &&Work| match args.only.is_empty() {
        true => args.full || if args.warm { &work::IN_USE } else { &work::DEFAULT }.contains(work),
        false => args.only.contains(work),
    };
    for work in Work::value_variants().iter().filter(is_wanted) {
        eprintln!("[{:4.0} s] {work:?}", session.seconds());
        let row = work.row();
        let launch = match (row.prepare)(&context) {
            Ok(launch) => launch,
            Err(why) => {
                let mut cells = vec![NOTHING; 11];
                (cells[0], cells[1]) = (row.title.as_str(), &why);
                table.add_row(cells);
                continue;
            }
        };
        let turns = Turns { rounds: args.rounds.get(), deadline: None };
        let mut computed = Same::default();
        let once = |way| {
            let (measured, sum) = runs.once(&row, &launch, way)?;
            computed.check(sum).map(|()| measured)
        };
        let rounds = turns.run(&ways, |way| way.name().into(), once);
        match args.warm {
            true => work::aims_in_use(&mut aims, &row.title, &rounds, session.machine.budget),
            false => work.aims(&mut aims, &row.title, &rounds),
        }
        unused.extend(rounds.get(&Way::Again).into_iter().flatten().filter_map(|run| run.ahead));
        add_rows(&mut table, &row.title, &rounds);
        let named = rounds.into_iter().map(|(way, samples)| (way.name(), samples));
        all.insert(format!("{work:?}"), named.collect::<BTreeMap<_, _>>());
    }
    match args.warm {
        true => println!("Before each run another process touched memory.\n\n{table}\n"),
        false => println!("{} s of idleness before each run, but for the last way.\n\n{table}\n", args.idle),
    }
    if let Some(share) = Ahead::unused_of(unused.iter().copied()) {
        let line = format!("brought ahead and never used, of all rows, the second time: {:.1} %", share * 100.0);
        aims.counted(format!("{line}, aimed at less than 5 %"), share, Aim::AtMost(0.05));
    }
    aims.print();
    if let Some(path) = &args.json {
        parts::save(path, &serde_json::to_string_pretty(&all).context("JSON")?)?;
    }
    println!("{:.0} s elapsed.", session.seconds());
    Ok(())
}

fn add_rows(table: &mut comfy_table::Table, title: &str, rounds: &Rounds<Way, Measured>) {
    for (way, runs) in rounds {
        let samples: Vec<_> = runs.iter().map(|run| run.sample.clone()).collect();
        let [wall, user, system] = table::times(&samples);
        let to_plain = ratio(rounds, way, &Way::Plain, |run| run.sample.wall).ok().filter(|_| *way != Way::Plain);
        let middle = |figure: &dyn Fn(&Measured) -> Option<f64>| {
            median(&runs.iter().filter_map(figure).collect::<Vec<_>>())
        };
        let faults = middle(&|run| Some(run.sample.used.faults as f64));
        let peak = middle(&|run| run.sample.peak.map(|peak| peak.bytes as f64));
        let daemon = middle(&|run| run.daemon);
        let touched = middle(&|run| run.ahead.map(|ahead| ahead.touched as f64));
        let unused = Ahead::unused_of(runs.iter().filter_map(|run| run.ahead));
        table.add_row([
            title.to_owned(),
            way.name().to_owned(),
            wall,
            user,
            system,
            faults.map_or(NOTHING.into(), |faults| format!("{faults:.0}")),
            peak.map_or(NOTHING.into(), table::bytes),
            touched.map_or(NOTHING.into(), table::bytes),
            unused.map_or(NOTHING.into(), |share| format!("{:.1} %", share * 100.0)),
            daemon.map_or(NOTHING.into(), table::seconds),
            to_plain.map_or(NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
}
