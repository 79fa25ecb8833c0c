//! `faultless bench cold`: programs on a machine whose free memory was idle, with and without the warm reserve.
//!
//! Before each run the machine is left idle for a while, so that a hypervisor which takes idle memory has it. The
//! daemon of the reserve has a socket of its own, and runs during the runs of its way alone.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::huge::Huge;
use super::measure::{Sample, measure};
use super::parts::Session;
use super::plan::{Context, Launch, Row, Section};
use super::table::{self, NOTHING};
use super::turns::{Rounds, Same, Turns, ratio};
use super::undo::Undo;
use super::{parts, programs, schedule};
use faultless_measure::paired::median;
use faultless_page::stats::Counter;

/// Bytes of the first touch.
const TOUCHED: u64 = 1536 << 20;
/// What the reserve holds.
const RESERVE: u64 = 2 << 30;
/// The file of what `run` counted, beside the notes.
const COUNTED: &str = "run.json";
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

/// The rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// The first touch of 1.5 GiB.
    Touch,
    /// Python starts, and ends.
    Python,
    /// gcc -O0.
    Gcc,
    /// Polars, join and group by.
    Polars,
    /// make, several C files at once; with --full.
    Make,
    /// NumPy; with --full.
    Numpy,
    /// Node; with --full.
    Node,
    /// Java; with --full.
    Java,
    /// DuckDB; with --full.
    Duckdb,
    /// PyArrow; with --full.
    Pyarrow,
    /// pandas reads a table from text; with --full.
    Pandas,
    /// ld joins object files; with --full.
    Ld,
    /// ImageMagick; with --full.
    Magick,
    /// A script like configure; with --full.
    Configure,
}

/// Those of the default time.
const DEFAULT: [Work; 4] = [Work::Touch, Work::Python, Work::Gcc, Work::Polars];

impl Work {
    fn row(self) -> Row {
        let title = |title: &str| Row::new("cold", Section::Programs, title);
        match self {
            Self::Touch => {
                title("first touch of 1.5 GiB").looping(|c| format!("first --size {} --busy 0", c.size(TOUCHED)))
            }
            Self::Python => title("Python starts").program(|c| {
                let python = Command::new(&c.python).args(["-c", "import sys; print(sys.executable)"]).output();
                let found = python.map_err(|error| format!("not installed: {} ({error})", c.python))?;
                let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                Ok(Launch::new(path, ["-c", "import json, decimal, asyncio"]))
            }),
            Self::Gcc => programs::gcc(),
            Self::Polars => programs::polars("polars"),
            Self::Make => programs::make(),
            Self::Numpy => programs::numpy(),
            Self::Node => programs::node(),
            Self::Java => programs::java(false).swap_remove(0),
            Self::Duckdb => programs::duckdb(),
            Self::Pyarrow => programs::pyarrow(),
            Self::Pandas => programs::pandas(),
            Self::Ld => programs::ld(),
            Self::Magick => programs::magick(),
            Self::Configure => programs::configure(),
        }
    }
}

impl Work {
    /// What the reserve is to give.
    fn aims(self, aims: &mut Aims, title: &str, rounds: &Rounds<Way, Measured>) {
        let beside = |other: Way| ratio(rounds, &Way::Reserve, &other, |run| run.sample.wall);
        let faster = |other: Way| ratio(rounds, &other, &Way::Reserve, |run| run.sample.wall);
        let named = |other: Way| format!("{title}, with the reserve, beside {}", other.name());
        match self {
            Self::Touch => {
                aims.at_least(&named(Way::Plain), 5.0, faster(Way::Plain));
                aims.at_least(&named(Way::Huge), 10.0, faster(Way::Huge));
            }
            Self::Polars | Self::Java | Self::Numpy | Self::Gcc => {
                aims.at_most(&named(Way::Warm), 1.1, beside(Way::Warm));
                aims.at_most(&named(Way::Plain), 1.0, beside(Way::Plain));
            }
            _ => aims.at_most(&named(Way::Plain), 1.0, beside(Way::Plain)),
        }
    }
}

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Huge,
    Run,
    /// After a run that left notes of the program.
    Again,
    Reserve,
    /// Without idleness, after another process touched memory.
    Warm,
}

impl Way {
    const ALL: [Self; 6] = [Self::Plain, Self::Huge, Self::Run, Self::Again, Self::Reserve, Self::Warm];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Huge => "huge pages always",
            Self::Run => "run, the first time",
            Self::Again => "run, the second time",
            Self::Reserve => "run, the first time, with the reserve",
            Self::Warm => "run, the first time, memory in use before",
        }
    }
}

/// A daemon, which ends with this.
struct Reserve {
    daemon: Daemon,
    _undo: Undo,
}

/// How it is spoken to.
#[derive(Clone)]
struct Daemon {
    exe: PathBuf,
    socket: PathBuf,
}

impl Reserve {
    /// Starts one, and waits until it holds `bytes`.
    fn start(exe: &Path, dir: &Path, bytes: u64) -> Result<Self, String> {
        let daemon = Daemon { exe: exe.to_owned(), socket: dir.join("warm/socket") };
        let undone = daemon.clone();
        let reserve = Self { daemon: daemon.clone(), _undo: Undo::by(move || _ = undone.say(&["stop"])) };
        let size = bytes.to_string();
        daemon.say(&["start", "--force", "--keep", "5m", "--size", &size])?;
        let end = std::time::Instant::now() + LIMIT;
        while daemon.held()? < bytes {
            if std::time::Instant::now() > end {
                return Err("the reserve does not fill".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(reserve)
    }
}

impl Daemon {
    fn say(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.exe);
        command.arg("warm").args(args).env("FAULTLESS_WARM", &self.socket).stderr(Stdio::inherit());
        let out = command.output().map_err(|error| format!("{}: {error}", self.exe.display()))?;
        if out.status.success() { Ok(out.stdout) } else { Err(format!("warm {args:?}: {}", out.status)) }
    }

    fn status(&self, key: &str) -> Result<serde_json::Value, String> {
        let status: serde_json::Value =
            serde_json::from_slice(&self.say(&["status", "--json"])?).map_err(|error| error.to_string())?;
        status.get(key).cloned().ok_or_else(|| format!("no {key}"))
    }

    fn held(&self) -> Result<u64, String> {
        self.status("held_bytes")?.as_u64().ok_or_else(|| "held_bytes is no number".into())
    }

    /// Seconds of a processor that it took by now.
    fn processor(&self) -> Result<f64, String> {
        let seconds = |key| self.status(key)?.as_f64().ok_or_else(|| format!("{key} is no number"));
        Ok(seconds("user_s")? + seconds("system_s")?)
    }
}

struct Runs<'a> {
    context: &'a Context,
    idle: Duration,
    huge: Option<Huge>,
}

impl Runs<'_> {
    /// The program as it is, or under `run`, with notes of earlier runs in `notes`. Notes are kept where `run` has
    /// something to say at the end: there it writes what it counted.
    fn command(&self, launch: &Launch, way: Way, notes: &Path) -> Command {
        let is_covered = !matches!(way, Way::Plain | Way::Huge);
        let mut command = Command::new(if is_covered { &self.context.exe } else { &launch.program });
        if is_covered {
            command.args(["run", "--quiet", "--json"]).arg(notes.join(COUNTED)).arg("--").arg(&launch.program);
            command.env("XDG_CACHE_HOME", notes);
        }
        command.args(&launch.args).env_remove("LD_PRELOAD").env("LC_ALL", "C").env("FAULTLESS_WARM", "");
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        command
    }

    fn once(&self, row: &Row, launch: &Launch, way: Way) -> Result<(Measured, u64), String> {
        let c = self.context;
        let read = |sample| schedule::read(row, launch, 0, sample);
        let notes = tempfile::tempdir_in(&c.dir).map_err(|error| error.to_string())?;
        let mut command = self.command(launch, way, notes.path());
        if way == Way::Again {
            read(measure(&mut self.command(launch, way, notes.path()), LIMIT)?)?;
        }
        let reserve = match way {
            Way::Reserve => Some(Reserve::start(&c.exe, &c.dir, c.size(RESERVE))?),
            _ => None,
        };
        reserve.iter().for_each(|reserve| _ = command.env("FAULTLESS_WARM", &reserve.daemon.socket));
        match way {
            Way::Warm => {
                let mut warm = Command::new(&c.own);
                warm.args(["loop", "warm", "--size"]).arg(c.size(RESERVE).to_string()).env_remove("LD_PRELOAD");
                measure(&mut warm, LIMIT)?;
            }
            _ => std::thread::sleep(self.idle),
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
        Ok((Measured { sample: run.sample, daemon, ahead }, sum))
    }
}

/// A run, and the processor time that the reserve took meanwhile, in seconds.
#[derive(serde::Serialize)]
struct Measured {
    #[serde(flatten)]
    sample: Sample,
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
    let ways: Vec<_> = Way::ALL.into_iter().filter(|way| huge.is_some() || *way != Way::Huge).collect();
    let runs = Runs { context: &context, idle: Duration::from_secs(args.idle), huge };
    let mut all = BTreeMap::new();
    let mut aims = Aims::default();
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
        true => args.full || DEFAULT.contains(work),
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
        work.aims(&mut aims, &row.title, &rounds);
        add_rows(&mut table, &row.title, &rounds);
        let named = rounds.into_iter().map(|(way, samples)| (way.name(), samples));
        all.insert(format!("{work:?}"), named.collect::<BTreeMap<_, _>>());
    }
    println!("{} s of idleness before each run, but for the last way.\n\n{table}\n", args.idle);
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
        let all = runs.iter().filter_map(|run| run.ahead);
        let (seen, unused) = all.fold((0, 0), |(seen, unused), ahead| (seen + ahead.seen, unused + ahead.unused));
        table.add_row([
            title.to_owned(),
            way.name().to_owned(),
            wall,
            user,
            system,
            faults.map_or(NOTHING.into(), |faults| format!("{faults:.0}")),
            peak.map_or(NOTHING.into(), table::bytes),
            touched.map_or(NOTHING.into(), table::bytes),
            if seen > 0 { format!("{:.1} %", unused as f64 / seen as f64 * 100.0) } else { NOTHING.into() },
            daemon.map_or(NOTHING.into(), table::seconds),
            to_plain.map_or(NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
}
