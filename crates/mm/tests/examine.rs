//! Blocks whose attributes change by calls that are not seen.

use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;
use faultless_testkit::limit::limit;

struct World {
    space: Space<Fake>,
    fake: Fake,
}

fn world() -> World {
    limit();
    let fake = Fake::default();
    let knobs: &'static Values = Box::leak(Box::default());
    knobs.set(Knob::Budget, 64 * SLOT as u64);
    let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
    let space = Space::new(fake.clone(), 256 * SLOT, 1, counters, knobs).unwrap();
    World { space, fake }
}

fn allocate(o: &World, slots: usize) -> Span {
    let bytes = slots * SLOT;
    let at = o.space.allocate(0, bytes, SLOT, Need::Any).expect("there is room").addr;
    let span = Span::new(at, bytes);
    o.fake.write(span, 7);
    span
}

fn is_altered(o: &World, span: Span) -> bool {
    (span.start..span.end).step_by(PAGE).any(|at| o.fake.page(at).altered)
}

/// Each slot that is free or will be handed out.
fn nothing_free_is_altered(o: &World) {
    for _ in 0..12 {
        let span = allocate(o, 3);
        assert!(!is_altered(o, span), "{span:x?}");
    }
}

#[test]
fn a_block_as_it_was_made_is_kept_where_it_is() {
    // With and without free slots behind it.
    for slots in [2, 3, 15, 16, 17, 32, 33] {
        let o = world();
        let first = allocate(&o, slots);
        assert!(o.space.free(first.start));
        assert_eq!(o.space.budget().idle(), slots, "{slots} slots");
        assert_eq!(allocate(&o, slots), first);
        assert!(o.space.free(first.start));
        assert_eq!(o.space.budget().idle(), slots, "{slots} slots once more");
    }
}

#[test]
fn frames_of_a_block_that_changed_are_kept() {
    for altered in
        [Span::new(0, 4 * SLOT), Span::new(0, PAGE), Span::new(SLOT + PAGE, PAGE), Span::new(3 * SLOT, SLOT)]
    {
        let o = world();
        let block = allocate(&o, 4);
        o.fake.alter(Span::new(block.start + altered.start, altered.bytes()));
        assert!(o.space.free(block.start));
        assert!(!is_altered(&o, block));
        assert_eq!(o.space.budget().idle(), 4);
        assert!(o.fake.page(block.start).present && o.fake.page(block.end - PAGE).present, "they move back");
        nothing_free_is_altered(&o);
    }
}

#[test]
fn neighbours_that_changed_alike_do_not_vouch_for_each_other() {
    let o = world();
    let blocks: Vec<_> = (0..4).map(|_| allocate(&o, 4)).collect();
    for block in &blocks {
        o.fake.alter(*block);
    }
    for block in &blocks[1..] {
        assert!(o.space.free(block.start));
        assert!(!is_altered(&o, *block));
    }
    nothing_free_is_altered(&o);
}

#[test]
fn what_cannot_move_goes_back_to_the_kernel() {
    let o = world();
    let block = allocate(&o, 4);
    o.fake.close(Span::new(block.start + SLOT, PAGE));
    o.fake.fail(Failing::Moves);
    assert!(o.space.free(block.start));
    assert_eq!(o.fake.read(block.start + SLOT), Some(0));
    assert!(o.space.budget().idle() <= 3);
    nothing_free_is_altered(&o);
}

#[test]
fn the_old_place_of_a_block_that_was_moved() {
    let o = world();
    let block = allocate(&o, 2);
    let _neighbour = allocate(&o, 2);
    o.fake.alter(block);
    let moved = o.space.resize(0, block.start, 8 * SLOT).expect("there is room");
    assert_ne!(moved, block.start);
    assert!(!is_altered(&o, block));
    assert!(o.space.free(moved));
    nothing_free_is_altered(&o);
}
