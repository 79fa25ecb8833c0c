//! What a recording says, as data: text, JSON and all other forms are made from [`Summary`].
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the data; names and meanings are those of the JSON, see docs/record.md |
//! | `read` | a file's chunks, put in the order of time |
//! | `build` | the records, added up |
//! | `tables` | mappings, functions and call stacks, added up |
//! | `weight` | sums, and what they are scaled to |
//! | `place` | the mapping that an address belongs to, and the kind of a fault |
//! | `avoid` | which faults could be avoided, and by what |
//! | `served` | what faultless did in a covered run |
//! | `notes`, `advice` | what to know, what to do |

mod advice;
mod avoid;
mod build;
mod notes;
mod place;
mod read;
mod served;
mod tables;
mod weight;

use std::rc::Rc;

use serde::{Deserialize, Serialize, Serializer};

use crate::file::{Machine, Program};

pub use avoid::{Avoidable, Way};
pub use place::Kind;
pub use read::read;
pub use served::Served;

/// The version of the JSON.
pub const VERSION: u32 = 1;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// 1.
    pub version: u32,
    /// What was recorded, and how.
    pub recording: Recording,
    /// How many faults there were.
    pub faults: Faults,
    /// What they cost.
    pub time: Time,
    /// By kind.
    pub kinds: Vec<ByKind>,
    /// By mapping, with the most faults first; so are all that follow.
    pub mappings: Vec<ByMapping>,
    /// By process.
    pub processes: Vec<ByProcess>,
    /// By thread.
    pub threads: Vec<ByThread>,
    /// By the function that touched the memory.
    pub functions: Vec<ByFunction>,
    /// By call stack. The JSON has as many as [`bounded`] gives.
    #[serde(serialize_with = "in_bounds")]
    pub stacks: Vec<ByStack>,
    /// Rows that these tables have no room for.
    pub left_out: LeftOut,
    /// Over time.
    pub timeline: Timeline,
    /// What could be avoided, and by what.
    pub avoidable: Vec<Avoidable>,
    /// What faultless did; none: it was not there, or has left no counters.
    pub served: Option<Served>,
    /// What to do.
    pub advice: Advice,
    /// What the reader has to know of these figures.
    pub notes: Vec<String>,
    /// Single faults, evenly chosen where there are too many. They are no part of the JSON.
    #[serde(skip)]
    pub samples: Vec<Sampled>,
    /// One of this many is among them.
    #[serde(skip)]
    pub samples_one_of: u64,
}

/// Rows that tables have no room for: those with the fewest faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Of mappings.
    pub mappings: u64,
    /// Of processes.
    pub processes: u64,
    /// Of threads.
    pub threads: u64,
    /// Of functions.
    pub functions: u64,
    /// Of call stacks, in forms that name the functions of each: they are one row there.
    pub stacks: u64,
}

/// A fault that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Nanoseconds since the beginning.
    pub time_ns: u64,
    /// Nanoseconds between its records; none: it was not timed.
    pub took_ns: Option<u64>,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its kind.
    pub kind: Kind,
    /// What was touched.
    pub address: u64,
    /// How many faults it stands for.
    pub period: u64,
    /// The function that touched it.
    pub function: Rc<str>,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recording {
    /// The program.
    #[serde(flatten)]
    pub program: Program,
    /// How it ended.
    pub status: String,
    /// Seconds since 1970 at the beginning.
    pub unix_s: u64,
    /// Seconds that it took.
    pub wall_s: f64,
    /// Seconds of processors that it used; none: not known.
    pub cpu_s: Option<f64>,
    /// Bytes of memory that its largest process had at once; none: not known.
    pub peak_bytes: Option<u64>,
    /// Processes that there were, as far as records tell.
    pub processes: u64,
    /// Threads that there were, as far as records tell.
    pub threads: u64,
    /// One fault in this many has a record.
    pub period: u64,
    /// Records of faults.
    pub samples: u64,
    /// Records that were dropped, for want of room in a ring or in the file.
    pub lost: u64,
    /// Whether the file has its end.
    pub complete: bool,
    /// Where.
    #[serde(flatten)]
    pub machine: Machine,
}

/// How many faults there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// All of them.
    pub total: u64,
    /// Without input.
    pub minor: u64,
    /// With input.
    pub major: u64,
    /// Of all: those that stopped a thread at an instruction. Times and shares are of these.
    pub exceptions: u64,
    /// Of all: pages that the kernel brought in within a call (populate, mlock, direct I/O, exec), and the few before
    /// the program's first instruction.
    pub in_calls: u64,
    /// Of all: the same, and those of programs that were not recorded because of their rights, where there are such. Then
    /// nothing tells the one from the other, and `in_calls` is 0.
    pub not_recorded: u64,
    /// Where the total comes from.
    pub source: Origin,
}

/// Where a number of faults comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Nothing was counted.
    #[default]
    None,
    /// Counting events, and the kernel's own account of the program (`getrusage`). Exact.
    Counted,
    /// The kernel's own account alone. Exact.
    Getrusage,
    /// Records: the recording has no end.
    Samples,
}

/// What faults cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Time {
    /// Seconds in faults, of all threads together; none: not known.
    pub total_s: Option<f64>,
    /// As a part of the wall time. Above 1 where several threads fault at once, but never above their number.
    pub of_wall: Option<f64>,
    /// As a part of the processors' time, without waiting for input; at most 1.
    pub of_cpu: Option<f64>,
    /// Nanoseconds of one fault, the mean.
    pub per_fault_ns: Option<f64>,
    /// How that was found.
    pub source: TimeSource,
    /// Faults that were timed.
    pub timed: u64,
    /// Those of them that brought huge pages. Their time counts for huge pages however few they are.
    pub timed_huge: u64,
    /// Nanoseconds of a first touch of 4 KiB by the recorder itself.
    pub machine_fault_ns: Option<f64>,
}

/// From this part of a time on, faults take about all of it. The time of faults and that of the program are measured
/// apart, so the hundredths of their quotient mean nothing there.
const ABOUT_ALL: f64 = 0.95;

/// A part of a time, in words.
pub fn part_of_time(part: f64, digits: usize) -> String {
    if (ABOUT_ALL..=1.0).contains(&part) { "about all".into() } else { format!("{:.digits$} %", part * 100.0) }
}

/// How the time of a fault was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSource {
    /// Not at all.
    #[default]
    None,
    /// Faults of the program were timed.
    Timed,
    /// Faults of the recorder were: too few of the program's. Those of huge pages have their own time, if any was timed.
    Machine,
}

/// Part of the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// How many, estimated from the records.
    pub faults: u64,
    /// Of all, from 0 to 1.
    pub share: f64,
    /// Seconds; none: not known.
    pub time_s: Option<f64>,
    /// Records that this comes from.
    pub samples: u64,
}

/// Faults of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByKind {
    /// Which.
    pub kind: Kind,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
    /// Nanoseconds of one; none: not known.
    pub per_fault_ns: Option<f64>,
}

/// Faults in a mapping, or in several alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByMapping {
    /// The file's path, or what it is.
    pub name: String,
    /// What it is.
    pub class: String,
    /// The allocator that it probably belongs to.
    pub allocator: Option<String>,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
    /// How many such areas had faults, as far as they were told apart.
    pub areas: u64,
    /// Bytes of the largest of them.
    pub largest_bytes: u64,
}

/// Faults of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByProcess {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub name: String,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
}

/// Faults of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByThread {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
}

/// Faults at instructions of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByFunction {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
}

/// Faults with the same call stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByStack {
    /// Functions, the outermost first.
    #[serde(with = "frames")]
    pub frames: Vec<Rc<str>>,
    /// How many.
    #[serde(flatten)]
    pub part: Part,
}

/// Names of functions, which stacks share.
mod frames {
    use std::rc::Rc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(frames: &[Rc<str>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(frames.iter().map(|frame| &**frame))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Rc<str>>, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.into_iter().map(Into::into).collect())
    }
}

/// Bytes of names at most in forms that name the functions of each call stack.
const MOST_STACK_BYTES: usize = 32 << 20;
/// What the call stacks are called for which a form has no room.
pub const OTHERS: &str = "[other stacks]";

/// The first call stacks, as many as have room in a form that names the functions of each; and the others as one.
pub fn bounded(stacks: &[ByStack]) -> (&[ByStack], Option<ByStack>) {
    let mut room = MOST_STACK_BYTES;
    let fits = |by: &ByStack| {
        let bytes = by.frames.iter().map(|frame| frame.len()).sum();
        room.checked_sub(bytes).map(|rest| room = rest).is_some()
    };
    let (given, others) = stacks.split_at(stacks.iter().map(fits).take_while(|fits| *fits).count());
    let add = |sum: Part, by: &ByStack| Part {
        faults: sum.faults.saturating_add(by.part.faults),
        share: sum.share + by.part.share,
        time_s: by.part.time_s.map(|time| sum.time_s.unwrap_or(0.0) + time),
        samples: sum.samples.saturating_add(by.part.samples),
    };
    let rest = || ByStack { frames: vec![OTHERS.into()], part: others.iter().fold(Part::default(), add) };
    (given, (!others.is_empty()).then(rest))
}

fn in_bounds<S: Serializer>(stacks: &[ByStack], to: S) -> Result<S::Ok, S::Error> {
    let (given, rest) = bounded(stacks);
    to.collect_seq(given.iter().chain(&rest))
}

/// Faults over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// Seconds of one step.
    pub step_s: f64,
    /// Faults in each step from the beginning on.
    pub faults: Vec<u64>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Advice {
    /// `run`, `huge_pages`, `nothing`, `memory`, `unknown`.
    pub action: String,
    /// In words.
    pub text: String,
}
