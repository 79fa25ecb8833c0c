//! `faultless warm`: a daemon that holds huge pages, and gives them back to the kernel just before a program needs
//! them.
//!
//! Where a virtual machine gives idle memory back to its host, the first touch of it costs many times more. What the
//! daemon gives back a moment before is not idle: the kernel's lists are last in, first out, so the program's own
//! faults get it. No page goes from process to process. `books` has the account, `reserve` the memory, `daemon` the
//! loop, `apart` its start, `name` the name of its socket.

mod apart;
mod books;
mod daemon;
mod name;
pub mod need;
mod place;
mod reserve;
mod stalls;
mod status;
mod sys;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
pub use apart::takes_orphans;
use clap::Subcommand;
use faultless_base::SLOT;
use faultless_base::sys::cgroup::{self, Limit};
use faultless_base::sys::raw::status_number;
use faultless_base::sys::warm::Message;
use faultless_measure::figures::size;
use faultless_page::knobs::Knob;

pub use place::VARIABLE;

use crate::said::{complain, print};
use daemon::Wanted;
use status::Status;
use sys::Speaker;

/// How long an answer may take. The daemon has an ordinary priority, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a program is given at its start, before anything is known of it.
const FIRST: u64 = 64 << 20;
/// The most that it is given where that is known from earlier runs.
const FIRST_KNOWN: u64 = 1 << 30;
/// The part of the machine's memory that is held by default, and the largest that may be.
const SHARE: u64 = 8;
const LARGEST_SHARE: u64 = 2;

/// What `faultless warm` does.
#[derive(Subcommand)]
pub enum Command {
    /// Starts a daemon for this user, if there is none.
    Start(Start),
    /// Ends it. Its memory goes back to the kernel.
    Stop,
    /// Says what it holds, what it gave, and what that cost.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// How the daemon is started.
#[derive(clap::Args)]
pub struct Start {
    /// Memory to hold at most, with M or G; an eighth of the machine's if it is not given.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// For how long it is held without a message, with s, m or h.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    keep: Duration,
    /// Stay in this process, as services do.
    #[arg(long)]
    foreground: bool,
    /// Start it also where it is not needed.
    #[arg(long)]
    force: bool,
    /// Another process waits until this one serves. Then it says how it stands, and closes its standard files.
    #[arg(long, hide = true, requires = "foreground")]
    apart: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = Knob::Budget.declared().parse(text.as_bytes()).map_err(|bad| bad.to_string())?;
    if bytes < SLOT as u64 { Err("less than 2M".into()) } else { Ok(bytes) }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("not a time: a whole number, alone or with s, m, h or d".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a whole number")?;
    let most = Duration::from_secs(10 * 365 * 86_400);
    number
        .checked_mul(unit)
        .map(Duration::from_secs)
        .filter(|time| *time <= most)
        .ok_or("more than ten years".into())
}

fn say(text: &str) -> Result<()> {
    print(&format!("{text}\n")).context("standard output")
}

/// Starts, stops or asks the daemon.
pub fn main(command: &Command) -> ExitCode {
    let socket = place::socket();
    let done = match command {
        Command::Start(start) => begin(&socket, start),
        Command::Stop => stop(&socket),
        Command::Status { json } => show(&socket, *json),
    };
    done.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::from(125)
    })
}

const SMALL_GROUP: &str = "in a control group below 1 GiB, or one that cannot be read, no reserve is held";

fn is_in_small_group() -> bool {
    matches!(cgroup::limit(), Limit::Hidden | Limit::Bytes(..cgroup::SMALLEST))
}

fn begin(socket: &Path, start: &Start) -> Result<ExitCode> {
    let total = daemon::total() as u64;
    let size = start.size.unwrap_or(total / SHARE).max(SLOT as u64);
    ensure!(
        size <= total / LARGEST_SHARE,
        "--size is more than half of this machine's memory, which is {}",
        self::size(total)
    );
    if !start.apart
        && let Some((_, status)) = find(socket)?
    {
        say(&format!("a reserve of {} is there already: process {}", self::size(status.size_bytes), status.pid))?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!is_in_small_group(), "{SMALL_GROUP}");
    if !start.force
        && let Some(why) = need::why_not()
    {
        say(&format!("a reserve is not needed here: {why}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    place::prepare(socket)?;
    let wanted = Wanted { slots: (size / SLOT as u64) as usize, keep: start.keep };
    match (start.foreground, start.apart) {
        (false, _) => {
            let status = launch(socket, size, start.keep)?;
            say(&format!("a reserve of up to {}: process {}", self::size(status.size_bytes), status.pid))?;
        }
        (true, false) => {
            if !daemon::serve(socket, wanted, |_| Ok(()))? {
                say("another process serves there already")?;
            }
        }
        (true, true) => serve_apart(socket, wanted)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon as a process of its own, which serves when this returns, or another one does.
fn launch(socket: &Path, size: u64, keep: Duration) -> Result<Status> {
    let mut command = Process::new(std::env::current_exe().context("cannot tell where this program is")?);
    command.args(["warm", "start", "--foreground", "--apart", "--force", "--size", &size.to_string()]);
    command.args(["--keep", &keep.as_secs().to_string()]);
    command.env(VARIABLE, socket).env_remove("LD_PRELOAD");
    // It may wait that long for one that ends.
    let said = apart::start(command, 2 * PATIENCE).context("cannot start the daemon")?;
    let words = || said.trim().trim_start_matches("faultless: ").to_owned();
    Status::decode(said.as_bytes()).with_context(|| format!("the daemon did not start: {}", words()))
}

/// The process that [`launch`] starts.
fn serve_apart(socket: &Path, wanted: Wanted) -> Result<()> {
    let tell = |status: &Status| say(&status.encode()).and_then(|()| Ok(apart::say_no_more()?));
    while !daemon::serve(socket, wanted, tell)? {
        if let Some((_, status)) = find(socket)? {
            return tell(&status);
        }
    }
    Ok(())
}

fn stop(socket: &Path) -> Result<ExitCode> {
    let (speaker, status) = match find(socket) {
        Ok(Some(found)) => found,
        Ok(None) => {
            say("no daemon runs")?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Ok(told(&error)),
    };
    match speaker.send(Message::Stop) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(told(&deaf(socket))),
        // Another error: it ends already.
        _ => {}
    }
    ensure!(sys::has_ended(status.pid as i32, PATIENCE), "process {} does not end", status.pid);
    say(&format!("ended: process {}", status.pid))?;
    Ok(ExitCode::SUCCESS)
}

fn show(socket: &Path, json: bool) -> Result<ExitCode> {
    let status = match find(socket) {
        Ok(Some((_, status))) => status,
        Ok(None) => {
            say(if json { "null" } else { "no daemon runs" })?;
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Ok(told(&error)),
    };
    say(if json { status.encode() } else { status.to_string() }.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The daemon there, if there is one, and what it says. An error: there is one, and it does not answer.
fn find(socket: &Path) -> Result<Option<(Speaker, Status)>> {
    let end = Instant::now() + PATIENCE;
    while place::is_own(socket) {
        let speaker = match Speaker::connect(socket) {
            Ok(speaker) => speaker,
            // Who listened there has ended, or is no daemon.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED | libc::EPROTOTYPE)) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| socket.display().to_string()),
        };
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match speaker.ask(Message::Status, left) {
            Ok(answer) => {
                if let Some(status) = Status::decode(&answer) {
                    return Ok(Some((speaker, status)));
                }
            }
            // It has more messages than it reads, or reads none.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(deaf(socket)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).with_context(|| socket.display().to_string()),
        }
        // It ended before it answered. Another one may have begun.
        if Instant::now() >= end {
            return Err(deaf(socket));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

fn deaf(socket: &Path) -> anyhow::Error {
    anyhow!(
        "a daemon listens at {}, and does not answer. `pgrep -f 'faultless warm start'` tells its number: \
         `kill -CONT` has it go on if it was stopped, `kill` ends it",
        socket.display()
    )
}

/// An error that is this command's answer.
fn told(error: &anyhow::Error) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::FAILURE
}

/// What `faultless run` does about a reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// That of a daemon that runs already.
    #[default]
    IfThere,
    /// It starts one, if there is none and it is needed.
    Start,
}

/// The socket that a program under `faultless run` is told; `None`: there is no daemon. A filter of system calls might
/// kill a program that makes a socket, so behind one there is none.
pub fn for_program(how: Use) -> Option<PathBuf> {
    let is_off = std::env::var_os(VARIABLE).is_some_and(|path| path.is_empty());
    if is_off || status_number("Seccomp_filters").unwrap_or(0) > 0 {
        return None;
    }
    let socket = place::socket();
    if socket.is_relative() {
        return None;
    }
    if tell(&socket, FIRST) {
        return Some(socket);
    }
    if how != Use::Start {
        return None;
    }
    // Before it is tried how much memory costs, for which there may be no room.
    if is_in_small_group() {
        complain(&format!("no reserve: {SMALL_GROUP}"));
        return None;
    }
    if need::why_not().is_some() {
        return None;
    }
    if takes_orphans() {
        complain(
            "no reserve: this process takes in those that lose their parent, so the daemon would be its child. Use `faultless warm start`",
        );
        return None;
    }
    let started = place::prepare(&socket).and_then(|()| launch(&socket, daemon::total() as u64 / SHARE, HOUR));
    match started {
        Ok(_) => Some(socket),
        Err(error) => {
            complain(&format!("no reserve: {error:#}"));
            None
        }
    }
}

/// The program that is about to start will need so much, which its library does not say.
pub fn expect(socket: &Path, bytes: u64) {
    tell(socket, bytes.min(FIRST_KNOWN));
}

const HOUR: Duration = Duration::from_secs(3600);

/// Tells the daemon that this process, or the program that it starts, needs so much; whether there is one.
fn tell(socket: &Path, bytes: u64) -> bool {
    // A daemon that has more messages than it reads is there, too.
    let is_there = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    let send = || Speaker::connect(socket)?.send(Message::Grow(bytes));
    place::is_own(socket) && send().map_or_else(is_there, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!((bytes("2M"), bytes("1G")), (Ok(2 << 20), Ok(1 << 30)));
        assert!(["", "1", "x", "1T"].iter().all(|text| bytes(text).is_err()));
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!((seconds("5"), seconds("5s"), seconds("2m"), seconds("1h")), (Ok(5), Ok(5), Ok(120), Ok(3600)));
        assert!(
            ["", "h", "1w", "-1", "1.5h", "99999999999999999999", "9999999d"].iter().all(|t| duration(t).is_err())
        );
    }
}
