//! `faultless stat`: what is counted in programs, while they run.
//!
//! Exit status: that of CMD if there is one, as of `run`. Else it is 0, 1 if the process cannot be watched, 77 if
//! this user may not look at it, and 125 if the arguments are wrong.

mod faults;
mod json;
mod list;
mod listen;
mod metrics;
mod regions;
mod select;
mod show;
pub mod signals;
mod target;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::limits;
use crate::output::Out;
use crate::run::{self, End, FAILED, complain};
use crate::settings::{self, Setting};
use faultless_measure::pages::find::Missing;
use faultless_measure::pages::{Dir, Folded};
pub use metrics::name as metric;
pub use regions::text as regions;
use select::Selection;
pub use show::short;
pub use target::Target;
use watch::{Style, Watch};

/// Status when the process cannot be watched.
pub const UNREACHED: u8 = 1;
/// Status when this user may not look: `EX_NOPERM` of sysexits.h.
pub const NOT_ALLOWED: u8 = 77;

/// The status that tells an error.
pub fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(Missing::Foreign | Missing::Closed(_)) => NOT_ALLOWED,
        _ => UNREACHED,
    }
}

/// Options of `faultless stat`.
#[derive(clap::Args)]
pub struct Args {
    /// Watch this process until it ends, or until Ctrl-C; with the number of `faultless run`, all that it runs.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pub pid: Option<u32>,
    /// A line for what was counted in each of these intervals.
    #[arg(short, long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<Duration>,
    /// End after that many intervals.
    #[arg(short = 'n', long, value_name = "N", requires = "interval", conflicts_with = "program",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Counters to show, as a list with commas; * and ? stand for other letters, and '*' for all counters. `faults`,
    /// `spf` and `pagefault:*` are names that perf has; `faults` shows the kernel's page faults, and those of regions
    /// apart.
    #[arg(short = 'e', long, value_name = "NAMES")]
    pub event: Vec<String>,
    /// Everything that the process has counted so far, at once.
    #[arg(long, requires = "pid", conflicts_with = "interval")]
    pub once: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// All that was counted so far, at once, in the text form of OpenMetrics: for Prometheus.
    #[arg(long, conflicts_with_all = ["json", "interval", "once", "program"])]
    pub openmetrics: bool,
    /// With --openmetrics: answer requests by HTTP, for /metrics, until Ctrl-C. A path with a slash is that of a
    /// socket, which only this user may open; else it is a loopback address, which every user of the machine may ask.
    #[arg(long, value_name = "SOCKET|127.0.0.1:PORT", requires = "openmetrics",
          conflicts_with_all = ["pid", "output", "json", "interval", "once", "program"],
          value_parser = listen::address)]
    pub listen: Option<listen::Address>,
    /// Write to a file. Otherwise it is stdout, and with a program stderr.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Sets a knob of the program, as of `faultless run`.
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE", value_parser = settings::assignment)]
    pub set: Vec<Setting>,
    /// The program to run, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Reads an interval in seconds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| (0.01..=1e6).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a number of seconds from 0.01 to 1000000".into())
}

/// Watches, and ends as the program did if there is one.
pub fn main(args: Args) -> ExitCode {
    if !args.program.is_empty() {
        run::locks::keep();
    }
    let prepared = Selection::new(&args.event).and_then(|selection| {
        let usual = if args.program.is_empty() { Out::Stdout } else { Out::Stderr };
        Ok((selection, Out::new(args.output.as_deref(), usual)?))
    });
    let (selection, out) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return fail(&error, FAILED),
    };
    let style = Style { selection, json: args.json, interval: args.interval };
    if !args.program.is_empty() {
        return match command(args, style, out) {
            Ok(end) => end.copy(),
            Err(error) => fail(&error, run::status_of(&error)),
        };
    }
    limits::more_files();
    if let Some(address) = &args.listen {
        let done = listen::serve(address, &style.selection);
        return done.map_or_else(|error| fail(&error, status_of(&error)), |()| ExitCode::SUCCESS);
    }
    let done = match args.pid {
        _ if args.openmetrics => open_metrics(args.pid, &style.selection, out),
        Some(pid) => process(pid, &args, style, out),
        None => list::main(&args, style, out),
    };
    done.map_or_else(|error| fail(&error, status_of(&error)), |()| ExitCode::SUCCESS)
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::from(status)
}

/// What all processes have counted, or those of one.
fn open_metrics(pid: Option<u32>, selection: &Selection, mut out: Out) -> Result<()> {
    let text = match pid {
        Some(pid) => {
            let mut target = Target::process(pid)?;
            let counters = target.read();
            metrics::text(selection, target.processes(), &counters, target.folded())
        }
        None => {
            let (processes, counters) = list::all()?;
            metrics::text(selection, &processes, &counters, &Folded::default())
        }
    };
    out.write(&text)
}

fn process(pid: u32, args: &Args, style: Style, out: Out) -> Result<()> {
    let target = Target::process(pid)?;
    if args.once {
        return Watch::new(target, style, out).all_of_it().so_far();
    }
    signals::hold();
    let mut watch = Watch::new(target, style, out);
    while !watch.is_over() && args.count.is_none_or(|count| watch.reports() < count) {
        if signals::wait(watch.pause()) {
            break;
        }
        watch.look()?;
    }
    watch.finish(None)
}

/// Runs the program as `run` does; a thread reports while this one stands in for it.
fn command(args: Args, style: Style, out: Out) -> Result<End> {
    let args =
        run::Args { set: args.set, program: args.program, ..Default::default() }.with_file()?.with_reserve();
    let dir = Dir::create().context("no place for counters")?;
    let running = run::start(&args, dir.path())?;
    limits::more_files();
    let watch = Watch::new(Target::dir(dir.path().to_owned()), style, out).all_of_it();
    let mut watch = watch.started(running.pid());
    let (ended, end) = channel::<u64>();
    let reporter = std::thread::Builder::new().spawn(move || -> Result<()> {
        let faults = loop {
            match end.recv_timeout(watch.pause()) {
                Err(RecvTimeoutError::Timeout) => watch.look()?,
                end => break end.ok(),
            }
        };
        watch.finish(faults)
    });
    // The program runs by now, and goes on without.
    let reporter = reporter.map_err(|error| complain(&format!("nothing is reported: no thread for it: {error}")));
    let outcome = running.wait(|| dir.fold()).context("lost sight of the program")?;
    // The thread may have ended with an error.
    let _ = ended.send(outcome.usage.minor_faults + outcome.usage.major_faults);
    drop(ended);
    let is_lost = dir.has_lost();
    if let Ok(Ok(Err(error))) = reporter.map(|reporter| reporter.join()) {
        complain(&format!("{error:#}"));
    }
    if is_lost {
        complain(
            "a process counted where this command cannot read it: of another user, or without room for a file",
        );
    }
    Ok(outcome.end)
}
