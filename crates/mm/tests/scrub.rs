//! The scrubber's policy, step by step: when it wakes, what it zeroes, what it leaves alone, and what it does when an
//! engine does not work.

mod calls;

use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::{Need, Progress, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block as Counters, Counter};
use proptest::prelude::*;

/// More than the delay before memory is zeroed.
const LATER_MS: u64 = 6;

struct World {
    space: Space<Fake>,
    fake: Fake,
    knobs: &'static Values,
    counters: &'static [Counters],
}

impl World {
    fn new() -> Self {
        let fake = Fake::default();
        let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, 1 << 30);
        knobs.set(Knob::Ahead, 0);
        knobs.set(Knob::Check, 1);
        let space = Space::new(fake.clone(), 512 * SLOT, 1, counters, knobs).unwrap();
        Self { space, fake, knobs, counters }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters[0].get(counter as usize)
    }

    fn scrubbed(&self) -> u64 {
        self.count(Counter::BytesScrubbed) / SLOT as u64
    }

    fn map(&self, n: usize) -> usize {
        let at = calls::map(&self.space, &self.fake, 0, n * SLOT).start;
        assert!((0..n * SLOT_PAGES).all(|page| self.fake.read(at + page * PAGE) == Some(0)), "not zero");
        self.fake.write(Span::new(at, n * SLOT), 7);
        at
    }

    /// The same, in frames that are kept: the kernel gives none.
    fn map_kept(&self, n: usize) -> usize {
        let before = self.fake.resident();
        let at = self.map(n);
        assert_eq!(self.fake.resident(), before);
        at
    }

    fn unmap(&self, at: usize, n: usize) {
        calls::unmap(&self.space, &self.fake, 0, Span::new(at, n * SLOT));
    }

    /// Uses `n` slots, gives them back, and lets the scrubber work until it is done.
    fn recycle(&self, n: usize) {
        self.unmap(self.map(n), n);
        self.rest();
    }

    /// Uses a block of `n` slots that needs no zeroes, and frees it.
    fn use_block(&self, n: usize) {
        let got = self.space.allocate(0, n * SLOT, PAGE, Need::Any).unwrap();
        self.fake.write(Span::new(got.addr, n * SLOT), 7);
        assert!(self.space.free(got.addr));
    }

    /// Lets so much time pass that the scrubber may work, and lets it work until it is done.
    fn rest(&self) {
        self.fake.advance_ms(LATER_MS);
        self.work();
    }

    fn work(&self) {
        while self.space.step() == Progress::Worked {}
    }
}

#[test]
fn it_wakes_for_blocks_of_the_order_that_was_set_and_zeroes_down_to_another() {
    let w = World::new();
    // 16 slots are order 13; what is left of other 16 when 5 are in use is 8, 2 and 1.
    w.knobs.set(Knob::ScrubStart, 14);
    w.recycle(16);
    assert_eq!((w.count(Counter::ScrubWakeups), w.scrubbed()), (0, 0));
    w.knobs.set(Knob::ScrubStart, 13);
    w.knobs.set(Knob::ScrubStop, 10);
    w.work();
    assert_eq!((w.count(Counter::ScrubWakeups), w.scrubbed()), (1, 16));
    let (five, other) = (w.map(5), w.map(11));
    w.unmap(other, 11);
    w.rest();
    assert_eq!(w.scrubbed(), 16, "8 slots wake nobody");
    w.knobs.set(Knob::ScrubStart, 12);
    w.work();
    assert_eq!(w.scrubbed(), 16 + 10, "a single slot is below the stop");
    w.unmap(five, 5);
}

#[test]
fn nothing_is_zeroed_when_it_is_switched_off_or_the_machine_is_loaded() {
    for (knob, value, load) in
        [(Knob::Scrub, 0, 0), (Knob::ScrubStart, 28, 0), (Knob::ScrubLoad, 0, 0), (Knob::ScrubLoad, 4, 4)]
    {
        let w = World::new();
        w.knobs.set(knob, value);
        w.fake.set_load(load);
        w.recycle(8);
        assert_eq!((w.count(Counter::ScrubWakeups), w.scrubbed()), (0, 0), "{knob:?}");
        let at = w.map(8);
        assert_eq!(w.count(Counter::ZeroHot), 1);
        w.unmap(at, 8);
    }
    let w = World::new();
    w.knobs.set(Knob::ScrubLoad, 4);
    w.fake.set_load(3);
    w.recycle(8);
    assert_eq!(w.scrubbed(), 8);
    w.knobs.set(Knob::ScrubLoad, 999);
    w.fake.set_load(100_000);
    w.recycle(8);
    assert_eq!(w.scrubbed(), 16, "999 stops nothing");
}

#[test]
fn memory_wanted_within_a_moment_is_zeroed_hot() {
    let w = World::new();
    let at = w.map(4);
    w.unmap(at, 4);
    w.work();
    assert_eq!(w.scrubbed(), 0);
    let at = w.map_kept(4);
    assert_eq!((w.count(Counter::ZeroHot), w.count(Counter::ZeroHits)), (1, 0));
    w.unmap(at, 4);
    w.rest();
    w.map_kept(4);
    assert_eq!((w.count(Counter::ZeroHot), w.count(Counter::ZeroHits)), (1, 1));
}

#[test]
fn a_block_is_zeroed_by_one_order() {
    let w = World::new();
    w.recycle(8);
    assert_eq!((w.scrubbed(), w.count(Counter::ScrubBlocks)), (8, 1));
}

/// A slot of zeroes elsewhere is no reason to leave one in the middle of what will be asked for as a whole.
#[test]
fn a_block_is_zeroed_to_its_end() {
    let w = World::new();
    w.knobs.set(Knob::Ahead, 1);
    w.map(1);
    w.work();
    w.recycle(16);
    assert!(w.count(Counter::BytesTouchedAhead) > 0, "nothing is in stock");
    assert_eq!(w.scrubbed(), 16);
    // What is asked for is four slots: no more of a large block is zeroed than that, or hardly.
    let w = World::new();
    w.unmap(w.map(4), 4);
    w.use_block(32);
    w.rest();
    assert_eq!(w.scrubbed(), 4);
}

#[test]
fn blocks_that_need_no_zeroes_cause_none() {
    let w = World::new();
    for _ in 0..20 {
        w.use_block(8);
        w.rest();
    }
    for counter in [Counter::BytesScrubbed, Counter::ZeroedInstead, Counter::BytesHotZeroed] {
        assert_eq!(w.count(counter), 0, "{counter:?}");
    }
}

#[test]
fn it_learns_that_nobody_wants_its_zeroes() {
    let w = World::new();
    w.recycle(8);
    let mut before = 0;
    for _ in 0..10 {
        // Zeroed memory goes to a block that needs no zeroes.
        w.use_block(8);
        w.fake.advance_ms(5000);
        before = w.scrubbed();
        w.work();
    }
    assert_eq!(w.scrubbed(), before, "it still zeroes");
    assert_eq!(w.count(Counter::BytesZeroedUnused), w.count(Counter::ZeroedInstead));
    assert_eq!(w.count(Counter::ZeroedForMalloc), 0);
    assert!(w.count(Counter::BytesZeroedUnused) <= 16 * SLOT as u64);
    // Zeroes in demand are zeroed hot at first, and then ahead again.
    for _ in 0..6 {
        w.recycle(8);
    }
    assert!(w.scrubbed() > before);
}

#[test]
fn an_engine_that_fails_or_hangs_only_makes_it_slower() {
    for failing in [Failing::Engine, Failing::Stall] {
        let w = World::new();
        let at = w.map(8);
        w.unmap(at, 8);
        w.fake.advance_ms(LATER_MS);
        w.fake.fail(failing);
        w.space.step();
        assert_eq!((w.scrubbed(), w.count(Counter::EnginesDropped)), (0, 1), "{failing:?}");
        let why = [Counter::EnginesFailed, Counter::EnginesHung, Counter::EnginesSlow, Counter::DroppedString];
        let expected = if failing == Failing::Engine { [1, 0, 0, 1] } else { [0, 1, 0, 1] };
        assert_eq!(why.map(|counter| w.count(counter)), expected, "{failing:?}");
        // `map` looks whether it is zero.
        let at = w.map_kept(8);
        assert_eq!(w.count(Counter::ZeroHot), 1);
        w.fake.heal();
        w.unmap(at, 8);
        w.rest();
        assert_eq!(w.scrubbed(), 8);
    }
}

#[test]
fn a_scrubber_that_never_runs_only_makes_it_slower() {
    let w = World::new();
    for round in 0..10 {
        let at = w.map(4);
        assert_eq!(w.count(Counter::ZeroHot), round);
        w.unmap(at, 4);
        w.fake.advance_ms(LATER_MS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Whatever fails while memory is zeroed, and whatever is set, what is handed out as zero is.
    #[test]
    fn memory_promised_as_zero_is(
        start in 9u64..16,
        stop in 9u64..14,
        ops in prop::collection::vec((0usize..8, 1usize..20), 1..80),
    ) {
        let w = World::new();
        w.knobs.set(Knob::ScrubStart, start);
        w.knobs.set(Knob::ScrubStop, stop);
        let mut has = Vec::new();
        for (op, n) in ops {
            match op {
                0 | 1 => has.push((w.map(n), n)),
                2 | 3 if !has.is_empty() => {
                    let (at, n) = has.swap_remove(n % has.len());
                    w.unmap(at, n);
                }
                4 => w.fake.fail([Failing::Engine, Failing::Stall][n % 2]),
                5 => w.fake.heal(),
                _ => {
                    w.fake.advance_ms(n as u64);
                    for _ in 0..n {
                        w.space.step();
                    }
                }
            }
        }
    }
}
