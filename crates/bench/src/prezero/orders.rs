//! From which order on a free block is worth waking the scrubber: the knob `scrub_start`, one value after the other.

use faultless_page::knobs::{Knob, MOST_ORDER};
use faultless_page::stats::Counter;

use super::runs::{Runs, Way};
use crate::loops::Taken;
use crate::table;
use faultless_measure::pages::Counters;
use faultless_measure::paired::median;

/// Orders that are tried; the last is larger than any block: nothing is zeroed in the background.
const ORDERS: [u64; 7] = [9, 10, 11, 12, 13, 14, OFF];
const OFF: u64 = MOST_ORDER + 1;
/// Bytes of the mappings that a program makes: blocks of order 9, 11, 13 and 15.
const SIZES: [u64; 4] = [2 << 20, 8 << 20, 32 << 20, 128 << 20];
/// Mappings of each size in a run.
const BURSTS: u64 = 12;
/// Between two, in ms.
const REST: u64 = 25;
const ROUNDS: usize = 5;

/// What was found for one order.
#[derive(Default, serde::Serialize)]
struct Figures {
    order: u64,
    /// For each size: seconds of one mapping and the touch of each of its pages; the median.
    seconds: Vec<f64>,
    /// In all runs.
    wakeups: u64,
    scrub_s: f64,
    zeroed: u64,
    unused: u64,
    #[serde(skip)]
    runs: Vec<Vec<f64>>,
}

impl Figures {
    fn add(&mut self, size: usize, seconds: f64, counters: &Counters) {
        self.runs[size].push(seconds);
        self.wakeups += counters.get(Counter::ScrubWakeups);
        self.scrub_s += counters.get(Counter::ScrubNs) as f64 / 1e9;
        self.zeroed += counters.get(Counter::BytesScrubbed);
        self.unused += counters.get(Counter::BytesZeroedUnused);
    }
}

/// Mappings of several sizes, with time to zero what comes back between them; the orders take turns.
pub fn table(runs: &mut Runs) {
    let new = |order| Figures { order, runs: vec![Vec::new(); SIZES.len()], ..Figures::default() };
    let mut all = ORDERS.map(new);
    let rounds = if runs.context.quick { 1 } else { ROUNDS };
    for round in 0..rounds {
        if round > 0 && runs.is_late() {
            break;
        }
        for turn in 0..ORDERS.len() {
            let figures = &mut all[(turn + round) % ORDERS.len()];
            if let Err(error) = once(runs, figures) {
                return println!("**Waking the scrubber**: {error}\n");
            }
        }
    }
    for figures in &mut all {
        figures.seconds = figures.runs.iter().filter_map(|seconds| median(seconds)).collect();
    }
    print(&all);
    runs.keep("scrub_start", &all);
}

fn once(runs: &mut Runs, figures: &mut Figures) -> Result<(), String> {
    let bursts = runs.context.count(BURSTS);
    runs.scrub_start = Some(figures.order);
    let result = SIZES.iter().enumerate().try_for_each(|(i, size)| {
        let size = runs.context.size(*size);
        let launch = runs.looping(&format!("faults --size {size} --bursts {bursts} --rest {REST}"));
        let (sample, counters) = runs.sample(&launch, Way::Faultless)?;
        let taken: Taken = serde_json::from_str(sample.output.trim()).map_err(|error| error.to_string())?;
        figures.add(i, taken.wall / bursts as f64, &counters);
        Ok(())
    });
    runs.scrub_start = None;
    result
}

fn print(all: &[Figures]) {
    let megabytes = SIZES.map(|size| table::bytes(size as f64)).join(" | ");
    println!(
        "**Waking the scrubber** (one mapping and a byte of each page, {REST} ms after one of its size was given back)\n"
    );
    println!("| scrub_start | {megabytes} | times the least | wake-ups | zeroed | time of that | never used |");
    println!("|---|{}---|---|---|---|---|", "---|".repeat(SIZES.len()));
    let times = |figures: &Figures| times_the_least(figures, all);
    for figures in all {
        let cells: Vec<String> = figures.seconds.iter().map(|seconds| table::seconds(*seconds)).collect();
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            if figures.order == OFF { "off".into() } else { figures.order.to_string() },
            cells.join(" | "),
            format_args!("{:.2}", times(figures)),
            figures.wakeups,
            table::bytes(figures.zeroed as f64),
            table::seconds(figures.scrub_s),
            table::bytes(figures.unused as f64),
        );
    }
    let best = all.iter().min_by(|a, b| times(a).total_cmp(&times(b)));
    let default = all.iter().find(|figures| Some(figures.order) == Knob::ScrubStart.default());
    if let (Some(best), Some(default)) = (best, default) {
        let more = times(default) / times(best);
        println!(
            "\nThe least time: from order {} on. The default, {}, takes {more:.2} times as long.\n",
            best.order, default.order
        );
    }
}

/// How many times as long as the best order of each size: the geometric mean, so that each size counts alike.
fn times_the_least(figures: &Figures, all: &[Figures]) -> f64 {
    let least =
        |size: usize| all.iter().filter_map(|other| other.seconds.get(size)).copied().fold(f64::MAX, f64::min);
    let logs = figures.seconds.iter().enumerate().map(|(size, seconds)| (seconds / least(size)).ln());
    (logs.sum::<f64>() / figures.seconds.len() as f64).exp()
}
