//! A program that takes, uses and gives back the same amount again and again has its memory recycled, also where that
//! is more than the budget.

mod calls;

use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block as Counters, Counter};

/// Slots of the budget, and rounds of a loop.
const BUDGET: usize = 32;
const ROUNDS: usize = 20;

fn space() -> (Space<Fake>, Fake, &'static Counters) {
    let fake = Fake::default();
    let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
    let knobs: &'static Values = Box::leak(Box::default());
    knobs.set(Knob::Budget, (BUDGET * SLOT) as u64);
    (Space::new(fake.clone(), 1024 * SLOT, 1, counters, knobs).unwrap(), fake, &counters[0])
}

/// Slots that were handed out without memory in `ROUNDS` rounds of `round`, each of `n` slots.
fn brought_by_the_kernel(n: usize, mut round: impl FnMut(&Space<Fake>, &Fake)) -> usize {
    let (space, fake, counters) = space();
    for _ in 0..ROUNDS {
        round(&space, &fake);
        fake.advance_ms(1);
        let limit = (n + BUDGET) * SLOT;
        assert!(fake.resident() * PAGE <= limit, "{} pages", fake.resident());
    }
    let fresh = [Counter::BytesFreshHuge, Counter::BytesFreshSmall];
    fresh.iter().map(|&counter| counters.get(counter as usize) as usize / SLOT).sum()
}

#[test]
fn a_loop_of_blocks_is_recycled() {
    for n in [8, BUDGET, 2 * BUDGET, 3 * BUDGET] {
        for need in [Need::Any, Need::Zero] {
            let mut turn = 1;
            let fresh = brought_by_the_kernel(n, |space, fake| {
                turn += 1;
                let at = space.allocate(0, n * SLOT, PAGE, need).unwrap().addr;
                fake.write(Span::new(at, n * SLOT), turn);
                assert!(space.free(at));
            });
            assert!(fresh <= 8 * n, "{n} slots, {need:?}: {fresh} slots in {ROUNDS} rounds");
        }
    }
}

/// Otherwise each block brings a huge page that the last one had.
#[test]
fn a_block_of_which_little_is_used_comes_again() {
    let (space, fake, _) = space();
    let round = || {
        let at = space.allocate(0, 4 * SLOT, PAGE, Need::Any).unwrap().addr;
        fake.write(Span::new(at, SLOT), 1);
        assert!(space.free(at));
        at
    };
    let first = round();
    assert!((1..ROUNDS).all(|_| round() == first));
    assert_eq!(fake.resident(), SLOT / PAGE);
}

#[test]
fn a_loop_of_mappings_is_recycled() {
    for n in [8, BUDGET, 2 * BUDGET, 3 * BUDGET] {
        let fresh = brought_by_the_kernel(n, |space, fake| {
            let span = calls::map(space, fake, 0, n * SLOT);
            fake.write(span, 1);
            calls::unmap(space, fake, 0, span);
        });
        assert!(fresh <= 8 * n, "{n} slots: {fresh} slots in {ROUNDS} rounds");
    }
}

/// Frames come to the first ones only, until it is known that they are not used.
#[test]
fn mappings_that_are_not_used_cost_no_moves() {
    for n in [2, 8] {
        let (space, fake, counters) = space();
        let used = calls::map(&space, &fake, 0, 8 * SLOT);
        fake.write(used, 1);
        calls::unmap(&space, &fake, 0, used);
        let rounds = |count| {
            let moved = || counters.get(Counter::BytesMoved as usize);
            let before = moved();
            for _ in 0..count {
                let span = calls::map(&space, &fake, 0, n * SLOT);
                calls::unmap(&space, &fake, 0, span);
            }
            moved() - before
        };
        assert!(rounds(100) > 0);
        assert_eq!(rounds(1000), 0, "{n} slots");
    }
}

/// Idle memory in pieces serves a block that is larger than each piece, and one that grows.
#[test]
fn idle_memory_in_pieces_moves_together() {
    for need in [Need::Any, Need::Zero] {
        let (space, fake, counters) = space();
        let block = |n| space.allocate(0, n * SLOT, PAGE, need).unwrap().addr;
        let blocks: Vec<usize> = (0..6)
            .map(|turn| {
                let at = block(4);
                fake.write(Span::new(at, 4 * SLOT), turn + 1);
                at
            })
            .collect();
        let moved = || counters.get(Counter::BytesMoved as usize) as usize / SLOT;
        blocks.iter().step_by(2).for_each(|&at| assert!(space.free(at)));
        let large = block(8);
        assert_eq!(moved(), 8, "{need:?}");
        let holds = |at: usize, n: usize, byte: u8| {
            (at..at + n * SLOT).step_by(PAGE).all(|at| fake.read(at).unwrap_or(0) == byte)
        };
        assert!(need == Need::Any || holds(large, 8, 0));
        fake.write(Span::new(large, 8 * SLOT), 9);
        let grown = space.resize(0, large, 12 * SLOT).unwrap();
        assert_eq!(moved(), 12, "{need:?}");
        assert!(holds(grown, 8, 9));
        assert!([1, 3, 5].iter().all(|&i| holds(blocks[i], 4, i as u8 + 1)));
    }
}
