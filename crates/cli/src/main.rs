//! The `faultless` command.

mod bench;
mod doctor;
mod generate;
mod limits;
mod output;
mod own;
mod profile;
mod record;
mod replaced;
mod report;
mod run;
mod said;
mod settings;
mod stat;
mod sysctl;
mod top;
mod warm;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// Takes page faults off a program's critical path.
#[derive(Parser)]
#[command(name = "faultless", version, about)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a program without page faults in its way.
    Run(Box<run::Args>),
    /// Shows what is counted in programs, while they run.
    Stat(Box<stat::Args>),
    /// Shows processes that take page faults, and what is done for them, on the whole screen.
    Top(top::Args),
    /// Records a program's page faults: how many, where, from which code, and what they cost.
    Record(Box<record::Args>),
    /// Says what a recording holds.
    Report(report::Args),
    /// Reads and changes what is set.
    Sysctl(sysctl::Args),
    /// Measures faultless beside the kernel and other tools.
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// Holds memory ready, where a virtual machine gives idle memory back to its host.
    #[command(subcommand)]
    Warm(warm::Command),
    /// Shows and changes what is known of programs from earlier runs.
    #[command(subcommand)]
    Profile(profile::Command),
    /// Says what this machine allows and what its memory costs.
    Doctor(doctor::Args),
    /// Writes manual pages, completions for shells and the reference.
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    run::with_room(command)
}

fn command() -> ExitCode {
    match Args::try_parse() {
        Ok(Args { command: Command::Run(args) }) => run::main(*args),
        Ok(Args { command: Command::Stat(args) }) => stat::main(*args),
        Ok(Args { command: Command::Top(args) }) => top::main(args),
        Ok(Args { command: Command::Record(args) }) => record::main(*args),
        Ok(Args { command: Command::Report(args) }) => report::main(&args),
        Ok(Args { command: Command::Sysctl(args) }) => sysctl::main(&args),
        Ok(Args { command: Command::Bench(args) }) => bench::main(&args),
        Ok(Args { command: Command::Warm(command) }) => warm::main(&command),
        Ok(Args { command: Command::Profile(command) }) => {
            profile::main(&command, |name| run::program::find(name, std::env::var_os("PATH").as_deref()))
        }
        Ok(Args { command: Command::Doctor(args) }) => doctor::main(args),
        Ok(Args { command: Command::Generate(args) }) => generate::main(&args, &Args::command()),
        Err(error) => refuse(&error),
    }
}

/// Help is printed; what is wrong with the arguments is said in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return match run::check_output().and_then(|()| error.print()) {
                // A reader who stops has seen enough.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    run::complain(&format!("cannot write: {error}"));
                    ExitCode::from(run::FAILED)
                }
                _ => ExitCode::SUCCESS,
            };
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => {
            let text = error.to_string();
            let words: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            run::complain(&format!("{} (see --help)", words.join(" ").trim_start_matches("error: ")));
        }
    }
    ExitCode::from(run::FAILED)
}
