//! The rows, the ways, and what is aimed at.

use std::process::Command;

use clap::ValueEnum;

use super::{Measured, TOUCHED};
use crate::aims::Aims;
use crate::plan::{Launch, Row, Section};
use crate::programs;
use crate::rule::Aim;
use crate::table;
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::median;

/// The rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// The first touch of 1.5 GiB.
    Touch,
    /// Python starts, and ends.
    Python,
    /// gcc -O0.
    Gcc,
    /// Polars, join and group by.
    Polars,
    /// make, several C files at once; with --full.
    Make,
    /// NumPy; with --full.
    Numpy,
    /// Node; with --full.
    Node,
    /// Java; with --full.
    Java,
    /// DuckDB; with --full.
    Duckdb,
    /// PyArrow; with --full.
    Pyarrow,
    /// pandas reads a table from text; with --full.
    Pandas,
    /// ld joins object files; with --full.
    Ld,
    /// ImageMagick; with --full.
    Magick,
    /// A script like configure; with --full.
    Configure,
}

/// Those of the default time.
pub const DEFAULT: [Work; 4] = [Work::Touch, Work::Python, Work::Gcc, Work::Polars];
/// Those on memory that is in use.
pub const IN_USE: [Work; 4] = [Work::Polars, Work::Java, Work::Duckdb, Work::Pyarrow];

impl Work {
    pub fn row(self) -> Row {
        let title = |title: &str| Row::new("cold", Section::Programs, title);
        match self {
            Self::Touch => {
                title("first touch of 1.5 GiB").looping(|c| format!("first --size {} --busy 0", c.size(TOUCHED)))
            }
            Self::Python => title("Python starts").program(|c| {
                let python = Command::new(&c.python).args(["-c", "import sys; print(sys.executable)"]).output();
                let found = python.map_err(|error| format!("not installed: {} ({error})", c.python))?;
                let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                Ok(Launch::new(path, ["-c", "import json, decimal, asyncio"]))
            }),
            Self::Gcc => programs::gcc(),
            Self::Polars => programs::polars("polars"),
            Self::Make => programs::make(),
            Self::Numpy => programs::numpy(),
            Self::Node => programs::node(),
            Self::Java => programs::java(false).swap_remove(0),
            Self::Duckdb => programs::duckdb(),
            Self::Pyarrow => programs::pyarrow(),
            Self::Pandas => programs::pandas(),
            Self::Ld => programs::ld(),
            Self::Magick => programs::magick(),
            Self::Configure => programs::configure(),
        }
    }
}

impl Work {
    /// What the reserve is to give.
    pub fn aims(self, aims: &mut Aims, title: &str, rounds: &Rounds<Way, Measured>) {
        let beside = |other: Way| ratio(rounds, &Way::Reserve, &other, |run| run.sample.wall);
        let faster = |other: Way| ratio(rounds, &other, &Way::Reserve, |run| run.sample.wall);
        let named = |other: Way| format!("{title}, with the reserve, beside {}", other.name());
        match self {
            Self::Touch => {
                aims.at_least(&named(Way::Plain), 5.0, faster(Way::Plain));
                aims.at_least(&named(Way::Huge), 10.0, faster(Way::Huge));
            }
            Self::Polars | Self::Java | Self::Numpy | Self::Gcc => {
                aims.at_most(&named(Way::Warm), 1.1, beside(Way::Warm));
                aims.at_most(&named(Way::Plain), 1.0, beside(Way::Plain));
            }
            _ => aims.at_most(&named(Way::Plain), 1.0, beside(Way::Plain)),
        }
    }
}

/// On memory that is in use: what a second run is to do, beside the better setting of the kernel.
pub fn aims_in_use(aims: &mut Aims, title: &str, rounds: &Rounds<Way, Measured>, budget: u64) {
    let middle = |way: &Way| median(&rounds.get(way)?.iter().map(|run| run.sample.wall).collect::<Vec<_>>());
    let plain_or_huge = [Way::Plain, Way::Huge].into_iter().filter_map(|way| Some((way, middle(&way)?)));
    let better = plain_or_huge.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(Way::Plain, |(way, _)| way);
    let beside = ratio(rounds, &Way::Again, &better, |run| run.sample.wall);
    aims.at_most(&format!("{title}, the second time, beside {}", better.name()), 1.0, beside);
    let peaks = |way: &Way| rounds.get(way).into_iter().flatten();
    let plain = peaks(&Way::Plain).filter_map(|run| run.sample.peak).map(|peak| peak.bytes + budget).max();
    // The limit is for each run, so the one that is nearest to its own, or beyond it, decides.
    let limits = peaks(&Way::Again).filter_map(|run| Some((run.sample.peak?.bytes, plain?.max(run.earlier?))));
    if let Some((peak, limit)) = limits.min_by_key(|(peak, limit)| i128::from(*limit) - i128::from(*peak)) {
        let [shown, most] = [peak, limit].map(|bytes| table::bytes(bytes as f64));
        let line = format!("{title}, the second time: a peak of {shown}, aimed at {most} at most");
        aims.counted(line, peak as f64, Aim::AtMost(limit as f64));
    }
}

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Plain,
    Huge,
    Run,
    /// After a run that left notes of the program.
    Again,
    Reserve,
    /// Without idleness, after another process touched memory.
    Warm,
}

impl Way {
    pub const ALL: [Self; 6] = [Self::Plain, Self::Huge, Self::Run, Self::Again, Self::Reserve, Self::Warm];

    /// Those on memory that is in use.
    pub const IN_USE: [Self; 4] = [Self::Plain, Self::Huge, Self::Run, Self::Again];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Huge => "huge pages always",
            Self::Run => "run, the first time",
            Self::Again => "run, the second time",
            Self::Reserve => "run, the first time, with the reserve",
            Self::Warm => "run, the first time, memory in use before",
        }
    }
}
