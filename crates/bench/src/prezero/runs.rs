//! Who runs the programs of the tables, and what was counted meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use faultless_page::stats::{COUNTERS, Counter};

use crate::contender::Contender;
use crate::contenders::Contenders;
use crate::loops::Taken;
use crate::machine::Machine;
use crate::measure::Sample;
use crate::plan::{Context, Launch, Row, Section};
use crate::table;
use crate::undo::Undo;
use faultless_measure::pages::{Counters, Dir};

/// A way of running the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The kernel as found.
    Plain,
    /// The kernel with huge pages always.
    Huge,
    /// faultless.
    Faultless,
    /// The same without a scrubber: memory is zeroed when it is handed out.
    Hot,
}

impl Way {
    /// Those that every table has: the last is the way that prezeroing is to be compared with.
    pub const ALL: [Way; 4] = [Way::Plain, Way::Huge, Way::Faultless, Way::Hot];

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Hot => "faultless, scrub=0",
            other => other.contender().name(),
        }
    }

    fn contender(self) -> Contender {
        match self {
            Way::Plain => Contender::Plain,
            Way::Huge => Contender::Huge,
            Way::Faultless | Way::Hot => Contender::Faultless,
        }
    }
}

/// One run, for the file of figures.
#[derive(serde::Serialize)]
struct Record {
    table: String,
    way: Way,
    #[serde(flatten)]
    taken: Taken,
}

/// What is said of the scrubber.
const SCRUBBING: [Counter; 9] = [
    Counter::ScrubWakeups,
    Counter::ScrubBlocks,
    Counter::BytesScrubbed,
    Counter::ScrubNs,
    Counter::BytesZeroedUnused,
    Counter::ZeroHits,
    Counter::ZeroHot,
    Counter::ZeroMisses,
    Counter::EnginesDropped,
];

/// From then on every part makes one round only, so that the whole stays below eight minutes.
const TIME: Duration = Duration::from_secs(400);

/// Runs programs, and remembers.
pub struct Runs {
    start: Instant,
    /// What they are made for.
    pub context: Context,
    contenders: Contenders,
    /// Where the library leaves its counters.
    pages: Dir,
    _undo: Undo,
    records: Vec<Record>,
    /// What was counted in the runs of each part in which there was a scrubber.
    scrubbing: Vec<(String, Counters)>,
    /// What the other parts found, for the file of figures.
    figures: BTreeMap<&'static str, serde_json::Value>,
    /// The knob `scrub_start` of the runs that follow, if it is not the default.
    pub scrub_start: Option<u64>,
}

impl Runs {
    /// Makes everything ready.
    pub fn new(context: Context) -> Result<Self> {
        let wanted = [Contender::Plain, Contender::Huge, Contender::Faultless];
        let contenders = Contenders::find(&context.exe, &context.dir, &wanted).map_err(anyhow::Error::msg)?;
        let pages = Dir::create()?;
        Ok(Self {
            start: Instant::now(),
            context,
            contenders,
            _undo: Undo::folder(pages.path()),
            pages,
            records: Vec::new(),
            scrubbing: Vec::new(),
            figures: BTreeMap::new(),
            scrub_start: None,
        })
    }

    /// Who cannot take part, and why.
    pub fn missing(&self) -> &[(Contender, String)] {
        &self.contenders.missing
    }

    /// Whether the time is over for all but what is needed.
    pub fn is_late(&self) -> bool {
        !self.context.full && self.start.elapsed() > TIME
    }

    /// When that is.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.context.full).then_some(self.start + TIME)
    }

    /// Whether it can take part.
    pub fn has(&self, way: Way) -> bool {
        self.contenders.has(way.contender())
    }

    /// One of our loops, as words.
    pub fn looping(&self, words: &str) -> Launch {
        Launch::new(&self.context.own, format!("loop {words}").split_whitespace())
    }

    /// Runs a program, with settings for faultless besides those of the way.
    pub fn sample(&self, launch: &Launch, way: Way) -> Result<(Sample, Counters), String> {
        // The command lives as long as the run, and rows are made for rows that are known beforehand.
        let pages: &'static str = self.pages.path().display().to_string().leak();
        let mut env = vec![("FAULTLESS_STATS", pages)];
        if way == Way::Hot {
            env.push(("FAULTLESS_SCRUB", "0"));
        }
        if let Some(order) = self.scrub_start {
            env.push(("FAULTLESS_SCRUB_START", order.to_string().leak()));
        }
        let row = Row::new("prezero", Section::Loops, "").env(env.leak());
        let sample = self.contenders.run(&row, launch, way.contender())?;
        let (counted, _) = self.pages.read().map_err(|error| error.to_string())?;
        for (_, path) in faultless_measure::pages::dir::pages(self.pages.path()).unwrap_or_default() {
            let _ = std::fs::remove_file(path);
        }
        Ok((sample, Counters::sum(&counted)))
    }

    /// Runs a program that prints what it took.
    pub fn taken(&mut self, table: &str, launch: &Launch, way: Way) -> Result<Taken, String> {
        let (sample, counters) = self.sample(launch, way)?;
        let taken: Taken = serde_json::from_str(sample.output.trim()).map_err(|error| error.to_string())?;
        self.records.push(Record { table: table.to_owned(), way, taken });
        if way == Way::Faultless {
            self.note_scrubbing(table, counters);
        }
        Ok(taken)
    }

    /// What the library counted in a run of a table.
    pub fn note_scrubbing(&mut self, table: &str, counters: Counters) {
        match self.scrubbing.iter_mut().find(|(name, _)| name == table) {
            Some((_, all)) => *all = Counters::sum(&[all.clone(), counters]),
            None => self.scrubbing.push((table.to_owned(), counters)),
        }
    }

    /// Keeps what a part found.
    pub fn keep(&mut self, part: &'static str, figures: &impl serde::Serialize) {
        self.figures.insert(part, serde_json::to_value(figures).unwrap_or_default());
    }

    /// What the scrubber did in all runs of a table together.
    pub fn print_scrubbing(&self) {
        if self.scrubbing.is_empty() {
            return;
        }
        println!("**The scrubber in these runs**, measured or not\n");
        println!("| table | wake-ups | blocks | zeroed | time | never used | hits | hot | misses |");
        println!("|---|---|---|---|---|---|---|---|---|");
        for (name, counters) in &self.scrubbing {
            let count = |counter| counters.get(counter);
            let bytes = |counter| table::bytes(count(counter) as f64);
            println!(
                "| {name} | {} | {} | {} | {} | {} | {} | {} | {} |",
                count(Counter::ScrubWakeups),
                count(Counter::ScrubBlocks),
                bytes(Counter::BytesScrubbed),
                table::seconds(count(Counter::ScrubNs) as f64 / 1e9),
                bytes(Counter::BytesZeroedUnused),
                count(Counter::ZeroHits),
                count(Counter::ZeroHot),
                count(Counter::ZeroMisses),
            );
        }
        println!();
    }

    /// All figures.
    pub fn json(&self, machine: &Machine) -> Result<String> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            machine: &'a Machine,
            runs: &'a [Record],
            #[serde(flatten)]
            figures: &'a BTreeMap<&'static str, serde_json::Value>,
            /// By table: what was counted in runs with a scrubber.
            scrubbing: BTreeMap<&'a str, BTreeMap<&'static str, u64>>,
        }
        let named = |counters: &Counters| {
            SCRUBBING.iter().map(|counter| (COUNTERS[*counter as usize].name, counters.get(*counter))).collect()
        };
        let scrubbing = self.scrubbing.iter().map(|(table, counters)| (table.as_str(), named(counters))).collect();
        let file = File { machine, runs: &self.records, figures: &self.figures, scrubbing };
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }
}
