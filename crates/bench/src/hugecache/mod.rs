//! `faultless bench hugecache`: files in memory, and files larger than memory. The tests of IOzone are those by which
//! the patches for huge pages in the page cache of 2013 were measured. The kernel's page cache on the same file system,
//! tmpfs and the library are in the same run.

mod beyond;
mod inside;
mod numpy;
mod runs;
mod weights;

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::ValueEnum;

use super::parts::{self, Session};
use super::plan;
use runs::Runs;

/// Options of `faultless bench hugecache`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    parts: parts::Options<Part>,
    #[command(flatten)]
    place: parts::Place,
    /// Rounds of each part; the default are its own.
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// The Python of the rows that need NumPy and the package of faultless.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = plan::PYTHON, value_name = "PROGRAM")]
    python: String,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// First touches of files in memory, and what is already mapped, by one thread.
    First,
    /// The seven tests of IOzone, mapped; with --full by all thread counts of 2013.
    Mapped,
    /// The same by calls.
    Calls,
    /// A file four times as large as the memory allowed: records in random order.
    Random,
    /// The same, in lists that are known beforehand.
    List,
    /// The same file in its order.
    Sequential,
    /// Records in random order, each changed.
    Writes,
    /// Records of which a few are read often.
    Zipfian,
    /// Parts of 2 MiB in random order.
    Large,
    /// NumPy on an array that is larger than the memory allowed.
    Numpy,
    /// All tensors of a safetensors file that is not in memory.
    Weights,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let files = args.place.folder()?;
    let mut runs = Runs::new(args.parts.context(&session, &args.python)?, args.rounds, files.path())?;
    session.introduce(&[]);
    println!("{}\n", runs.about_files());
    let aims = args.parts.run(&session, |part, aims| match part {
        Part::First => inside::first(&mut runs, aims),
        Part::Mapped => inside::mapped(&mut runs, aims),
        Part::Calls => inside::calls(&mut runs, aims),
        Part::Random => beyond::random(&mut runs, aims),
        Part::List => beyond::list(&mut runs, aims),
        Part::Sequential => beyond::sequential(&mut runs, aims),
        Part::Writes => beyond::writes(&mut runs),
        Part::Zipfian => beyond::zipfian(&mut runs, aims),
        Part::Large => beyond::large(&mut runs, aims),
        Part::Numpy => numpy::arrays(&mut runs, aims),
        Part::Weights => weights::load(&mut runs, aims),
    });
    args.parts.close(&session, &aims, || runs.json(&session.machine))
}
