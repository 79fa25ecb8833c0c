//! `faultless bench prefault`: the tables of the prefaulting patch of 2004. They are made on this machine, with the
//! kernel's ways and regions in the same run, and on up to 512 simulated processors.

mod costs;
mod plot;
mod programs;
mod real;
mod runs;
mod simulated;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::machine::Machine;
use super::parts;
use super::plan::Context;
use runs::Runs;

/// Options of `faultless bench prefault`.
#[derive(clap::Args)]
pub struct Args {
    /// More rounds, every pattern by several threads, and every number of simulated processors.
    #[arg(long)]
    full: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the plot of the simulation to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The Python that has the modules.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
    /// Tiny sizes and one round, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

/// What can be measured or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 2 GiB by one thread, touched and computed on.
    Large,
    /// From one thread to four times as many as there are CPUs.
    Threads,
    /// Other orders of pages.
    Patterns,
    /// Several arrays in turns, with streams of a thread, or of a thread in one area.
    Arrays,
    /// Memory that lay idle.
    Cold,
    /// Costs of this machine, and the simulation beside it.
    Validate,
    /// The tables of 2004, simulated.
    Tables,
    /// One lock, prefaulting, speculation, both, and both with prezeroed frames, on up to 512 processors.
    Many,
    /// Real programs under faultless.
    Programs,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let start = Instant::now();
    let dir = tempfile::tempdir().context("a folder for the inputs")?;
    let machine = Machine::read();
    let (full, quick, python) = (args.full, args.quick, args.python.clone());
    let context = Context { full, quick, python, ..Context::new(&machine, dir.path())? };
    let mut runs = Runs::new(context)?;
    let mut aims = Aims::default();
    let mut results = simulated::Results::default();
    let mut outcomes = Vec::new();
    println!("{}\n", machine.line());
    parts::say_missing(runs.missing());
    for part in parts::wanted(&args.only, start) {
        match part {
            Part::Large => real::large(&mut runs, &mut aims),
            Part::Threads => real::threads(&mut runs),
            Part::Patterns => real::patterns(&mut runs, &mut aims),
            Part::Arrays => real::arrays(&mut runs),
            Part::Cold => real::cold(&mut runs),
            Part::Validate => simulated::validate(&mut runs, &mut results),
            Part::Tables => simulated::tables(args.full, &mut results),
            Part::Many => simulated::many(&runs.context, &mut results, &mut aims),
            Part::Programs => outcomes = programs::programs(&runs.context, &machine, start, &mut aims),
        }
    }
    parts::close(&aims, start);
    if let Some(path) = &args.svg {
        parts::save(path, &plot::svg(&results)?)?;
    }
    if let Some(path) = &args.json {
        parts::save(path, &runs.json(&machine, &results, &outcomes)?)?;
    }
    Ok(())
}
