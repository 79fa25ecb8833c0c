//! The programs of `faultless bench spf`: threads that fault, alone or beside one that changes the address space. The
//! memory is the kernel's, or a region's with speculative faults off or on.

mod bare;
mod faults;
mod field;
mod samples;
mod starts;
mod store;

use std::io;

use clap::ValueEnum;
use faultless::region::{Delivery, Region, set_speculative};
use faultless_page::stats::Counter;

pub use samples::{EDGES, Latency};

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The kernel's, as found.
    Kernel,
    /// A region's, each fault by the path that waits for threads that change the region.
    Classic,
    /// A region's, with speculative faults.
    Speculative,
    /// The same, with windows that grow; the others bring one page a fault.
    Windows,
    /// A region's. Faults wait for all threads that change anything in it, as with one lock for the address space. Its
    /// pages come from a backing that may not be read meanwhile.
    OneLock,
    /// A region's with speculative faults and such a backing, which may be read meanwhile.
    Backed,
    /// Memory of a userfaultfd, with the system calls of a region and nothing else.
    Bare,
}

impl Way {
    /// Those that every table has.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Classic, Self::Speculative, Self::Windows];

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Classic => "classic",
            Self::Speculative => "speculative",
            Self::Windows => "speculative, windows",
            Self::OneLock => "one lock",
            Self::Backed => "speculative, backed",
            Self::Bare => "system calls alone",
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Threads touch all pages of a mapping each, and drop them.
    Touch,
    /// Threads map, use and unmap blocks.
    Blocks,
    /// Threads map fresh memory, touch it, and unmap it.
    Anonymous,
    /// The same with a private mapping of a file.
    Private,
    /// The same with a shared one.
    Shared,
    /// Threads load a store each.
    Store,
    /// Threads start others, which touch memory of theirs: how long that takes.
    Starts,
    /// Threads start others: how long the call takes.
    Creates,
}

/// What another thread does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// There is none.
    Nobody,
    /// It maps and unmaps without a pause.
    Maps,
    /// The same where the others' memory ends: what it maps becomes one area with theirs, and is cut off again.
    Near,
    /// It maps, populates and unmaps without a pause.
    Unmaps,
}

/// How missing pages are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// By a signal in the thread that faults.
    Signal,
    /// By handler threads.
    Thread,
}

/// Options of the program.
#[derive(clap::Args, Clone, Copy)]
pub struct Spf {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    work: Work,
    #[arg(long, default_value = "nobody")]
    beside: Beside,
    #[arg(long, default_value = "signal")]
    by: By,
    /// Threads that fault.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// For how long.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Pages that a fault brings, unless windows grow.
    #[arg(long, default_value_t = 1)]
    window: usize,
    /// Whether each access is timed.
    #[arg(long)]
    timed: bool,
}

impl Spf {
    fn delivery(&self) -> Delivery {
        match self.by {
            By::Signal => Delivery::Signal,
            By::Thread => Delivery::Thread,
        }
    }
}

/// What was reached.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Reached {
    /// How many a second: pages, blocks, starts.
    pub rate: f64,
    /// How often a second the thread beside changed the address space.
    pub changes: f64,
    /// Faults of regions, and how those ended that were tried speculatively, as [`ENDS`].
    pub ends: [u64; ENDS.len()],
    /// Times, where they were taken.
    pub latency: Option<Latency>,
}

/// What is counted of a region's faults.
pub const ENDS: [Counter; 7] = [
    Counter::RegionPgfault,
    Counter::SpeculativePgfault,
    Counter::SpfVmaChanged,
    Counter::SpfVmaNoanon,
    Counter::SpfVmaNotsup,
    Counter::SpfVmaAccess,
    Counter::SpfPmdChanged,
];

/// Runs it.
pub fn run(what: Spf) -> io::Result<Reached> {
    set_speculative(!matches!(what.way, Way::Classic | Way::OneLock));
    let reached = match (what.way, what.work) {
        (Way::Bare, _) => bare::run(&what)?,
        (_, Work::Starts | Work::Creates) => starts::run(&what)?,
        (_, Work::Store) => store::run(&what)?,
        _ => faults::run(&what)?,
    };
    Ok(Reached { ends: ENDS.map(Region::counted), ..reached })
}
