//! `faultless bench prezero`: the tables of the prezeroing patches of 2004 and 2005, on this machine. The kernel's
//! settings and faultless are in the same run. More tables show what those could not.

mod day;
mod neighbour;
mod orders;
mod runs;
mod small;
mod sweep;
mod tables;
mod then;

use anyhow::Result;
use clap::ValueEnum;

use super::parts::{self, Session};
use runs::Runs;

/// Options of `faultless bench prezero`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    parts: parts::Options<Part>,
    /// The Python that has NumPy.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
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
    /// Many programs that live shortly, with rests: a day of a build machine, in small.
    Day,
    /// From which order on a block wakes the scrubber, and what blocks of smaller orders could gain.
    Orders,
    /// The engines by themselves.
    Engines,
    /// The tables of the patches themselves; nothing is measured.
    Then,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let mut runs = Runs::new(args.parts.context(&session, &args.python)?)?;
    session.introduce(runs.missing());
    let aims = args.parts.run(&session, |part, aims| match part {
        Part::Burst => tables::burst(&mut runs, aims),
        Part::Sustained => tables::sustained(&mut runs, aims),
        Part::Lines => tables::lines(&mut runs, aims),
        Part::Program => tables::program(&mut runs),
        Part::Neighbour => neighbour::table(&mut runs, aims),
        Part::Day => day::table(&mut runs, aims),
        Part::Orders => {
            orders::table(&mut runs);
            small::table(&runs);
        }
        Part::Engines => {
            let figures = sweep::table(runs.context.quick, session.machine.memory, aims);
            runs.keep("engines", &figures);
        }
        Part::Then => then::tables(),
    });
    runs.print_scrubbing();
    args.parts.close(&session, &aims, || runs.json(&session.machine))
}
