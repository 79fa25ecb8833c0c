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

/// Costs of a machine of today, as `faultless bench prefault --only validate` printed them for two threads at once.
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

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
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
}

/// Runs it: a page a fault.
pub fn run(setup: &Setup, costs: &Costs) -> Reached {
    let clock = Clock::default();
    // Blocks of two threads do not adjoin: each has 2 MiB of its own, and leaves the end free.
    assert!(setup.pages * PAGE < SLOT);
    let plan = Plan { areas: 4 * setup.threads.max(2), orders: Orders { first: 0, most: 0 } };
    let lines = Vec::from_iter((0..lines_for(setup.threads)).map(|_| Counters::default())).leak();
    let counted = Counted::new(Box::leak(Box::default()), lines);
    let knobs = Box::leak(Box::<Values>::default());
    knobs.set(Knob::SpeculativePageFault, setup.speculative as u64);
    let mmu = SimMmu::new(&clock, costs, BASE, counted.lines()).discarding(setup.discard);
    let region = Region::new(mmu, Span::new(BASE, setup.threads * SLOT), plan, counted, knobs);
    let region = region.expect("memory for tables").with_patience(1 << 40);
    let attributes =
        Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };
    let blocks = AtomicU64::new(0);
    let cpus = (0..setup.threads).map(|i| {
        let (region, clock, blocks) = (&region, &clock, &blocks);
        Cpu::new(move || {
            let block = Span::new(BASE + i * SLOT, setup.pages * PAGE);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(threads: usize, speculative: bool) -> Reached {
        run(&Setup { threads, blocks: 6, pages: 128, speculative, discard: DISCARD }, &TODAY)
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

    /// Faults in blocks of its own need not wait for those that map and unmap others.
    #[test]
    fn speculative_faults_gain_beside_many_that_change() {
        let [classic, speculative] = [false, true].map(|speculative| reached(24, speculative));
        assert!(speculative.rate > 2.0 * classic.rate, "{classic:?} {speculative:?}");
        assert!(speculative.rate > 0.9 * 24.0 * reached(1, true).rate);
        assert_eq!(speculative.given_up, 0);
    }
}
