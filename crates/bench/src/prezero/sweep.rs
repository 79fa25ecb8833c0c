//! The zeroing engines by themselves, over sizes from 64 KiB to 1 GiB, and which of them is chosen.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use faultless_base::SLOT;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Huge, Sys, raw};
use faultless_base::zero::driver::{Cost, Driver, Poll};
use faultless_base::zero::simulated::Simulated;
use faultless_base::zero::{self, Choice, Engine, dsa};

use crate::aims::Aims;
use crate::rule::Verdict;
use crate::table;
use faultless_measure::costs::{Area, pin, time};
use faultless_measure::paired::{Ratio, median};

/// Sizes, four times larger each.
const SIZES: [usize; 8] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30];
/// Samples of a size: enough to zero this many bytes, within the least and the most of [`SAMPLES`].
const BYTES: usize = 1 << 30;
const SAMPLES: std::ops::RangeInclusive<usize> = 9..=60;
const DEVICE: Cost = Cost { setup_ns: 10_000, byte_ps: 31 };
/// How close the chosen engine is to be to the best.
const CLOSE: f64 = 1.05;

/// Whether the same memory is zeroed again and again, or memory that was not used for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Use {
    Hot,
    Background,
}

/// Nanoseconds that each engine takes for a size, round by round: the engines take turns.
type Figures = BTreeMap<(usize, usize), Vec<f64>>;

/// Measures and prints.
pub fn table(quick: bool, memory: u64, aims: &mut Aims) -> Vec<Figure> {
    let most = if quick { 4 << 20 } else { (memory as usize / 8).clamp(SLOT, SIZES[SIZES.len() - 1]) };
    // A thread of its own, so that this one keeps its placement.
    let measured = thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            pin();
            dsa::open();
            let area = Area::new(most.next_multiple_of(SLOT), Huge::Advised)?;
            area.touch(area.span());
            settle(&area, most);
            Ok([Use::Hot, Use::Background].map(|use_| (use_, measure(&area, most, use_))))
        });
        measuring.join().unwrap_or_else(|_| Err(String::from("the measurement failed")))
    });
    match &measured {
        Ok(tables) => tables.iter().for_each(|(use_, figures)| print(*use_, figures, aims)),
        Err(error) => println!("**Engines**: {error}\n"),
    }
    offload(most);
    let all = measured.into_iter().flatten().flat_map(|(use_, figures)| {
        figures.into_iter().filter_map(move |((bytes, engine), ns)| {
            let (engine, ns) = (Engine::ALL[engine], median(&ns)?);
            Some(Figure { use_, bytes, engine: engine.name(), ns, chosen: engine == chosen(use_, bytes) })
        })
    });
    all.collect()
}

/// What an engine took for a size: the median.
#[derive(serde::Serialize)]
pub struct Figure {
    #[serde(rename = "use")]
    use_: Use,
    bytes: usize,
    engine: &'static str,
    ns: f64,
    chosen: bool,
}

/// Has the engines tried as the library does: on jobs of the scrubber's, and on memory that is wanted at once.
fn settle(area: &Area, most: usize) {
    let largest = area.piece(0, Linux.scrub_largest().min(most));
    while !zero::COLD.is_settled() {
        let Some(mut job) = Linux.scrub_start(largest) else { break };
        while Linux.scrub_poll(&mut job) == Poll::Working {}
        Linux.scrub_end(job);
    }
    for bytes in SIZES.into_iter().filter(|bytes| (SLOT..=most).contains(bytes)) {
        while zero::hot(bytes).is_some_and(|choice| !choice.is_settled()) {
            // A program has written to it.
            area.zero(Engine::Memset, area.piece(0, bytes));
            Linux.zero_hot(area.piece(0, bytes));
        }
    }
}

/// The engine that is used for a size.
fn chosen(use_: Use, bytes: usize) -> Engine {
    match use_ {
        Use::Hot => zero::hot(bytes).map_or_else(|| zero::COLD.fastest(), Choice::pick),
        Use::Background => zero::COLD.pick(),
    }
}

fn measure(area: &Area, most: usize, use_: Use) -> Figures {
    let mut figures = Figures::new();
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= most) {
        let mut samples: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        let places = area.span().bytes() / bytes;
        let mut place = 0;
        for _ in 0..(BYTES / bytes).clamp(*SAMPLES.start(), *SAMPLES.end()) {
            for engine in Engine::ALL.into_iter().filter(|engine| engine.is_available()) {
                let piece = match use_ {
                    // The last to write it leaves it in the caches, as far as they go.
                    Use::Hot => {
                        area.zero(Engine::Memset, area.piece(0, bytes));
                        area.piece(0, bytes)
                    }
                    Use::Background => area.piece(place % places, bytes),
                };
                place += 1;
                samples.entry(engine as usize).or_default().push(time(|| area.zero(engine, piece)));
            }
        }
        figures.extend(samples.into_iter().map(|(engine, ns)| ((bytes, engine), ns)));
    }
    figures
}

fn print(use_: Use, figures: &Figures, aims: &mut Aims) {
    let (title, what) = match use_ {
        Use::Hot => ("Engines, hot", "GB/s on memory that was just written"),
        Use::Background => ("Engines, in the background", "GB/s on memory that was not used for longest"),
    };
    println!("**{title}** ({what}; the chosen one in bold)\n");
    let engines: Vec<Engine> = Engine::ALL.into_iter().filter(|engine| engine.is_available()).collect();
    let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    println!("| size | {} | chosen to the best, time in pairs |", names.join(" | "));
    println!("|---|{}---|", "---|".repeat(engines.len()));
    let mut worst: Option<Ratio> = None;
    for bytes in SIZES.into_iter().filter(|bytes| figures.contains_key(&(*bytes, 0))) {
        let rounds = |engine: Engine| figures.get(&(bytes, engine as usize)).map_or(&[][..], Vec::as_slice);
        let of = |engine: Engine| median(rounds(engine)).unwrap_or(f64::INFINITY);
        let chosen = chosen(use_, bytes);
        // What fills the caches is no choice for memory that is wanted later.
        let suits = |engine: &Engine| use_ == Use::Hot || !engine.fills_caches();
        let best = engines.iter().copied().filter(suits).min_by(|a, b| of(*a).total_cmp(&of(*b)));
        let best = best.unwrap_or(chosen);
        let cell = |engine: &Engine| {
            let speed = format!("{:.1}", bytes as f64 / of(*engine));
            if *engine == chosen { format!("**{speed}**") } else { speed }
        };
        let cells: Vec<String> = engines.iter().map(cell).collect();
        let pairs: Vec<_> = rounds(chosen).iter().copied().zip(rounds(best).iter().copied()).collect();
        let ratio = Ratio::of(&pairs);
        let beside = ratio.as_ref().map_or("–".into(), table::interval);
        println!("| {} | {} | {beside} |", table::bytes(bytes as f64), cells.join(" | "));
        // Less than a slot is never zeroed.
        worst =
            worst.into_iter().chain(ratio.filter(|_| bytes >= SLOT)).max_by(|a, b| a.value.total_cmp(&b.value));
    }
    println!();
    aims.at_most(
        &format!("{title}: the one chosen, beside the best, where that is most, from 2 MiB on"),
        CLOSE,
        worst.ok_or(Verdict::no_figure("it")),
    );
}

/// What a device beside the processor would leave to it: a simulated one.
fn offload(most: usize) {
    let Ok(area) = Area::new(most.min(64 << 20).next_multiple_of(SLOT), Huge::Advised) else { return };
    area.touch(area.span());
    let mut device = Simulated::new(DEVICE, raw::now_ns);
    let (start, cpu) = (raw::now_ns(), raw::thread_ns());
    if !area.submit(&mut device, area.span()) {
        return;
    }
    while !device.is_due() {
        thread::sleep(Duration::from_micros(50));
    }
    let (took, busy) = (raw::now_ns() - start, raw::thread_ns() - cpu);
    let zeroed = device.poll() == Poll::Done && Linux.first_nonzero(area.span()).is_none();
    println!(
        "A simulated device of {} and {} GB/s zeroes {} in {}, {} of it by the processor{}.\n",
        table::seconds(DEVICE.setup_ns as f64 / 1e9),
        1000 / DEVICE.byte_ps,
        table::bytes(area.span().bytes() as f64),
        table::seconds(took as f64 / 1e9),
        table::seconds(busy as f64 / 1e9),
        if zeroed { "" } else { ", and failed" },
    );
}
