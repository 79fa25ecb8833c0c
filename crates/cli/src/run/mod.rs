//! `faultless run`: a program with the preload library in it, started as if directly.

mod begin;
mod child;
mod compare;
mod evidence;
mod files;
pub mod filters;
mod handed;
mod launch;
mod link;
pub mod locks;
mod options;
pub mod program;
mod reason;
mod stack;
mod summary;
mod sys;
mod tree;
mod worth;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use faultless_page::knobs::Knob;

pub use child::{End, Running};
use files::{Bringing, Files};
pub use launch::Own;
pub use options::{Args, library};
pub use stack::with_room;

use crate::profile::{Known, Seen};
use crate::replaced::Replaced;
pub use crate::said::{check_output, complain, print};
use crate::warm;
use faultless_measure::pages::Dir;
use summary::Summary;
pub use sys::{Inherited, may_run, runs_no_programs};

/// Status when nothing was run, as of `env`.
pub const FAILED: u8 = 125;

/// Runs the program, and ends this process as the program ended; returns only when that was not possible.
pub fn main(args: Args) -> ExitCode {
    locks::keep();
    let done = args.with_file().map(Args::with_reserve).and_then(|args| match args.compare {
        Some(pairs) => compare::main(&args, pairs),
        None => run(args),
    });
    match done {
        Ok(end) => end.copy(),
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(status_of(&error))
        }
    }
}

/// The status to end with when a program could not be run.
pub fn status_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<NotStarted>().map_or(FAILED, |not| not.status)
}

/// Starts the program with its counters pages in `dir`.
pub fn start(args: &Args, dir: &Path) -> Result<Running> {
    let command = args.covered(&options::library()?, Some(dir));
    Ok(Running::start(&command, [None; 3], Inherited::read(), Own::Leave)
        .map_err(|error| NotStarted::new(args, &error))?)
}

/// A program that could not be started.
#[derive(Debug)]
struct NotStarted {
    message: String,
    status: u8,
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NotStarted {}

impl NotStarted {
    fn new(args: &Args, error: &std::io::Error) -> Self {
        let (message, status) = child::not_started(&args.program[0], error);
        Self { message, status }
    }
}

/// The error about a program that could not be started.
pub fn not_started(name: &std::ffi::OsStr, error: &std::io::Error) -> anyhow::Error {
    let (message, status) = child::not_started(name, error);
    NotStarted { message, status }.into()
}

fn write_json(file: Option<Replaced>, value: &impl serde::Serialize) {
    let json = || serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    if let Some(mut file) = file
        && let Err(error) = json().and_then(|text| file.write((text + "\n").as_bytes()))
    {
        complain(&format!("cannot write JSON: {error}"));
    }
}

/// Has the program take this process's place; returns only when that was not possible.
fn replace(args: &Args, library: &Path, inherited: Inherited) -> anyhow::Error {
    NotStarted::new(args, &launch::replace(&args.covered(library, None), inherited)).into()
}

fn run(mut args: Args) -> Result<End> {
    let library = options::library()?;
    let inherited = Inherited::read();
    let quiet = args.is_on(Knob::Quiet);
    let is_between = handed::is_between_namespaces();
    if is_between {
        complain(
            "the program would be process 1 of a PID namespace (unshare --pid without --fork): it takes this process, and nothing is said at its end",
        );
    }
    if is_between || quiet && args.json.is_none() && args.files.is_empty() {
        // Nothing to do at the end, so no process needs to wait for it.
        return Err(replace(&args, &library, inherited));
    }
    let files = Files::find(&args.files);
    let json = args.json.as_deref().map(Replaced::open).transpose()?;
    let dir = Dir::create();
    let known = args.known();
    args.is_known_plain = known.as_ref().is_some_and(Known::is_plain);
    let command = match args.is_known_plain {
        true => args.command(),
        false => args.covered(&library, dir.as_ref().ok().map(Dir::path)),
    };
    if let (true, Some(socket)) = (args.is_known_plain, &args.reserve) {
        known.as_ref().and_then(Known::peak).into_iter().for_each(|peak| warm::expect(socket, peak));
    }
    let running = match Running::start(&command, [None; 3], inherited, Own::Leave) {
        Ok(running) => running,
        Err(error) if launch::is_no_process(&error) => {
            complain(
                "no process is left for the program (ulimit -u, pids.max, a filter of system calls): it takes this one, and nothing is said at its end",
            );
            drop(dir);
            return Err(replace(&args, &library, inherited));
        }
        Err(error) => return Err(NotStarted::new(&args, &error).into()),
    };
    let pid = running.pid();
    let bringing = files.map(Files::start);
    let outcome = running.wait(|| dir.iter().for_each(Dir::fold)).context("lost sight of the program")?;
    let (end, peak) = (outcome.end, outcome.usage.max_rss);
    let files = bringing.map(Bringing::end);
    let summary = Summary::new(&args, pid, outcome, dir, files);
    if let Some(known) = known {
        let requests = (!args.is_known_plain).then(|| summary.requests());
        known.note(Seen { requests, peak, cpu: summary.own_cpu_us(), is_success: end == End::Status(0) });
    }
    if !quiet {
        let _ = std::io::stderr().write_all(summary.to_string().as_bytes());
    }
    write_json(json, &summary);
    Ok(end)
}
