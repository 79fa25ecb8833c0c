//! `faultless bench`: what faultless does, measured beside the kernel and other tools, one subcommand a subject.

mod aims;
mod before;
mod change;
mod cold;
mod contender;
mod contenders;
mod files;
mod format;
mod group;
mod huge;
mod hugecache;
mod loops;
mod machine;
mod measure;
mod parts;
mod peak;
mod plan;
mod plot;
mod prefault;
mod prezero;
mod process;
mod profile;
mod programs;
#[cfg(test)]
mod published;
mod read_ahead;
mod rmap;
mod rule;
mod run;
mod schedule;
mod setting;
mod spf;
mod table;
mod turns;
mod undo;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};

/// Measures faultless beside the kernel and other tools.
#[derive(Parser)]
#[command(name = "faultless-bench", bin_name = "faultless bench", version)]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Loops and real programs: plain, with huge pages always, under faultless and under other allocators.
    Run(run::Args),
    /// Files in memory and beyond it: the kernel's page cache, tmpfs, and the cache of the library.
    Hugecache(hugecache::Args),
    /// Programs that read files by mmap, in memory and not: as they are, with advice, and with files read ahead.
    Files(files::Args),
    /// Programs on a machine whose free memory was idle, with and without the warm reserve.
    Cold(cold::Args),
    /// What windows are worth: first touches of memory by the kernel and by regions, and on simulated processors.
    Prefault(prefault::Args),
    /// What zeroing ahead is worth: first touches of pages with and without it, and what it costs others.
    Prezero(prezero::Args),
    /// Snapshots of memory: beside fork, and beside lists of owners for each page; and a save beside a writer.
    Rmap(rmap::Args),
    /// Faults beside changes of the address space: the kernel's, and a region's with speculation off and on.
    Spf(spf::Args),
    /// One of the loops by itself; it prints its cost and a checksum.
    #[command(hide = true, subcommand)]
    Loop(loops::Loop),
    /// Writes its manual page into a directory.
    #[command(hide = true)]
    Generate { dir: PathBuf },
}

fn main() -> ExitCode {
    match Args::parse().bench {
        Bench::Run(args) => exit_code(run::main(&args)),
        Bench::Hugecache(args) => exit_code(hugecache::main(&args)),
        Bench::Files(args) => exit_code(files::main(&args)),
        Bench::Cold(args) => exit_code(cold::main(&args)),
        Bench::Prefault(args) => exit_code(prefault::main(&args)),
        Bench::Prezero(args) => exit_code(prezero::main(&args)),
        Bench::Rmap(args) => exit_code(rmap::main(&args)),
        Bench::Spf(args) => exit_code(spf::main(&args)),
        Bench::Loop(which) => loops::main(which),
        Bench::Generate { dir } => exit_code(generate(&dir)),
    }
}

fn generate(dir: &Path) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let man = clap_mangen::Man::new(Args::command());
    man.title("faultless-bench").section("1").render(&mut bytes)?;
    let path = dir.join("faultless-bench.1");
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())
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
