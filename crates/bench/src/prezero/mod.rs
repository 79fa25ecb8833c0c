//! `faultless bench prezero`: the tables of the prezeroing patches of 2004 and 2005, on this machine. The kernel's
//! settings and faultless are in the same run. More tables show what those could not.

mod neighbour;
mod orders;
mod runs;
mod sweep;
mod tables;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::machine::Machine;
use super::parts;
use super::plan::Context;
use runs::Runs;

/// Options of `faultless bench prezero`.
#[derive(clap::Args)]
pub struct Args {
    /// More rounds, and every number of lines.
    #[arg(long)]
    full: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Python that has NumPy.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
    /// Tiny sizes and one round, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Memory that was zeroed while the program rested.
    Burst,
    /// Ten mappings in rapid succession.
    Sustained,
    /// More and more lines of each page.
    Lines,
    /// A real program.
    Program,
    /// A busy program on another CPU.
    Neighbour,
    /// From which order on a block wakes the scrubber.
    Orders,
    /// The engines by themselves.
    Engines,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let start = Instant::now();
    let dir = tempfile::tempdir().context("a folder for the inputs")?;
    let machine = Machine::read();
    let context = Context {
        python: args.python.clone(),
        full: args.full,
        quick: args.quick,
        ..Context::new(&machine, dir.path())?
    };
    let mut runs = Runs::new(context)?;
    let mut aims = Aims::default();
    println!("{}\n", machine.line());
    parts::say_missing(runs.missing());
    for part in parts::wanted(&args.only, start) {
        match part {
            Part::Burst => tables::burst(&mut runs, &mut aims),
            Part::Sustained => tables::sustained(&mut runs, &mut aims),
            Part::Lines => tables::lines(&mut runs, &mut aims),
            Part::Program => tables::program(&mut runs),
            Part::Neighbour => neighbour::table(&mut runs, &mut aims),
            Part::Orders => orders::table(&mut runs),
            Part::Engines => {
                let figures = sweep::table(runs.context.quick, machine.memory, &mut aims);
                runs.keep("engines", &figures);
            }
        }
    }
    runs.print_scrubbing();
    parts::close(&aims, start);
    if let Some(path) = &args.json {
        parts::save(path, &runs.json(&machine)?)?;
    }
    Ok(())
}
