//! Threads that map blocks of a region, touch them and unmap them. They run the engine's own calls and its own fault
//! function, over the memory management unit that takes time. [`changes`](super::changes) has the same program over a
//! kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::{Knob, Values};
use faultless_page::listing::{Counted, Line as Counters, lines_for};
use faultless_page::stats::Counter;

use crate::clock::{Clock, Cpu, Machine};
use crate::costs::Costs;
use crate::mmu::SimMmu;

const BASE: usize = 1 << 40;

/// Costs of a machine of today: `faultless bench prefault --only validate` printed them on 2026-11-21, for two threads at
/// once.
/// Words that the kernel below shares between threads of one process are left out.
pub const TODAY: Costs = Costs {
    page: PAGE as f64,
    touch: 13.9,
    entry: 3620.0,
    call: 573.0,
    install: 120.0,
    clear_near: 665.0,
    clear_far: 665.0,
    near: f64::MAX,
    make_huge: f64::INFINITY,
    move_huge: f64::INFINITY,
    local: 4.6,
    transfer: 184.0,
    waiter: 15.3,
    serial: 0.0,
    kernel_words: 0,
    line: 64,
};
/// What dropping a page takes. This is assumed.
pub const DISCARD: f64 = 100.0;

/// Where blocks of different threads lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// In 2 MiB of their own each, whose end is free.
    Apart,
    /// Next to each other in whole pieces of 2 MiB, so that those that are mapped are one area. Smaller ones would have
    /// threads sleep for each other's ranges, and sleeping is not simulated.
    Adjoining,
}

impl Lie {
    /// Bytes from a thread's block to the next one's.
    fn step(self, setup: &Setup) -> usize {
        match self {
            Self::Apart => SLOT,
            Self::Adjoining => setup.pages * PAGE,
        }
    }
}

const OTHERWISE: [Counter; 4] =
    [Counter::SpfVmaNoanon, Counter::SpfVmaNotsup, Counter::SpfVmaAccess, Counter::SpfPmdChanged];

/// By how much each thread begins later than the one before, where blocks adjoin, in ns: no multiple of a fault.
const LATER: f64 = 7919.0;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Where the blocks lie.
    pub lie: Lie,
    /// Processors, each with a thread.
    pub threads: usize,
    /// Blocks of each, one after the other.
    pub blocks: usize,
    /// Pages of a block.
    pub pages: usize,
    /// Whether faults are tried without a lock first.
    pub speculative: bool,
    /// What dropping a page takes, in ns, while the range of its block is locked.
    pub discard: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Blocks a second.
    pub rate: f64,
    /// Faults.
    pub faults: u64,
    /// Faults that were resolved without a lock.
    pub speculative: u64,
    /// Speculative tries that were given up as an area changed.
    pub given_up: u64,
    /// Those that were given up for another reason: a page table, rights, a backing.
    pub otherwise: u64,
}

/// Runs it: a page a fault.
pub fn run(setup: &Setup, costs: &Costs) -> Reached {
    let clock = Clock::default();
    let block = setup.pages * PAGE;
    assert!(if setup.lie == Lie::Apart { block < SLOT } else { block.is_multiple_of(SLOT) }, "{setup:?}");
    let step = setup.lie.step(setup);
    let plan = Plan { areas: 4 * setup.threads.max(2), orders: Orders { first: 0, most: 0 } };
    let lines = Vec::from_iter((0..lines_for(setup.threads)).map(|_| Counters::default())).leak();
    let counted = Counted::new(Box::leak(Box::default()), lines);
    let knobs = Box::leak(Box::<Values>::default());
    knobs.set(Knob::SpeculativePageFault, setup.speculative as u64);
    let mmu = SimMmu::new(&clock, costs, BASE, counted.lines()).discarding(setup.discard);
    let length = (setup.threads * step).next_multiple_of(SLOT);
    let region = Region::new(mmu, Span::new(BASE, length), plan, counted, knobs);
    let region = region.expect("memory for tables").with_patience(1 << 40);
    let attributes =
        Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };
    let blocks = AtomicU64::new(0);
    let cpus = (0..setup.threads).map(|i| {
        let (region, clock, blocks) = (&region, &clock, &blocks);
        Cpu::new(move || {
            let block = Span::new(BASE + i * step, setup.pages * PAGE);
            // Threads that begin at once would map at the same moments for ever.
            if setup.lie == Lie::Adjoining {
                clock.spend(i as f64 * LATER);
            }
            for _ in 0..setup.blocks {
                region.map(block, attributes, 0).expect("room for an area");
                for page in 0..setup.pages {
                    let addr = block.start + page * PAGE;
                    while !region.write(addr) {
                        region.enter(i);
                        let outcome = region.fault(Fault { addr, wants: Rights::Write, hint: i + 1, cpu: i });
                        assert!(matches!(outcome, Outcome::Installed(_)), "{outcome:?}");
                        region.leave(i);
                    }
                    clock.spend(costs.touch);
                }
                region.unmap(block).expect("it is mapped");
                blocks.fetch_add(1, Relaxed);
            }
        })
    });
    let end = Machine::new(&clock, costs, cpus.collect()).run();
    Reached {
        rate: blocks.into_inner() as f64 / (end.at as f64 / 1e12),
        faults: region.counted(Counter::RegionPgfault),
        speculative: region.counted(Counter::SpeculativePgfault),
        given_up: region.counted(Counter::SpfVmaChanged),
        otherwise: OTHERWISE.into_iter().map(|why| region.counted(why)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(threads: usize, speculative: bool) -> Reached {
        run(&Setup { lie: Lie::Apart, threads, blocks: 6, pages: 128, speculative, discard: DISCARD }, &TODAY)
    }

    #[test]
    fn each_page_of_each_block_is_a_fault() {
        for threads in [1, 2] {
            let [classic, speculative] = [false, true].map(|speculative| reached(threads, speculative));
            let faults = (threads * 6 * 128) as u64;
            assert_eq!((classic.faults, classic.speculative), (faults, 0));
            assert_eq!((speculative.faults, speculative.speculative, speculative.given_up), (faults, faults, 0));
        }
    }

    /// Blocks that adjoin are one area: those of other threads change it. A try that is given up is counted and made
    /// again, and no fault is lost. Tables that are missing make none be given up.
    #[test]
    fn blocks_that_adjoin_give_some_tries_up() {
        for threads in [1, 2, 24] {
            let setup =
                Setup { lie: Lie::Adjoining, threads, blocks: 6, pages: 512, speculative: true, discard: DISCARD };
            let near = run(&setup, &TODAY);
            assert_eq!(near.faults, (threads * 6 * 512) as u64, "{near:?}");
            assert_eq!(near.speculative + near.given_up + near.otherwise, near.faults, "{near:?}");
            assert_eq!((near.given_up > 0, near.otherwise), (threads == 24, 0), "{near:?}");
            assert!((near.given_up as f64) < 0.01 * near.faults as f64, "{near:?}");
        }
    }

    /// Faults in blocks of its own need not wait for those that map and unmap others.
    #[test]
    fn speculative_faults_gain_beside_many_that_change() {
        let [classic, speculative] = [false, true].map(|speculative| reached(24, speculative));
        assert!(speculative.rate > 2.0 * classic.rate, "{classic:?} {speculative:?}");
        assert!(speculative.rate > 0.9 * 24.0 * reached(1, true).rate);
        assert_eq!(speculative.given_up, 0);
    }
}
