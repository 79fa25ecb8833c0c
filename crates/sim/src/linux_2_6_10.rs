//! The fault handler of Linux 2.6.10, as it was without the engine: what "prefaulting alone" of 2004 ran on.
//!
//! - A fault takes the lock of the address space for reading. That is an atomic operation at its begin and one at its
//!   end.
//! - It takes the lock of the page tables to look at the entry, and lets it go. Then it makes pages and clears them. It
//!   takes the lock again to install them, and holds it meanwhile.
//! - With prefaulting, a fault where the thread expects one brings more pages than the one before. These are 2, 4, 8, and
//!   then 15, as many as a `pagevec` has.
//!
//! The engine takes its locks four times a fault, and installs pages outside of them. So costs of this lock are fitted
//! anew ([`LOCK`]), to the same rows of the standard kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::{Clock, Cpu, Line, Machine, Ps, Use};
use crate::costs::Costs;

/// Pages of a `pagevec`.
pub const PAGEVEC: usize = 15;

/// What its lock costs.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// A line from another processor, in ns.
    pub transfer: f64,
    /// What each processor that waits adds.
    pub waiter: f64,
    /// A page installed while the lock is held.
    pub held: f64,
}

/// The costs with which one page a fault comes closest to the standard kernel's rows up to 128 threads.
pub const LOCK: Lock = Lock { transfer: 2082.0, waiter: 199.0, held: 486.0 };

/// A cost of the lock, for a search that varies it.
pub type Field = fn(&mut Lock) -> &mut f64;
/// Names and places of them.
pub const FITTED: [(&str, Field); 3] = [
    ("transfer", |lock| &mut lock.transfer),
    ("waiter", |lock| &mut lock.waiter),
    ("held", |lock| &mut lock.held),
];

/// What is run: threads that touch pages in order, each those of a part of its own.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Processors, each with a thread.
    pub threads: usize,
    /// Pages of each.
    pub pages: usize,
    /// What clearing a page takes, in ns.
    pub clear: f64,
    /// The most pages of a fault.
    pub window: usize,
}

/// What it took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Pages.
    pub pages: u64,
    /// Seconds of all processors in faults, waiting included.
    pub system: f64,
    /// Seconds of all processors in the program.
    pub user: f64,
    /// Seconds.
    pub wall: f64,
}

impl Took {
    /// Pages touched in a second.
    pub fn rate(&self) -> f64 {
        self.pages as f64 / self.wall
    }
}

/// The pages of the fault after one of `last`, in a sequence.
fn grown(last: usize, most: usize) -> usize {
    (2 * last).min(most)
}

/// Runs it on a machine of these costs, but for those of the lock.
pub fn run(setup: &Setup, machine: &Costs, lock: &Lock) -> Took {
    let clock = Clock::default();
    let costs = Costs { transfer: lock.transfer, waiter: lock.waiter, ..machine.clone() };
    let system = AtomicU64::new(0);
    let program = |clock: &Clock| {
        let (mut next, mut window) = (0, 1);
        while next < setup.pages {
            let pages = window.min(setup.pages - next) as f64;
            let begin = clock.now();
            clock.spend(costs.entry);
            clock.pass(Line::Semaphore, Use::Atomic);
            clock.pass(Line::PageTables, Use::Lock);
            clock.spend((setup.clear + costs.install - lock.held) * pages);
            clock.hold(Line::PageTables, lock.held * pages);
            clock.pass(Line::Semaphore, Use::Atomic);
            system.fetch_add(clock.now() - begin, Relaxed);
            clock.spend(costs.touch * pages);
            next += pages as usize;
            window = grown(window, setup.window);
        }
    };
    let cpus = (0..setup.threads).map(|_| Cpu::new(|| program(&clock))).collect();
    let end = Machine::new(&clock, &costs, cpus).run();
    let seconds = |ps: Ps| ps as f64 / 1e12;
    let pages = setup.threads * setup.pages;
    Took {
        pages: pages as u64,
        system: seconds(system.into_inner()),
        user: pages as f64 * costs.touch * 1e-9,
        wall: seconds(end.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::MACHINE;

    #[test]
    fn windows_grow_as_those_of_the_patch() {
        let mut sizes = vec![1];
        (0..5).for_each(|i| sizes.push(grown(sizes[i], PAGEVEC)));
        assert_eq!(sizes, [1, 2, 4, 8, 15, 15]);
    }

    #[test]
    fn one_thread_waits_for_nothing() {
        let setup = Setup { threads: 1, pages: 64, clear: 1000.0, window: 1 };
        let took = run(&setup, &MACHINE, &LOCK);
        let one = MACHINE.entry + MACHINE.install + 1000.0 + 4.0 * MACHINE.local;
        assert_eq!((took.system * 1e9).round(), 64.0 * one);
        assert!((took.wall - took.system - took.user).abs() < 1e-12);
    }
}
