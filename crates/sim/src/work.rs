//! The program of the tables: threads that touch the pages of one region, each those of a part of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use faultless_base::sys::mmu::Rights;
use faultless_base::units::round_up;
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::Space;
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::{Knob, Values};
use faultless_page::listing::{Counted, Line as Counters, lines_for};
use faultless_page::stats::{Block, Counter};
use serde::Serialize;

use crate::clock::{Clock, Cpu, Line, Machine};
use crate::costs::Costs;
use crate::mmu::{Operations, SimMmu};
use crate::pattern::Pattern;

const BASE: usize = 1 << 40;
/// Parts begin this far apart at least, as large ones do: entries of different threads are not on one line.
pub const APART: usize = 32 * SLOT;

/// Where the zeroes of a page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// The fault clears it.
    Cleared,
    /// It was cleared before, by another thread.
    Prezeroed,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Processors, each with a thread.
    pub threads: usize,
    /// Pages of each part.
    pub pages: usize,
    /// Bytes of a part of the run that this stands for: where its memory lies depends on that.
    pub bytes: f64,
    /// Order of pages.
    pub pattern: Pattern,
    /// Order of the largest window.
    pub order: u32,
    /// Whether faults are tried without a lock first.
    pub speculative: bool,
    /// Where zeroes come from.
    pub frames: Frames,
    /// Whether whole huge pages are moved.
    pub huge: bool,
}

/// What it took, and what was counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Pages that were touched.
    pub pages: u64,
    /// Seconds of all processors in the program.
    pub user: f64,
    /// Seconds of all processors in faults, waiting included.
    pub system: f64,
    /// Seconds.
    pub wall: f64,
    /// The cache line that was in use for longest, and for which part of the time.
    pub busiest: (Line, f64),
    /// Operations.
    pub made: Operations,
    /// Faults as the engine counts them.
    pub faults: u64,
    /// Pages that the engine installed.
    pub installed: u64,
    /// Faults that were resolved without a lock.
    pub speculative: u64,
}

impl Figures {
    /// Pages touched in a second.
    pub fn rate(&self) -> f64 {
        self.pages as f64 / self.wall
    }

    /// Pages touched in a second of processor time.
    pub fn rate_per_cpu(&self) -> f64 {
        self.pages as f64 / (self.user + self.system)
    }
}

/// Faults that may follow nothing before the area is left to the kernel, where there is nothing to simulate. As many
/// as by signals where faults follow each other at once; more where all threads begin with some that do not.
fn patience(setup: &Setup) -> usize {
    match setup.pattern {
        Pattern::Sequential | Pattern::Backward => 64,
        Pattern::Strided => 64 + 4 * setup.threads,
        Pattern::Random | Pattern::Zipfian => 1 << 40,
    }
}

/// Huge pages come from a pool with a place for each thread.
fn with_frames<'a>(region: Region<SimMmu<'a>>, threads: usize) -> Region<SimMmu<'a>> {
    let (counters, knobs) = (Box::leak(Box::new(Block::new())), Box::leak(Box::<Values>::default()));
    let space = Space::without_arena(region.frames(), counters, knobs);
    let space = space.and_then(|space| space.with_pool(threads * SLOT)).expect("memory for tables");
    region.with_frames(Box::leak(Box::new(space)), 0)
}

/// Runs it on a machine of these costs.
pub fn run(setup: &Setup, costs: &Costs) -> Figures {
    let clock = Clock::default();
    let part = (setup.pages * PAGE).max(APART);
    let bytes = setup.threads * part;
    let span = Span::new(BASE, round_up(bytes, SLOT).expect("a region that fits"));
    let plan = Plan { areas: 3, orders: Orders { first: 0, most: setup.order } };
    let lines = Vec::from_iter((0..lines_for(setup.threads)).map(|_| Counters::default())).leak();
    let counted = Counted::new(Box::leak(Box::default()), lines);
    let knobs = Box::leak(Box::<Values>::default());
    knobs.set(Knob::SpeculativePageFault, setup.speculative as u64);
    let mmu = SimMmu::new(&clock, costs, BASE, counted.lines());
    let mmu = match setup.frames {
        Frames::Cleared => mmu.clearing(costs.clear(setup.bytes)),
        Frames::Prezeroed => mmu.prezeroed(),
    };
    let region = Region::new(mmu, span, plan, counted, knobs).expect("memory for tables");
    let region = region.with_patience(patience(setup));
    let region = if setup.huge { with_frames(region, setup.threads) } else { region };
    let attributes =
        Attributes { rights: Rights::Write, backed: false, huge: setup.huge, random: false, kernel: false };
    region.map(Span::new(BASE, bytes), attributes, 0).expect("nothing is mapped yet");

    let (pages, user, system) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let cpus = (0..setup.threads).map(|i| {
        let (region, clock, pages, user, system) = (&region, &clock, &pages, &user, &system);
        Cpu::new(move || {
            let mut touched = 0;
            let use_pages = |touched: &mut u64| {
                let begin = clock.now();
                clock.spend(*touched as f64 * costs.touch);
                user.fetch_add(clock.now() - begin, Relaxed);
                pages.fetch_add(*touched, Relaxed);
                *touched = 0;
            };
            for page in setup.pattern.touches(setup.pages, i as u64 + 1) {
                let addr = BASE + i * part + page * PAGE;
                while !region.write(addr) {
                    use_pages(&mut touched);
                    let begin = clock.now();
                    region.enter(i);
                    let outcome = region.fault(Fault { addr, wants: Rights::Write, hint: i + 1, cpu: i });
                    assert!(matches!(outcome, Outcome::Installed(_)), "{outcome:?}");
                    region.count(Counter::RegionFaultNs, ((clock.now() - begin) / 1000) as usize, i);
                    region.leave(i);
                    system.fetch_add(clock.now() - begin, Relaxed);
                }
                touched += 1;
            }
            use_pages(&mut touched);
        })
    });
    let end = Machine::new(&clock, costs, cpus.collect()).run();
    let seconds = |ps: u64| ps as f64 / 1e12;
    Figures {
        pages: pages.into_inner(),
        user: seconds(user.into_inner()),
        system: seconds(system.into_inner()),
        wall: seconds(end.at),
        busiest: end.busiest.map_or((Line::Kernel, 0.0), |(used, line)| (line, used as f64 / end.at as f64)),
        made: region.made(),
        faults: region.counted(Counter::RegionPgfault),
        installed: region.counted(Counter::RegionPages),
        speculative: region.counted(Counter::SpeculativePgfault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::MACHINE;

    const SETUP: Setup = Setup {
        threads: 1,
        pages: 1024,
        bytes: 1.0,
        pattern: Pattern::Sequential,
        order: 3,
        speculative: true,
        frames: Frames::Cleared,
        huge: false,
    };

    #[test]
    fn one_processor_takes_the_sum_of_the_costs() {
        let (order, pages) = (0, 64);
        let costs = Costs { local: 0.0, ..MACHINE };
        let figures = run(&Setup { order, pages, ..SETUP }, &costs);
        let one = costs.entry + costs.call + costs.install + costs.clear_near;
        assert_eq!((figures.system * 1e9).round(), (64.0 * one).round());
        assert_eq!((figures.user * 1e9).round(), (64.0 * costs.touch).round());
        assert!((figures.wall - figures.user - figures.system).abs() < 1e-12);
        assert_eq!((figures.faults, figures.made.faults, figures.speculative), (64, 64, 64));
    }

    #[test]
    fn windows_save_faults_and_bring_the_same_pages() {
        let figures = run(&SETUP, &MACHINE);
        // 1, 2, 4, and then 8 each, cut at the part's end.
        assert_eq!(figures.faults, 3 + (1024 - 7u64).div_ceil(8));
        assert_eq!((figures.installed, figures.pages), (1024, 1024));
    }

    #[test]
    fn the_same_run_takes_the_same_time() {
        let setup = Setup { threads: 7, pattern: Pattern::Random, ..SETUP };
        let [one, two] = [0; 2].map(|_| run(&setup, &MACHINE));
        assert_eq!((one.wall, one.system, one.made), (two.wall, two.system, two.made));
    }

    #[test]
    fn a_lock_for_all_costs_more_the_more_come_to_it() {
        let per_page = |speculative, threads| {
            let setup = Setup { threads, speculative, order: 0, pages: 512, ..SETUP };
            let figures = run(&setup, &MACHINE);
            assert_eq!(figures.made.locks, if speculative { 0 } else { 4 * figures.faults });
            1.0 / figures.rate()
        };
        assert!(per_page(false, 128) > 3.0 * per_page(false, 16));
        assert!(per_page(true, 128) < 1.01 * per_page(true, 16));
    }

    #[test]
    fn faults_of_a_few_pages_do_not_wait_for_those_of_other_processors() {
        for order in [3, 5] {
            let setup = Setup { order, pages: 512, frames: Frames::Prezeroed, ..SETUP };
            let rate = |threads| run(&Setup { threads, ..setup }, &MACHINE).rate();
            let linear = rate(256) / (256.0 * rate(1));
            assert!(linear > 0.8, "order {order}: {linear}");
        }
    }
}
