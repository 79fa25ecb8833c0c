//! What is made from the tables of counters and knobs and from the command line: manual pages, completions for shells,
//! docs/reference.md. `cargo xtask generate` calls it.

mod man;
mod reference;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap_complete::Shell;
use faultless_page::knobs::KNOBS;
use faultless_page::stats::COUNTERS;

use crate::run::{FAILED, complain};

/// Options of `faultless generate`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to put man/man1, completions and reference.md.
    dir: PathBuf,
}

/// What goes wrong, and what status tells it: common to `stat` and `sysctl`.
const STATUSES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "the process cannot be watched or changed, or the user's file not be written"),
    ("77", "this user may not look at the process, or at any that may be covered"),
    ("125", "options, names or values are wrong; nothing was done"),
];

/// The same for `run`, and for `stat` with a program.
const RUN_STATUSES: &[(&str, &str)] = &[
    ("1", "with --compare: the program does not do the same under faultless"),
    ("125", "the command itself failed; nothing was run, or an export of --compare not written"),
    ("126", "the program cannot be run"),
    ("127", "the program was not found"),
    ("otherwise", "that of the program; killed by a signal it ends by the same signal"),
];

/// The same for `record`.
const RECORD_STATUSES: &[(&str, &str)] = &[
    ("1", "the process cannot be recorded, or the recording not be written to its end"),
    ("77", "this user may not record the process"),
    ("125", "the command itself failed; nothing was run"),
    ("126", "the program cannot be run"),
    ("127", "the program was not found"),
    ("otherwise", "that of the program; killed by a signal it ends by the same signal"),
];

/// The same for `report`.
const REPORT_STATUSES: &[(&str, &str)] = &[
    ("0", "done, also where a note says that the recording is not complete"),
    ("1", "the file is no recording, or cannot be read, or the report not be written"),
    ("125", "options are wrong"),
];

/// The same for `doctor`.
const DOCTOR_STATUSES: &[(&str, &str)] = &[
    ("0", "good: programs, or the one named, can be covered in full"),
    ("1", "limited: they can be covered; something is slower or not available"),
    ("2", "cannot: they would run plain"),
    ("125", "options or settings are wrong, or the report could not be written"),
    ("126", "the program that was named cannot be run"),
    ("127", "the program that was named was not found"),
];

/// The same for `top`.
const TOP_STATUSES: &[(&str, &str)] = &[
    ("0", "the user ended it"),
    ("1", "there is no terminal to draw on, or processes cannot be seen"),
    ("125", "options are wrong"),
    ("otherwise", "a signal ended it: it ends by the same signal"),
];

/// Writes everything.
pub fn main(args: &Args, command: &Command) -> ExitCode {
    match write(&args.dir, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn write(dir: &Path, command: &Command) -> Result<()> {
    let (pages, completions) = (dir.join("man/man1"), dir.join("completions"));
    for dir in [&pages, &completions] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    man::write(command, &pages)?;
    let mut completed = with_names(command.clone());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut completed, "faultless", &completions)?;
    }
    std::fs::write(dir.join("reference.md"), reference::text())?;
    Ok(())
}

/// The command with the names of the tables as values of its arguments, for shells to complete.
fn with_names(command: Command) -> Command {
    let first =
        |meaning: &'static str| meaning.trim().split(". ").next().unwrap_or_default().trim_end_matches('.');
    let counters = || COUNTERS.iter().map(|c| PossibleValue::new(c.name).help(first(c.meaning)));
    let knobs = || KNOBS.iter().map(|k| PossibleValue::new(k.name).help(first(k.meaning)));
    let settings = || KNOBS.iter().map(|k| PossibleValue::new(format!("{}=", k.name)).help(first(k.meaning)));
    let set =
        |command: Command| command.mut_arg("set", |arg| arg.value_parser(PossibleValuesParser::new(settings())));
    let event =
        |command: Command| command.mut_arg("event", |arg| arg.value_parser(PossibleValuesParser::new(counters())));
    let either = |command: Command| {
        command.mut_arg("knobs", |arg| arg.value_parser(PossibleValuesParser::new(knobs().chain(settings()))))
    };
    command
        .mut_subcommand("run", set)
        .mut_subcommand("stat", |command| event(set(command)))
        .mut_subcommand("sysctl", either)
}
