//! `faultless bench cold`: programs on a machine whose free memory was idle, with and without the warm reserve.
//!
//! Before each run the machine is left idle for a while, so that a hypervisor which takes idle memory has it. The
//! daemon of the reserve has a socket of its own, and runs during the runs of its way alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::huge::Huge;
use super::measure::{Sample, measure};
use super::parts::Session;
use super::plan::{Context, Launch, Row, Section};
use super::table::{self, NOTHING};
use super::turns::{Rounds, Turns, ratio};
use super::{parts, programs};

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
    /// Rounds.
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Seconds for which the machine is idle before each run.
    #[arg(long, default_value_t = 8, value_name = "N")]
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
}

impl Work {
    fn row(self) -> Row {
        let title = |title: &str| Row::new("cold", Section::Programs, title);
        match self {
            Self::Touch => title("first touch of 1.5 GiB")
                .looping(|c| format!("touch --size {} --most 1 --seconds 0", c.size(TOUCHED))),
            Self::Python => title("Python starts").program(|c| {
                let python = Command::new(&c.python).args(["-c", "import sys; print(sys.executable)"]).output();
                let found = python.map_err(|error| format!("not installed: {} ({error})", c.python))?;
                let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                Ok(Launch::new(path, ["-c", "import json, decimal, asyncio"]))
            }),
            Self::Gcc => programs::gcc(),
            Self::Polars => programs::polars("polars"),
        }
    }
}

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Huge,
    Run,
    Reserve,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Huge => "huge pages always",
            Self::Run => "run",
            Self::Reserve => "run, with the reserve",
        }
    }
}

/// A daemon, which ends with this.
struct Reserve<'a> {
    exe: &'a Path,
    socket: PathBuf,
}

impl<'a> Reserve<'a> {
    /// Starts one, and waits until it holds `bytes`.
    fn start(exe: &'a Path, dir: &Path, bytes: u64) -> Result<Self, String> {
        let reserve = Self { exe, socket: dir.join("warm/socket") };
        let size = bytes.to_string();
        reserve.say(&["start", "--force", "--keep", "5m", "--size", &size])?;
        let end = std::time::Instant::now() + LIMIT;
        while reserve.held()? < bytes {
            if std::time::Instant::now() > end {
                return Err("the reserve does not fill".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(reserve)
    }

    fn say(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(self.exe);
        command.arg("warm").args(args).env("FAULTLESS_WARM", &self.socket).stderr(Stdio::inherit());
        let out = command.output().map_err(|error| format!("{}: {error}", self.exe.display()))?;
        if out.status.success() { Ok(out.stdout) } else { Err(format!("warm {args:?}: {}", out.status)) }
    }

    fn held(&self) -> Result<u64, String> {
        let status: serde_json::Value =
            serde_json::from_slice(&self.say(&["status", "--json"])?).map_err(|error| error.to_string())?;
        status["held_bytes"].as_u64().ok_or_else(|| "no held_bytes".into())
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        let _ = self.say(&["stop"]);
    }
}

struct Runs<'a> {
    context: &'a Context,
    idle: Duration,
    huge: Option<Huge>,
}

impl Runs<'_> {
    fn once(&self, launch: &Launch, way: Way) -> Result<Sample, String> {
        let c = self.context;
        let is_covered = matches!(way, Way::Run | Way::Reserve);
        let mut command = if is_covered { Command::new(&c.exe) } else { Command::new(&launch.program) };
        if is_covered {
            command.args(["run", "--quiet", "--"]).arg(&launch.program);
        }
        command.args(&launch.args).env_remove("LD_PRELOAD").env("LC_ALL", "C").env("FAULTLESS_WARM", "");
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        let reserve = match way {
            Way::Reserve => Some(Reserve::start(&c.exe, &c.dir, c.size(RESERVE))?),
            _ => None,
        };
        reserve.iter().for_each(|reserve| _ = command.env("FAULTLESS_WARM", &reserve.socket));
        std::thread::sleep(self.idle);
        let _always = match (&self.huge, way) {
            (Some(huge), Way::Huge) => Some(huge.always().map_err(|error| error.to_string())?),
            _ => None,
        };
        measure(&mut command, LIMIT)
    }
}

/// Runs the rows and prints the table.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let context = Context { quick: args.quick, ..session.context(&args.python)? };
    session.introduce(&[]);
    let huge = match Huge::new() {
        Ok(huge) => Some(huge),
        Err(why) => {
            println!("No huge pages always: {why}.\n");
            None
        }
    };
    let ways: Vec<_> = [Way::Plain, Way::Huge, Way::Run, Way::Reserve]
        .into_iter()
        .filter(|way| huge.is_some() || *way != Way::Huge)
        .collect();
    let runs = Runs { context: &context, idle: Duration::from_secs(args.idle), huge };
    let mut all = BTreeMap::new();
    let mut table = table::new_table(&["work", "way", "wall", "user", "sys", "to plain"]);
    for work in Work::value_variants().iter().filter(|work| args.only.is_empty() || args.only.contains(work)) {
        eprintln!("[{:4.0} s] {work:?}", session.seconds());
        let row = work.row();
        let launch = match (row.prepare)(&context) {
            Ok(launch) => launch,
            Err(why) => {
                table.add_row([row.title.as_str(), &why, NOTHING, NOTHING, NOTHING, NOTHING]);
                continue;
            }
        };
        let turns = Turns { rounds: args.rounds, deadline: None };
        let rounds = turns.run(&ways, |way| way.name().into(), |way| runs.once(&launch, way));
        add_rows(&mut table, &row.title, &rounds);
        let named = rounds.into_iter().map(|(way, samples)| (way.name(), samples));
        all.insert(format!("{work:?}"), named.collect::<BTreeMap<_, _>>());
    }
    println!("{} s of idleness before each run.\n\n{table}\n", args.idle);
    if let Some(path) = &args.json {
        parts::save(path, &serde_json::to_string_pretty(&all).context("JSON")?)?;
    }
    println!("{:.0} s elapsed.", session.seconds());
    Ok(())
}

fn add_rows(table: &mut comfy_table::Table, title: &str, rounds: &Rounds<Way, Sample>) {
    for (way, samples) in rounds {
        let [wall, user, system] = table::times(samples);
        let to_plain = ratio(rounds, way, &Way::Plain, |sample| sample.wall).filter(|_| *way != Way::Plain);
        table.add_row([
            title.to_owned(),
            way.name().to_owned(),
            wall,
            user,
            system,
            to_plain.map_or(NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
}
