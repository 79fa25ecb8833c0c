//! The tables of simulated processors.

use faultless_mm::predict::window::HUGE_ORDER;
use faultless_sim::costs::Costs;
use faultless_sim::pattern::Pattern;
use faultless_sim::seed::{self, MACHINE};
use faultless_sim::work::{Figures, Frames, Setup, run};
use serde::Serialize;

use super::costs;
use super::real;
use super::runs::{Case, Runs, Way};
use super::then::Compared;
use crate::aims::Aims;
use crate::loops::Taken;
use crate::plan::Context;
use crate::rule::Aim;
use crate::table;

/// Order of the largest window of a region with delivery by signal, unless it is said otherwise.
const DEFAULT_ORDER: u32 = 13;
/// Pages of each processor where windows are small, and where they are large: then it takes many until they have grown. A window ends
/// where these end.
const PAGES: [usize; 2] = [512, 7680];
/// Bytes that are made warm before costs are measured, more than these take.
const WARM: u64 = 2 << 30;
/// Bytes that each simulated processor touches of memory of its own node, as 256 Gb on 512 processors.
const SHARE: f64 = (1u64 << 29) as f64;

/// What was computed, for the file of figures and the plot.
#[derive(Default, Serialize)]
pub struct Results {
    /// Costs that were measured, with one thread and with two at once.
    pub measured: Vec<Costs>,
    /// Runs of this machine beside simulated ones.
    pub validation: Vec<Validation>,
    /// The tables of 2004.
    pub tables: Vec<Compared>,
    /// What is simulated up to 512 processors.
    pub many: Vec<Many>,
}

/// A run of this machine beside a simulated one.
#[derive(Serialize)]
pub struct Validation {
    way: Way,
    threads: usize,
    real: Rates,
    simulated: Rates,
}

/// Pages touched in a second, and in a second of processor time.
#[derive(Clone, Copy, Serialize)]
struct Rates {
    clock: f64,
    processor: f64,
}

/// One configuration on one number of processors.
#[derive(Serialize)]
pub struct Many {
    /// Whose costs.
    pub machine: &'static str,
    /// The configuration.
    pub name: &'static str,
    /// What was run.
    pub threads: usize,
    /// Pages touched in a second.
    pub rate: f64,
    /// The same with what one thread does for all, in one address space and in as many as the tables have.
    pub with_serial: Option<[f64; 2]>,
    /// The rest.
    pub figures: Figures,
}

fn setup(threads: usize, pages: usize, order: u32) -> Setup {
    Setup {
        threads,
        pages,
        bytes: SHARE,
        pattern: Pattern::Sequential,
        order,
        speculative: true,
        frames: Frames::Cleared,
        huge: false,
    }
}

/// Measures costs and compares what they say with runs of one and two threads.
pub fn validate(runs: &mut Runs, results: &mut Results) {
    println!(
        "**Costs of this machine** (measured one by one, not by the runs below: alone, and while another thread does the same)\n"
    );
    let measure = |threads| runs.warm(WARM).and_then(|()| costs::measure(threads));
    let costs = match [1, 2].into_iter().map(measure).collect::<Result<Vec<_>, _>>() {
        Ok(costs) => costs,
        Err(why) => return println!("Not to be had: {why}.\n"),
    };
    print_costs(&costs.iter().zip(["alone", "two at once"]).collect::<Vec<_>>());
    println!(
        "**The simulation beside this machine** (in order; pages touched in a second, and in a second of processor time, which \
         leaves out other programs; the fastest run, as costs are the fastest samples)\n"
    );
    println!("| | Threads | real | simulated | error | real, flt/cpu/s | simulated | error |");
    println!("|---|---|---|---|---|---|---|---|");
    let ways = [(Way::Order(0), 0), (Way::Order(3), 3), (Way::Order(5), 5), (Way::Signal, DEFAULT_ORDER)];
    for (threads, costs) in (1..).zip(&costs) {
        let case = Case { threads, ..real::case(runs, "validate") };
        if ways.iter().any(|(way, _)| runs.taken(&case, *way).is_empty()) {
            runs.in_turns(&case, &ways.map(|(way, _)| way), 3);
        }
        for (way, order) in ways {
            let taken = runs.taken(&case, way);
            let best = |rate: fn(&Taken) -> f64| taken.iter().map(rate).reduce(f64::max);
            let (Some(clock), Some(processor)) = (best(Taken::per_second), best(Taken::per_cpu_second)) else {
                continue;
            };
            let real = Rates { clock, processor };
            let pages = case.size as usize / costs.page as usize / threads;
            // Regions of this machine move whole huge pages where their windows have them.
            let figures = run(&Setup { huge: true, ..setup(threads, pages, order) }, costs);
            let simulated = Rates { clock: figures.rate(), processor: figures.rate_per_cpu() };
            let beside = |real: f64, simulated: f64| {
                format!("{real:.0} | {simulated:.0} | {:+.0} %", (simulated / real - 1.0) * 100.0)
            };
            println!(
                "| {} | {threads} | {} | {} |",
                way.name(),
                beside(real.clock, simulated.clock),
                beside(real.processor, simulated.processor)
            );
            results.validation.push(Validation { way, threads, real, simulated });
        }
    }
    println!();
    results.measured = costs;
}

/// Costs side by side, each with its heading.
fn print_costs(all: &[(&Costs, &str)]) {
    let line = |cells: &mut dyn Iterator<Item = String>| println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    let headings = all.iter().map(|(_, heading)| (*heading).to_owned());
    line(&mut std::iter::once("what".to_owned()).chain(headings));
    println!("|---|{}", "---|".repeat(all.len()));
    let row = |name: &str, cost: &dyn Fn(&Costs) -> f64| {
        let cells = all.iter().map(|(costs, _)| table::seconds(cost(costs) / 1e9));
        line(&mut std::iter::once(name.to_owned()).chain(cells));
    };
    row("a page that is there, touched", &|costs| costs.touch);
    row("from an access to the fault function and back", &|costs| costs.entry);
    row("a call that installs", &|costs| costs.call);
    row("a page installed", &|costs| costs.install);
    row("a page made and cleared, own node", &|costs| costs.clear_near);
    row("a huge page made and cleared", &|costs| costs.make_huge);
    row("a huge page moved", &|costs| costs.move_huge);
    row("a shared word, had last by this processor", &|costs| costs.local);
    row("the same, had by another one", &|costs| costs.transfer);
    row("each one that waits for a lock adds to its hand-over", &|costs| costs.waiter);
    println!();
}

fn heading(more: &str) {
    println!("| Gb | Rep | Threads | User | System | Wall | flt/cpu/s | fault/wsec | {more} |");
    println!("|---|---|---|---|---|---|---|---|{}", "---|".repeat(more.split('|').count()));
}

/// What is simulated on many processors: a name, the order of the largest window, whether faults are tried without a lock, where
/// zeroes come from, and the order of pages.
type Kind = (&'static str, u32, bool, Frames, Pattern);
const MANY: [Kind; 9] = [
    ("one lock", 0, false, Frames::Cleared, Pattern::Sequential),
    ("prefault only", 3, false, Frames::Cleared, Pattern::Sequential),
    ("speculative only", 0, true, Frames::Cleared, Pattern::Sequential),
    ("both", 3, true, Frames::Cleared, Pattern::Sequential),
    ("both, prezeroed", 3, true, Frames::Prezeroed, Pattern::Sequential),
    ("both, prezeroed, order 5", 5, true, Frames::Prezeroed, Pattern::Sequential),
    ("both, prezeroed, order 9", 9, true, Frames::Prezeroed, Pattern::Sequential),
    // Parts are no larger, so that it takes all of one to come to the largest windows; on machines that have huge pages by those.
    ("both, prezeroed, as by default", DEFAULT_ORDER, true, Frames::Prezeroed, Pattern::Sequential),
    ("speculative, prezeroed, at random", 0, true, Frames::Prezeroed, Pattern::Random),
];

/// One address space on one to 512 processors. For the machine of 2004 the part that one thread does for all is left
/// out at first: its columns stand beside. That part is fitted, and limits all that the machine does.
pub fn many(context: &Context, results: &mut Results, aims: &mut Aims) {
    let measured = results.measured.first().cloned();
    let machines = [(THEN, Some(MACHINE)), ("processors like those of this machine", measured)];
    for (machine, costs) in machines {
        let Some(costs) = costs else { continue };
        for (name, order, speculative, frames, pattern) in MANY {
            println!("**{machine}: {name}** (one address space)\n");
            let then = machine == THEN;
            let more = "to linear | busiest line";
            let serial = " | with the serial part | the same, spaces of 128";
            heading(&format!("{more}{}", if then { serial } else { "" }));
            let most = if context.quick { 3 } else { 9 };
            let mut first = None;
            let mut spaces = Spaces::default();
            for threads in (0..=most).map(|shift| 1 << shift) {
                let pages = PAGES[(order > 5 || pattern == Pattern::Random) as usize];
                let huge = order >= HUGE_ORDER && costs.move_huge.is_finite();
                let setup = Setup { speculative, frames, pattern, huge, ..setup(threads, pages, order) };
                let figures = run(&setup, &costs);
                let (rate, (line, busy)) = (figures.rate(), figures.busiest);
                let linear = rate / threads as f64 / *first.get_or_insert(rate);
                let scale = SHARE * threads as f64 / costs.page / figures.pages as f64;
                let with_serial = then.then(|| spaces.rates(threads, rate));
                let cells = with_serial.map_or(String::new(), |[one, many]| format!(" {one:.0} | {many:.0} |"));
                println!(
                    "| {} | 1 | {threads} | {:.3}s | {:.3}s | {:.3}s | {:.0} | {rate:.0} | {linear:.2} | {}, {:.0} % |{cells}",
                    SHARE * threads as f64 / (1u64 << 30) as f64,
                    figures.user * scale,
                    figures.system * scale,
                    figures.wall * scale,
                    figures.rate_per_cpu(),
                    line.name(),
                    busy * 100.0,
                );
                if let Some([_, reached]) = with_serial.filter(|_| is_aimed(frames, pattern)) {
                    aim(aims, name, threads, linear, reached);
                }
                results.many.push(Many { machine, name, threads, rate, with_serial, figures });
            }
            println!();
        }
    }
}

/// The machine of the tables, as it is called.
const THEN: &str = "the machine of 2004";

/// Rates with the serial part, from those without.
#[derive(Default)]
struct Spaces {
    /// Of the most threads of an address space.
    full: Option<f64>,
}

impl Spaces {
    /// Of these threads in one address space, and in spaces of [`seed::GROUP`] threads.
    fn rates(&mut self, threads: usize, rate: f64) -> [f64; 2] {
        if threads == 1 {
            return [rate; 2];
        }
        if threads == seed::GROUP {
            self.full = Some(rate);
        }
        let (one, spaces) = (seed::with_serial(rate, 1), seed::spaces(threads));
        [one, self.full.filter(|_| spaces > 1).map_or(one, |full| seed::with_serial(full, spaces))]
    }
}

/// Whether the row's threads are what something is aimed at.
fn is_aimed(frames: Frames, pattern: Pattern) -> bool {
    frames == Frames::Prezeroed && pattern == Pattern::Sequential
}

/// The engine is to scale by itself. The machine as a whole is to reach 10 million pages a second, with all that it
/// does.
fn aim(aims: &mut Aims, name: &str, threads: usize, linear: f64, reached: f64) {
    if threads == 256 {
        let line = format!("{name}, 256 processors, engine alone: {linear:.2} of linear, aimed at 0.8");
        aims.counted(line, linear, Aim::AtLeast(0.8));
    }
    if threads == 512 {
        let line = format!(
            "{name}, 512 processors in four address spaces, with the serial part: {reached:.0} pages a second, aimed at 10 million"
        );
        aims.counted(line, reached, Aim::AtLeast(1e7));
    }
}
