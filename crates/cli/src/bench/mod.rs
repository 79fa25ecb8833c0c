//! `faultless bench`: what faultless does, measured beside the kernel and other tools, one subcommand a subject.

mod aims;
mod contenders;
mod huge;
mod loops;
mod machine;
mod measure;
mod parts;
mod plan;
mod prefault;
mod prezero;
mod process;
mod programs;
mod run;
mod schedule;
mod spf;
mod table;
mod turns;
mod verdict;

use std::process::ExitCode;

use clap::Subcommand;

/// Options of `faultless bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Loops and real programs: plain, with huge pages always, under faultless and under other allocators.
    Run(run::Args),
    /// What windows are worth: first touches of memory by the kernel and by regions, and on simulated processors.
    Prefault(prefault::Args),
    /// What zeroing ahead is worth: first touches of pages with and without it, and what it costs others.
    Prezero(prezero::Args),
    /// Faults beside changes of the address space: the kernel's, and a region's with speculation off and on.
    Spf(spf::Args),
    /// One of the loops by itself; it prints its cost and a checksum.
    #[command(hide = true, subcommand)]
    Loop(loops::Loop),
}

/// Runs a benchmark.
pub fn main(args: Args) -> ExitCode {
    match args.bench {
        Bench::Run(args) => exit_code(run::main(&args)),
        Bench::Prefault(args) => exit_code(prefault::main(&args)),
        Bench::Prezero(args) => exit_code(prezero::main(&args)),
        Bench::Spf(args) => exit_code(spf::main(&args)),
        Bench::Loop(which) => loops::main(which),
    }
}

fn exit_code(end: anyhow::Result<()>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faultless: {error:#}");
            ExitCode::FAILURE
        }
    }
}
