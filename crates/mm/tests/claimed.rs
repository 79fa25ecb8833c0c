//! Memory that the program maps where it wants it, in the middle of the arena.

use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;
use faultless_testkit::limit::limit;

const SLOTS: usize = 256;

fn world() -> (Space<Fake>, Fake) {
    limit();
    let fake = Fake::default();
    let knobs: &'static Values = Box::leak(Box::default());
    knobs.set(Knob::Budget, 64 * SLOT as u64);
    let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
    let space = Space::new(fake.clone(), SLOTS * SLOT, 1, counters, knobs).unwrap();
    (space, fake)
}

/// The program's memory, all of one byte.
fn place(fake: &Fake, span: Span) {
    fake.unmap(span);
    fake.open(span);
    fake.write(span, 0x77);
}

fn is_untouched(fake: &Fake, span: Span) -> bool {
    (span.start..span.end).step_by(PAGE).all(|at| fake.read(at) == Some(0x77))
}

/// Memory that was a block: how much is idle, and a part of it.
fn idle(space: &Space<Fake>, fake: &Fake) -> (usize, Span) {
    let block = space.allocate(0, 32 * SLOT, SLOT, Need::Any).unwrap();
    let block = Span::new(block.addr, 32 * SLOT);
    fake.write(block, 1);
    assert!(space.free(block.start));
    (space.budget().idle(), Span::new(block.start + 7 * SLOT + PAGE, 3 * SLOT))
}

/// Takes all that there is, and gives it back.
fn use_all(space: &Space<Fake>, fake: &Fake, claimed: Span) -> usize {
    let ask = || space.allocate(0, 3 * SLOT, SLOT, Need::Zero).map(|block| Span::new(block.addr, 3 * SLOT));
    let blocks: Vec<_> = std::iter::from_fn(ask).collect();
    for block in &blocks {
        assert!(block.clip(claimed).is_empty(), "{block:x?} is the program's");
        fake.write(*block, 5);
    }
    blocks.iter().for_each(|block| assert!(space.free(block.start)));
    blocks.len()
}

#[test]
fn what_lies_where_the_arena_grows_is_left_alone() {
    for (first, n) in [(0, 1), (3, 2), (40, 30), (SLOTS - 40, 3)] {
        let (space, fake) = world();
        let claimed = Span::new(space.span().start + first * SLOT + PAGE, n * SLOT);
        place(&fake, claimed);
        let before = use_all(&space, &fake, claimed);
        assert!(before > 0);
        assert!(is_untouched(&fake, claimed));
        space.fork_prepare();
        space.fork_child();
        assert!(is_untouched(&fake, claimed), "in a child");
        assert!(use_all(&space, &fake, claimed) > 0);
        space.retire();
        assert!(is_untouched(&fake, claimed), "once all is over");
    }
}

#[test]
fn a_child_leaves_alone_what_the_arena_has_not_reached() {
    let (space, fake) = world();
    let block = space.allocate(0, 3 * SLOT, SLOT, Need::Zero).unwrap();
    let claimed = Span::new(space.span().start + 100 * SLOT, SLOT);
    place(&fake, claimed);
    space.fork_prepare();
    space.fork_child();
    assert!(is_untouched(&fake, claimed));
    assert!(space.free(block.addr) && use_all(&space, &fake, claimed) > 0);
    assert!(is_untouched(&fake, claimed));
}

#[test]
fn what_is_to_lie_over_free_memory_takes_its_place() {
    let (space, fake) = world();
    let (idle, claimed) = idle(&space, &fake);
    space.give_up(claimed);
    assert_eq!(space.budget().idle(), idle.saturating_sub(4), "four slots are not idle any more");
    place(&fake, claimed);
    assert!(use_all(&space, &fake, claimed) > 0);
    assert!(is_untouched(&fake, claimed));
}

#[test]
fn what_is_given_up_without_a_lock_is_used_by_nobody() {
    let (space, fake) = world();
    let (idle, claimed) = idle(&space, &fake);
    space.give_up_inside(claimed);
    place(&fake, claimed);
    for take in [
        |space: &Space<Fake>| {
            assert!(space.allocate(0, 32 * SLOT, SLOT, Need::Any).is_some_and(|b| space.free(b.addr)))
        },
        |space: &Space<Fake>| assert!(space.press() > 0),
        |space: &Space<Fake>| assert_eq!(space.press(), 0),
        |space: &Space<Fake>| space.fork_child(),
    ] {
        take(&space);
        assert!(is_untouched(&fake, claimed));
    }
    assert!(idle > 0 && space.budget().idle() == 0, "also the four slots are not idle any more");
    assert!(use_all(&space, &fake, claimed) > 0);
    assert!(is_untouched(&fake, claimed));
    space.retire();
    assert!(is_untouched(&fake, claimed));
}

#[test]
fn a_child_does_not_come_to_what_was_given_up_without_a_lock() {
    let (space, fake) = world();
    let (_, claimed) = idle(&space, &fake);
    space.give_up_inside(claimed);
    place(&fake, claimed);
    space.fork_child();
    assert!(is_untouched(&fake, claimed));
    assert!(use_all(&space, &fake, claimed) > 0);
    assert!(is_untouched(&fake, claimed));
}

/// Given up before the arena grows there: it may hold nothing by then, and so the kernel knows nothing of it.
#[test]
fn the_arena_does_not_grow_over_what_was_given_up() {
    for first in [0, 5, 17, SLOTS - 2] {
        let (space, fake) = world();
        let claimed = Span::new(space.span().start + first * SLOT, SLOT + PAGE);
        space.give_up_inside(claimed);
        // One block may come in vain: where the arena was to grow.
        space
            .allocate(0, 3 * SLOT, SLOT, Need::Zero)
            .into_iter()
            .for_each(|block| assert!(space.free(block.addr)));
        assert!(use_all(&space, &fake, claimed) > 0);
        space.fork_child();
        assert!(use_all(&space, &fake, claimed) > 0);
        assert!(space.retire());
    }
}
