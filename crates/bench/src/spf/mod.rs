//! `faultless bench spf`: faults beside changes of the address space, as the patches for speculative page faults of
//! 2019 measured them. The kernel, the path that waits, and the speculative path are in the same run.

mod compile;
mod faults;
mod latency;
mod runs;
mod simulated;
mod validate;

use anyhow::Result;
use clap::ValueEnum;

use super::parts::{self, Session};
use super::plan;
use runs::Runs;

/// Options of `faultless bench spf`.
pub type Args = parts::Options<Part>;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Faults alone; with --full by both ways of delivery.
    Alone,
    /// Faults while another thread maps and unmaps.
    Beside,
    /// Threads that allocate, use and free blocks; with --full by both ways of delivery.
    Blocks,
    /// Threads that load a store each, by a library's hash table: paths of this machine's files.
    Store,
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
    /// The tables of 2019 on up to 1024 processors, simulated.
    Simulated,
    /// The simulation beside runs of this machine, with one and two threads.
    Validate,
}

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let mut runs = Runs::new(args.context(&session, plan::PYTHON)?);
    session.introduce(&[]);
    let aims = args.run(&session, |part, aims| match part {
        Part::Alone => faults::alone(&mut runs, aims),
        Part::Beside => faults::beside(&mut runs, aims),
        Part::Blocks => faults::blocks(&mut runs),
        Part::Store => faults::store(&mut runs),
        Part::Files => faults::files(&mut runs, aims),
        Part::Cost => faults::cost(&mut runs, aims),
        Part::Latency => latency::faults(&mut runs),
        Part::Starts => latency::starts(&mut runs),
        Part::Compile => compile::table(&mut runs, aims),
        Part::Simulated => simulated::tables(),
        Part::Validate => validate::table(&mut runs),
    });
    args.close(&session, &aims, || runs.json(&session.machine))
}
