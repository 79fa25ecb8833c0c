//! `faultless record`: a program's page faults, into a file for `faultless report`.
//!
//! The program runs plain (with `--run` under faultless), and runs no code of this. Where the kernel refuses events,
//! its own account of the program still gives the number of faults.

mod process;
mod target;

use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use faultless_measure::pages::Dir;
use faultless_record::collect::{self, Collecting, Options, Recorder};
use faultless_record::file::{Counted, End as Last, Head, Usage, Writer};
use faultless_record::sys::now;

use crate::run::{self, End, Inherited, Own, Running, complain};
use crate::settings::{self, Setting};
use target::Target;

/// The file that is written and read when none is named.
pub const FILE: &str = "faultless.rec";

/// Options of `faultless record`.
#[derive(clap::Args)]
pub struct Args {
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = FILE)]
    pub output: PathBuf,
    /// Record this process, with all its threads and what they start, until it ends, or until Ctrl-C.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pub pid: Option<u32>,
    /// Run the program under faultless.
    #[arg(long, requires = "program")]
    pub run: bool,
    /// With --run: sets a knob, as of `faultless run`.
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE", value_parser = settings::assignment, requires = "run")]
    pub set: Vec<Setting>,
    /// Write a record of one fault in this many. A smaller number costs the program more.
    #[arg(long, value_name = "N", default_value_t = Options::default().period,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub period: u64,
    /// Name the functions of Python 3.12 and later in call stacks: records hold a part of the stack's memory, and the
    /// program runs with PYTHONPERFSUPPORT=1.
    #[arg(long)]
    pub python: bool,
    /// Bytes of the file at most; with K, M or G in powers of 1024. What comes later is counted, not recorded.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub limit: u64,
    /// Say nothing at the end.
    #[arg(long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", required_unless_present = "pid")]
    pub program: Vec<OsString>,
}

fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => Some(1u64),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let bytes = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| "not a size, such as 64M".into())
}

impl Args {
    fn options(&self) -> Options {
        Options { period: self.period, limit: self.limit, python: self.python }
    }
}

/// Records, and ends as the program did if there is one.
pub fn main(args: Args) -> ExitCode {
    match args.pid {
        Some(pid) => process::record(pid, &args),
        None => match program(args) {
            Ok(end) => end.copy(),
            Err(error) => fail(&error, run::status_of(&error)),
        },
    }
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::from(status)
}

/// The thread that takes records; or, where there are none, what is written at the end.
enum Way {
    Sampled(Collecting),
    Counted(Box<Head>, Writer<BufWriter<File>>),
}

impl Way {
    fn new(recorder: Option<Recorder>, mut head: Head, writer: Writer<BufWriter<File>>) -> std::io::Result<Self> {
        let Some(recorder) = recorder else { return Ok(Self::Counted(Box::new(head), writer)) };
        recorder.describe(&mut head);
        Ok(Self::Sampled(recorder.collect(writer, None, move |writer| writer.head(&head))?))
    }

    fn finish(self, end: Last, counted: Option<&Counted>) -> std::io::Result<Last> {
        match self {
            Self::Sampled(collecting) => collecting.finish(end, counted),
            Self::Counted(head, mut writer) => {
                writer.head(&head)?;
                counted.map_or(Ok(()), |counted| writer.counted(counted))?;
                writer.end(&end)?;
                Ok(end)
            }
        }
    }
}

/// What is said when all is written.
fn said(args: &Args, end: &Last) {
    if args.quiet {
        return;
    }
    let usage = end.usage.unwrap_or_default();
    let faults = end.begun.max(usage.minor.saturating_add(usage.major));
    let command = if args.output == Path::new(FILE) {
        "faultless report".into()
    } else {
        format!("faultless report {}", args.output.display())
    };
    // A device keeps nothing, and the reader of a pipe knows what it does.
    let shows = if args.output.is_file() { format!("; `{command}` shows them") } else { String::new() };
    complain(&format!("{faults} page faults recorded{shows}"));
}

/// Memory that a recording takes: buffers, tables, the stack of a thread.
const MEMORY: usize = 8 << 20;
const NO_MEMORY: &str =
    "not recorded: this command may not have the 8 MiB of memory that it takes (ulimit -d, ulimit -v)";

/// Whether there is that much. Without it this command would end in the middle, and the program with it.
fn has_memory() -> bool {
    let mut memory = Vec::<u8>::new();
    let had = memory.try_reserve_exact(MEMORY).is_ok();
    std::hint::black_box(memory.as_mut_ptr());
    had
}

fn started(command: &Command, inherited: Inherited, asked: &run::Args) -> Result<Running> {
    Running::start(command, [None; 3], inherited, Own::Leave)
        .map_err(|error| run::not_started(&asked.program[0], &error))
}

fn program(args: Args) -> Result<End> {
    run::locks::keep();
    let asked = run::Args { program: args.program.clone(), set: args.set.clone(), ..run::Args::default() };
    // Where the processes leave what faultless counted.
    let dir = args.run.then(Dir::create);
    let (asked, mut command) = if args.run {
        let asked = asked.with_file()?.with_reserve();
        let place = dir.as_ref().and_then(|dir| dir.as_ref().ok()).map(Dir::path);
        let command = asked.covered(&run::library()?, place);
        (asked, command)
    } else {
        let command = asked.command();
        (asked, command)
    };
    if args.python {
        command.env("PYTHONPERFSUPPORT", "1");
    }
    let inherited = Inherited::read();
    if !has_memory() {
        complain(NO_MEMORY);
        return Ok(started(&command, inherited, &asked)?.wait(|| ()).context("lost sight of the program")?.end);
    }
    let target = Target::open(&args.output)?;
    let mut head = collect::head();
    head.program.command = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    head.program.covered = args.run;
    let program = run::program::inspect(&args.program[0], std::env::var_os("PATH").as_deref());
    head.program.not_covered =
        program.filter(|program| program.kind.is_plain()).map(|program| program.to_string());
    head.cost = collect::cost(args.options());
    // Events go from this thread to the program that it starts, and count from its exec on.
    let recorder = Recorder::children(args.options());
    if let Err(refused) = &recorder {
        complain(&format!("faults are counted, but not sampled: {refused}"));
        head.refused = Some(refused.to_string());
    }
    head.begin();
    let start = head.start_ns;
    let running = started(&command, inherited, &asked)?;
    // Whatever goes wrong from here on, the program runs to its end.
    let way = target.begin().and_then(|writer| Way::new(recorder.ok(), head, writer));
    let fold = || dir.iter().flatten().for_each(Dir::fold);
    let outcome = running.wait(fold).context("lost sight of the program")?;
    // A pipe that nobody reads is waited for until a signal comes.
    inherited.release();
    let counted = dir.as_ref().map(collect::counted);
    let usage = Usage {
        user_s: outcome.usage.user.as_secs_f64(),
        system_s: outcome.usage.system.as_secs_f64(),
        minor: outcome.usage.minor_faults,
        major: outcome.usage.major_faults,
        peak: outcome.usage.max_rss,
    };
    let last = Last {
        wall_ns: now().saturating_sub(start),
        usage: Some(usage),
        status: outcome.end.to_string(),
        ..Last::default()
    };
    match way.and_then(|way| way.finish(last, counted.as_ref())) {
        Ok(end) => said(&args, &end),
        Err(error) => complain(&format!(
            "the recording is not complete: {}: {error}. The program took {} page faults",
            args.output.display(),
            usage.minor.saturating_add(usage.major)
        )),
    }
    Ok(outcome.end)
}

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!((size("5"), size("64M"), size("2G")), (Ok(5), Ok(64 << 20), Ok(2 << 30)));
        for text in ["", "M", "1MG", "-1", "99999999999999999999", "99999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
