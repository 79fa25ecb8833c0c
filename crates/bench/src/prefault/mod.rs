//! `faultless bench prefault`: the tables of the prefaulting patch of 2004. They are made on this machine, with the
//! kernel's ways and regions in the same run, and on up to 512 simulated processors.

pub mod costs;
mod plot;
mod programs;
mod real;
mod runs;
mod simulated;
mod then;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::parts::{self, Session};
use runs::Runs;

/// Options of `faultless bench prefault`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    parts: parts::Options<Part>,
    /// Writes the plot of the simulation to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The Python that has the modules.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
}

/// What can be measured or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 2 GiB by one thread, touched and computed on.
    Large,
    /// From one thread to four times as many as there are CPUs.
    Threads,
    /// Other orders of pages; with --full by several threads, too.
    Patterns,
    /// Several arrays in turns, with streams of a thread, or of a thread in one area.
    Arrays,
    /// Memory that lay idle.
    Cold,
    /// Costs of this machine, and the simulation beside it.
    Validate,
    /// The tables of 2004, each row beside what is simulated.
    Tables,
    /// One lock, prefaulting, speculation, both, and both with prezeroed frames, on up to 512 processors.
    Many,
    /// Real programs under faultless.
    Programs,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let mut runs = Runs::new(args.parts.context(&session, &args.python)?)?;
    parts::try_open(&[args.svg.as_deref()])?;
    session.introduce(runs.missing());
    let mut results = simulated::Results::default();
    let mut outcomes = Vec::new();
    let aims = args.parts.run(&session, |part, aims| match part {
        Part::Large => real::large(&mut runs, aims),
        Part::Threads => real::threads(&mut runs),
        Part::Patterns => real::patterns(&mut runs, aims),
        Part::Arrays => real::arrays(&mut runs),
        Part::Cold => real::cold(&mut runs),
        Part::Validate => simulated::validate(&mut runs, &mut results),
        Part::Tables => then::tables(&mut results.tables),
        Part::Many => simulated::many(&runs.context, &mut results, aims),
        Part::Programs => outcomes = programs::programs(&runs.context, &session.machine, session.start, aims),
    });
    args.parts.close(&session, &aims, || runs.json(&session.machine, &results, &outcomes))?;
    args.svg.as_ref().map_or(Ok(()), |path| parts::save(path, &plot::svg(&results)?))
}
