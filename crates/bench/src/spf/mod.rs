//! `faultless bench spf`: faults beside changes of the address space, as the patches for speculative page faults of
//! 2019 measured them. The kernel, the path that waits, and the speculative path are in the same run.

mod compile;
mod faults;
mod latency;
mod runs;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::machine::Machine;
use super::parts;
use super::plan::Context;
use runs::Runs;

/// Options of `faultless bench spf`.
#[derive(clap::Args)]
pub struct Args {
    /// More rounds, and both ways of delivery everywhere.
    #[arg(long)]
    full: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Short times and one round, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Faults alone.
    Alone,
    /// Faults while another thread maps and unmaps.
    Beside,
    /// Threads that allocate, use and free blocks.
    Blocks,
    /// Anonymous memory, a private file, a shared file.
    Files,
    /// What a region adds to the system calls of a fault.
    Cost,
    /// How long single faults take while another thread maps and unmaps.
    Latency,
    /// Applications and threads that start while another thread unmaps.
    Starts,
    /// A compile job, which has nothing to gain.
    Compile,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let start = Instant::now();
    let dir = tempfile::tempdir().context("a folder for the inputs")?;
    let machine = Machine::read();
    let context = Context { full: args.full, quick: args.quick, ..Context::new(&machine, dir.path())? };
    let mut runs = Runs::new(context);
    let mut aims = Aims::default();
    println!("{}\n", machine.line());
    for part in parts::wanted(&args.only, start) {
        match part {
            Part::Alone => faults::alone(&mut runs, &mut aims),
            Part::Beside => faults::beside(&mut runs, &mut aims),
            Part::Blocks => faults::blocks(&mut runs),
            Part::Files => faults::files(&mut runs, &mut aims),
            Part::Cost => faults::cost(&mut runs, &mut aims),
            Part::Latency => latency::faults(&mut runs),
            Part::Starts => latency::starts(&mut runs),
            Part::Compile => compile::table(&mut runs, &mut aims),
        }
    }
    parts::close(&aims, start);
    if let Some(path) = &args.json {
        parts::save(path, &runs.json(&machine)?)?;
    }
    Ok(())
}
