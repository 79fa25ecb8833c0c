//! The `faultless` command.

mod bench;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Run(run::Args),
    /// Measures faultless beside the kernel and other tools.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run(args) => run::main(args),
        Command::Bench(args) => bench::main(args),
    }
}
