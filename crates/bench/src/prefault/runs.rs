//! Who touches the memory, in turns, and what each run took.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use faultless_sim::pattern::Pattern;

use super::programs::Outcome;
use super::simulated::Results;
use crate::contender::Contender;
use crate::contenders::Contenders;
use crate::loops::{By, Memory, Taken, Touched};
use crate::machine::Machine;
use crate::plan::{Context, Launch, Row, Section};
use crate::rule::Found;
use crate::turns::{self, Same, Turns, ratio};
use faultless_measure::paired::Ratio;

/// A way of getting memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The kernel as found.
    Plain,
    /// The kernel with huge pages always.
    Huge,
    /// The kernel with huge pages advised, as `numpy.zeros` does.
    Advised,
    /// The kernel, asked for all pages at once.
    Populate,
    /// A region with delivery by signal and windows of at most this order.
    Order(u32),
    /// The same with its own choice of windows.
    Signal,
    /// A region with a handler thread and its own choice of windows.
    Thread,
    /// A region whose faults follow each other so, by signals.
    SignalBy(By),
    /// The same with a handler thread.
    ThreadBy(By),
    /// As by signals, after frames were made ready.
    SignalReserved,
    /// As with a handler thread, after that.
    ThreadReserved,
}

impl Way {
    /// Those that take part in most tables.
    pub const MOST: [Way; 10] = [
        Way::Plain,
        Way::Huge,
        Way::Populate,
        Way::Order(0),
        Way::Order(3),
        Way::Order(5),
        Way::Signal,
        Way::Thread,
        Way::SignalReserved,
        Way::ThreadReserved,
    ];

    /// The kernel's, and regions with their own choice of windows.
    pub const OWN_CHOICE: [Way; 8] = [
        Way::Plain,
        Way::Huge,
        Way::Advised,
        Way::Populate,
        Way::Signal,
        Way::Thread,
        Way::SignalReserved,
        Way::ThreadReserved,
    ];

    /// As it stands in the tables.
    pub fn name(self) -> String {
        match self {
            Way::Plain => "kernel".into(),
            Way::Huge => "huge pages always".into(),
            Way::Advised => "huge pages advised, as by numpy.zeros".into(),
            Way::Populate => "MADV_POPULATE_WRITE".into(),
            Way::Order(order) => format!("faultless, order {order}"),
            Way::Signal => "faultless".into(),
            Way::Thread => "faultless, handler thread".into(),
            Way::SignalBy(By::Area) => "faultless, by thread and area".into(),
            Way::SignalBy(By::Thread) => "faultless, by thread".into(),
            Way::SignalBy(By::One) => "faultless, one stream for each thread".into(),
            Way::ThreadBy(By::Area) => "faultless, handler thread, by thread and area".into(),
            Way::ThreadBy(By::Thread) => "faultless, handler thread, by thread".into(),
            Way::ThreadBy(By::One) => "faultless, handler thread, one stream for each thread".into(),
            Way::SignalReserved => "faultless, after reserve".into(),
            Way::ThreadReserved => "faultless, handler thread, after reserve".into(),
        }
    }

    fn contender(self) -> Contender {
        if self == Way::Huge { Contender::Huge } else { Contender::Plain }
    }

    fn arguments(self) -> (Memory, Option<u32>) {
        match self {
            Way::Plain | Way::Huge => (Memory::Plain, None),
            Way::Advised => (Memory::Advised, None),
            Way::Populate => (Memory::Populate, None),
            Way::Order(order) => (Memory::Signal, Some(order)),
            Way::Signal | Way::SignalReserved | Way::SignalBy(_) => (Memory::Signal, None),
            Way::Thread | Way::ThreadReserved | Way::ThreadBy(_) => (Memory::Thread, None),
        }
    }
}

/// What is touched, and how.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Case {
    /// Name of its table.
    pub table: &'static str,
    /// Bytes.
    pub size: u64,
    /// Repetitions in one run.
    pub reps: u64,
    /// Threads.
    pub threads: usize,
    /// Order of pages.
    pub pattern: Pattern,
    /// Arrays that are touched in turns, by one thread.
    pub arrays: usize,
    /// Seconds for which memory lies idle before a run.
    pub idle: u64,
    /// How often each page is computed on.
    pub passes: u8,
}

/// The runs of a case, by way.
pub type Rounds = turns::Rounds<Way, Touched>;

/// How many times faster `way` was than `other`, round by round.
pub fn speed(rounds: &Rounds, way: Way, other: Way) -> Found<Ratio> {
    ratio(rounds, &way, &other, |touched| touched.taken.wall).map(Ratio::inverse)
}

/// One run, for the file of figures.
#[derive(serde::Serialize)]
struct Record {
    #[serde(flatten)]
    case: Case,
    way: Way,
    #[serde(flatten)]
    touched: Touched,
}

/// From then on every case makes one round only, so that the whole stays below eight minutes.
const TIME: Duration = Duration::from_secs(300);

/// Runs programs, and remembers.
pub struct Runs {
    start: Instant,
    /// What they are made for.
    pub context: Context,
    contenders: Contenders,
    records: Vec<Record>,
}

impl Runs {
    /// Makes everything ready.
    pub fn new(context: Context) -> Result<Self> {
        let wanted = [Contender::Plain, Contender::Huge];
        let contenders = Contenders::find(&context.exe, &context.dir, &wanted).map_err(anyhow::Error::msg)?;
        Ok(Self { start: Instant::now(), context, contenders, records: Vec::new() })
    }

    /// Who cannot take part, and why.
    pub fn missing(&self) -> &[(Contender, String)] {
        &self.contenders.missing
    }

    /// The ways that can take part, in turns.
    pub fn in_turns(&mut self, case: &Case, ways: &[Way], rounds: usize) -> Rounds {
        let ways: Vec<Way> = ways.iter().copied().filter(|way| self.contenders.has(way.contender())).collect();
        let rounds = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => rounds * 3,
            _ => rounds,
        };
        let turns = Turns { rounds, deadline: (!self.context.full).then_some(self.start + TIME) };
        let mut computed = Same::default();
        let once = |way| {
            let touched = self.once(case, way)?;
            computed.check(touched.taken.checksum).map(|()| touched)
        };
        turns.run(&ways, Way::name, once)
    }

    /// Has the hypervisor below give back memory that it took since the last run.
    pub fn warm(&self, bytes: u64) -> Result<(), String> {
        let words = ["loop", "warm", "--size", &bytes.to_string()];
        let row = Row::new("warm", Section::Loops, "");
        self.contenders.run(&row, &Launch::new(&self.context.own, words), Contender::Plain).map(drop)
    }

    fn once(&mut self, case: &Case, way: Way) -> Result<Touched, String> {
        match case.idle {
            0 => self.warm(case.size * 5 / 4)?,
            idle if !self.context.quick => thread::sleep(Duration::from_secs(idle)),
            _ => {}
        }
        let (memory, order) = way.arguments();
        let memory = clap::ValueEnum::to_possible_value(&memory).expect("none is hidden");
        let Case { size, reps, threads, pattern, arrays, passes, .. } = case;
        let mut words = format!("loop first-touch --memory {} --size {size} --reps {reps}", memory.get_name());
        words += &match arrays {
            1 => format!(" --threads {threads} --pattern {} --passes {passes}", pattern.name()),
            _ => format!(" --arrays {arrays}"),
        };
        if let Way::SignalBy(by) | Way::ThreadBy(by) = way {
            let by = clap::ValueEnum::to_possible_value(&by).expect("none is hidden");
            words += &format!(" --by {}", by.get_name());
        }
        if let Some(order) = order {
            words += &format!(" --order {order}");
        }
        if matches!(way, Way::SignalReserved | Way::ThreadReserved) {
            words += " --reserve";
        }
        let launch = Launch::new(&self.context.own, words.split_whitespace());
        let row = Row::new("prefault", Section::Loops, "");
        let sample = self.contenders.run(&row, &launch, way.contender())?;
        let touched: Touched = serde_json::from_str(sample.output.trim()).map_err(|error| error.to_string())?;
        self.records.push(Record { case: *case, way, touched });
        Ok(touched)
    }

    /// What each run of a case like this one took so far.
    pub fn taken(&self, case: &Case, way: Way) -> Vec<Taken> {
        let is_like = |record: &&Record| {
            let other = record.case;
            let like = |case: &Case| (case.size, case.threads, case.pattern, case.arrays, case.idle, case.passes);
            record.way == way && like(&other) == like(case)
        };
        self.records.iter().filter(is_like).map(|record| record.touched.taken).collect()
    }

    /// All figures.
    pub fn json(&self, machine: &Machine, simulated: &Results, programs: &[Outcome]) -> Result<String> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            machine: &'a Machine,
            runs: &'a [Record],
            simulated: &'a Results,
            programs: &'a [Outcome],
        }
        Ok(serde_json::to_string_pretty(&File { machine, runs: &self.records, simulated, programs })? + "\n")
    }
}
