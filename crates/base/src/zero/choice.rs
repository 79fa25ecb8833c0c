//! Chooses the engine that zeroes: the fastest one seen on this machine, among those that suit the use.
//!
//! Nothing is measured beforehand. The candidates take turns with the first extents that have to be zeroed anyway. Then
//! the one whose faster quarter is best is taken for all that follow. That is its promise. An engine that fails, or that
//! is seen to be slower than promised again and again, is dropped, and the next best takes its place.
//!
//! A device beside the processor does not compete: where there is one, it is taken, because the processor is free
//! meanwhile. It is dropped like the others.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::Engine;
use super::driver::Cost;

/// How often each candidate is tried before one is chosen.
const TRIES: usize = 9;
/// An engine is slow when it takes this many times what it promised …
const SLOW: u32 = 4;
/// … for this many extents in a row. Two processors that write to memory at once get half each, and so may a virtual
/// one.
const SLOW_STREAK: u32 = 64;
/// Smaller extents say little.
pub const LEAST: usize = 64 << 10;
/// The cost of a try that was not made.
const UNKNOWN: u32 = u32::MAX;

const ENGINES: usize = Engine::ALL.len();

/// Why an engine is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It said that it failed.
    Failed,
    /// It is slower than promised.
    Slow,
}

/// The candidates for one use, and what is known of them. All words may be read and written by several threads: they
/// may lose a measurement between them.
#[derive(Debug)]
pub struct Choice {
    candidates: &'static [Engine],
    tries: [AtomicUsize; ENGINES],
    /// Picoseconds a byte of each try.
    costs: [[AtomicU32; TRIES]; ENGINES],
    slow: [AtomicU32; ENGINES],
    /// Bits of [`Engine::ALL`].
    dropped: AtomicU32,
}

impl Choice {
    /// Among these; one at least is available everywhere, or [`Engine::StringStore`] takes its place.
    pub const fn new(candidates: &'static [Engine]) -> Self {
        Self {
            candidates,
            tries: [const { AtomicUsize::new(0) }; ENGINES],
            costs: [const { [const { AtomicU32::new(UNKNOWN) }; TRIES] }; ENGINES],
            slow: [const { AtomicU32::new(0) }; ENGINES],
            dropped: AtomicU32::new(0),
        }
    }

    fn left(&self) -> impl Iterator<Item = Engine> + '_ {
        let dropped = self.dropped.load(Relaxed);
        self.candidates.iter().copied().filter(move |e| dropped & 1 << *e as u32 == 0 && e.is_available())
    }

    /// The engine for the next extent.
    pub fn pick(&self) -> Engine {
        let device = self.left().find(|e| e.is_device());
        let tries = |e: &Engine| self.tries[*e as usize].load(Relaxed);
        // In turns: what slows the machine down for a moment slows down one try of each.
        let untried = || self.processors().min_by_key(tries).filter(|e| tries(e) < TRIES);
        device.or_else(untried).unwrap_or_else(|| self.fastest())
    }

    /// The candidates that are instructions of this processor, or the kernel.
    fn processors(&self) -> impl Iterator<Item = Engine> + '_ {
        self.left().filter(|e| !e.is_device())
    }

    /// The fastest of the processor's as far as it is known: without trying any.
    pub fn fastest(&self) -> Engine {
        self.processors().min_by_key(|e| self.quarter(*e)).unwrap_or(Engine::StringStore)
    }

    /// Picoseconds a byte: what a quarter of an engine's tries so far were faster than. A single try that was lucky does
    /// not decide, and neither do several while another processor was writing to memory.
    fn quarter(&self, engine: Engine) -> u32 {
        let i = engine as usize;
        let costs = self.costs[i].each_ref().map(|cost| cost.load(Relaxed));
        let place = self.tries[i].load(Relaxed).min(TRIES) / 4;
        let faster = |than: u32| costs.iter().filter(|cost| **cost < than).count();
        costs.into_iter().filter(|cost| faster(*cost) <= place).max().unwrap_or(UNKNOWN)
    }

    /// Whether each candidate of the processor's was tried.
    pub fn is_settled(&self) -> bool {
        self.processors().all(|e| self.tries[e as usize].load(Relaxed) >= TRIES)
    }

    /// The promise of an engine: the time of its faster quarter; none before it was tried.
    pub fn promised(&self, engine: Engine) -> Cost {
        match self.quarter(engine) {
            UNKNOWN => Cost::default(),
            byte_ps => Cost { setup_ns: 0, byte_ps },
        }
    }

    /// An engine has zeroed an extent. Whether that was the end of it.
    pub fn took(&self, engine: Engine, bytes: usize, ns: u64) -> Option<Dropped> {
        if bytes < LEAST {
            return None;
        }
        let i = engine as usize;
        let ps = (ns.saturating_mul(1000) / bytes as u64).clamp(1, UNKNOWN as u64 - 1) as u32;
        if let Some(cost) = self.costs[i].get(self.tries[i].load(Relaxed)) {
            cost.store(ps, Relaxed);
            self.tries[i].fetch_add(1, Relaxed);
        }
        if ps / SLOW < self.quarter(engine) {
            self.slow[i].store(0, Relaxed);
            return None;
        }
        let streak = self.slow[i].fetch_add(1, Relaxed) + 1;
        (streak >= SLOW_STREAK && self.left().count() > 1).then(|| self.drop(engine, Dropped::Slow))
    }

    /// An engine has failed.
    pub fn failed(&self, engine: Engine) -> Dropped {
        self.drop(engine, Dropped::Failed)
    }

    fn drop(&self, engine: Engine, why: Dropped) -> Dropped {
        self.dropped.fetch_or(1 << engine as u32, Relaxed);
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Engine::{Memset, StringStore};

    const MIB: usize = 1 << 20;

    /// Tries both, as many ns a MiB.
    fn settled(string: u64, memset: u64) -> Choice {
        let choice = Choice::new(&[StringStore, Memset]);
        while !choice.is_settled() {
            let engine = choice.pick();
            choice.took(engine, MIB, if engine == Memset { memset } else { string });
        }
        choice
    }

    #[test]
    fn each_is_tried_and_the_fastest_is_taken() {
        let choice = Choice::new(&[StringStore, Memset]);
        assert!(!choice.is_settled());
        assert_eq!(choice.promised(StringStore), Cost::default());
        assert_eq!(settled(20_000, 10_000).pick(), Memset);
        let choice = settled(10_000, 20_000);
        assert_eq!(choice.pick(), StringStore);
        assert_eq!(choice.promised(StringStore), Cost { setup_ns: 0, byte_ps: 9 });
    }

    #[test]
    fn they_take_turns_and_neither_lucky_tries_nor_hitches_decide() {
        let choice = Choice::new(&[StringStore, Memset]);
        for turn in 0..TRIES {
            assert_eq!(choice.pick(), StringStore);
            choice.took(StringStore, MIB, if turn < TRIES / 4 { 1_000 } else { 20_000 });
            assert_eq!(choice.pick(), Memset);
            choice.took(Memset, MIB, if turn < TRIES / 2 { 900_000 } else { 10_000 });
        }
        assert!(choice.is_settled());
        assert_eq!(choice.pick(), Memset);
        assert_eq!(choice.promised(StringStore), Cost { setup_ns: 0, byte_ps: 19 });
    }

    #[test]
    fn the_promise_is_a_quarter_into_the_sorted_tries() {
        let mut next = 1u64;
        let mut random = || {
            next = next.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (next >> 33) % 50 + 1
        };
        for tries in (1..=TRIES).cycle().take(500) {
            let choice = Choice::new(&[Memset]);
            let mut costs: std::vec::Vec<u64> = (0..tries).map(|_| random()).collect();
            costs.iter().for_each(|ps| _ = choice.took(Memset, 1000 * LEAST, ps * LEAST as u64));
            costs.sort_unstable();
            assert_eq!(choice.promised(Memset).byte_ps as u64, costs[tries / 4], "{costs:?}");
        }
    }

    #[test]
    fn one_that_fails_is_dropped_at_once_and_the_last_resort_stays() {
        let choice = settled(10_000, 20_000);
        assert_eq!(choice.failed(StringStore), Dropped::Failed);
        assert_eq!(choice.pick(), Memset);
        choice.failed(Memset);
        assert_eq!(choice.pick(), StringStore, "what every processor has");
    }

    #[test]
    fn one_that_stays_slower_than_promised_is_dropped_but_not_the_last() {
        let choice = settled(10_000, 20_000);
        for _ in 1..SLOW_STREAK {
            assert_eq!(choice.took(StringStore, MIB, 60_000), None);
        }
        assert_eq!(choice.took(StringStore, MIB, 10_000), None, "it has recovered");
        let ends = (0..SLOW_STREAK).filter_map(|_| choice.took(StringStore, MIB, 60_000)).count();
        assert_eq!((ends, choice.pick()), (1, Memset));
        assert!((0..2 * SLOW_STREAK).all(|_| choice.took(Memset, MIB, 900_000).is_none()));
        assert_eq!(choice.pick(), Memset);
    }

    #[test]
    fn small_extents_say_nothing() {
        let choice = Choice::new(&[Memset]);
        assert_eq!(choice.took(Memset, LEAST - 1, 1), None);
        assert!(!choice.is_settled());
    }
}
