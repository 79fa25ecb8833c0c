//! What the threads of the program do.

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span, UNIT};
use faultless_fake::Failing;
use faultless_mm::Need;
use faultless_mm::mapping::Change;
use shuttle::rand::{Rng, thread_rng};

use crate::world::{Thing, World};

type Call = fn(&World);

/// Calls, and how often each is made.
const CALLS: &[(Call, u32)] = &[
    (map, 5),
    (allocate, 5),
    (give_back, 6),
    (unmap_front, 2),
    (split, 2),
    (protect, 2),
    (drop_content, 1),
    (claim, 1),
    (extend, 1),
    (move_mapping, 1),
    (resize, 1),
    (write, 1),
    (fork, 1),
    (press, 1),
    (wait, 2),
];

/// Calls about blocks, none of which waits for another thread.
const BLOCK_CALLS: &[(Call, u32)] = &[
    (allocate, 6),
    (give_back, 4),
    (give_back_later, 1),
    (resize, 2),
    (write, 1),
    (fork, 1),
    (press, 1),
    (wait, 2),
];

impl World {
    /// One call.
    pub fn call(&self) {
        self.one_of(CALLS);
    }

    /// One call about blocks.
    pub fn block_call(&self) {
        self.one_of(BLOCK_CALLS);
    }

    fn one_of(&self, calls: &[(Call, u32)]) {
        let mut at = thread_rng().gen_range(0..calls.iter().map(|(_, weight)| weight).sum());
        for (call, weight) in calls {
            if at < *weight {
                return call(self);
            }
            at -= weight;
        }
    }
}

fn chance(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

fn is_mapping(thing: &Thing) -> bool {
    !thing.block
}

fn is_whole(thing: &Thing) -> bool {
    !thing.block && thing.at % SLOT == 0 && thing.pages % SLOT_PAGES == 0
}

fn map(w: &World) {
    let pages = (1 + chance(4)) * SLOT_PAGES + [0, 0, 0, 100][chance(4)];
    if let Some(at) = w.space.map(chance(2), pages * PAGE, 1) {
        w.own(at, pages, false, true);
    }
}

fn allocate(w: &World) {
    let bytes = [UNIT, 9 * UNIT, 20 * UNIT, SLOT + PAGE, 2 * SLOT, 4 * SLOT][chance(6)];
    let need = [Need::Zero, Need::Any][chance(2)];
    if let Some(got) = w.space.allocate(chance(2), bytes, 16, need) {
        w.own(got.addr, w.space.usable(got.addr) / PAGE, true, got.zero);
    }
}

fn give_back(w: &World) {
    if let Some(thing) = w.take(|_| true) {
        w.give_back(thing);
    }
}

/// As a signal handler frees that interrupted the engine.
fn give_back_later(w: &World) {
    if let Some(thing) = w.take(|t| t.block) {
        w.check(thing);
        assert!(w.space.free_later(thing.at), "{thing:x?}");
    }
}

/// Slots and pages from the front, so that some slot is lent in part.
fn unmap_front(w: &World) {
    let Some(mut thing) = w.take(|t| is_mapping(t) && t.pages > SLOT_PAGES) else { return };
    let pages = [10, SLOT_PAGES, SLOT_PAGES / 2][chance(3)];
    w.check(thing);
    w.space.unmap(Span::new(thing.at, pages * PAGE));
    thing.at += pages * PAGE;
    thing.pages -= pages;
    w.put(w.fill(thing));
}

/// No call: two threads may deal with the parts of one slot from now on.
fn split(w: &World) {
    let Some(thing) = w.take(|t| is_mapping(t) && t.pages > EDGE) else { return };
    w.check(thing);
    let front = Thing { pages: EDGE, ..thing };
    let back = Thing { at: thing.at + EDGE * PAGE, pages: thing.pages - EDGE, ..thing };
    w.put(w.fill(front));
    w.put(w.fill(back));
}
const EDGE: usize = SLOT_PAGES / 2;

/// Closes memory for a while, in which nobody else may touch it.
fn protect(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.space.change(thing.span(), Change::Attributes);
    assert!(w.sys.step().close(thing.span()));
    for _ in 0..8 {
        w.sys.step();
    }
    assert!(w.sys.step().open(thing.span()));
    w.check(thing);
    w.put(thing);
}

fn drop_content(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.space.recycle(thing.span(), |part| w.sys.step().discard(part));
    w.put(Thing { byte: 0, ..thing });
}

/// A mapping of the program's own over one that it has.
fn claim(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.check(thing);
    w.space.claim(thing.span());
    let fake = w.sys.step();
    assert!(fake.reset(thing.span()) && fake.open(thing.span()));
    w.put(w.fill(thing));
}

fn extend(w: &World) {
    let Some(thing) = w.take(is_whole) else { return };
    let longer = Thing { pages: thing.pages + SLOT_PAGES, ..thing };
    if w.space.extend(thing.span(), longer.pages * PAGE) {
        w.own(thing.at + thing.pages * PAGE, SLOT_PAGES, false, true);
    }
    w.put(thing);
}

fn move_mapping(w: &World) {
    let Some(mut thing) = w.take(is_whole) else { return };
    let pages = thing.pages + chance(2) * SLOT_PAGES;
    if let Some(at) = w.space.move_mapping(chance(2), thing.span(), pages * PAGE) {
        w.check_moved(thing, at, thing.pages);
        thing = w.fill(Thing { at, pages, ..thing });
    }
    w.put(thing);
}

fn resize(w: &World) {
    if w.leaves {
        // A block whose thread is gone belongs to nobody, and is lost as it would be without faultless.
        return;
    }
    let Some(mut thing) = w.take(|t| t.block && t.at % SLOT == 0 && t.pages > SLOT_PAGES) else { return };
    if let Some(at) = w.space.resize(chance(2), thing.at, (2 + chance(4)) * SLOT) {
        let pages = w.space.usable(at) / PAGE;
        w.check_moved(thing, at, pages);
        thing = w.fill(Thing { at, pages, ..thing });
    }
    w.put(thing);
}

fn write(w: &World) {
    let Some(thing) = w.take(|_| true) else { return };
    w.check(thing);
    w.put(w.fill(thing));
}

/// A fork, seen from the parent.
fn fork(w: &World) {
    w.space.fork_prepare();
    w.sys.step();
    w.space.fork_parent();
}

fn press(w: &World) {
    w.space.press();
}

/// Maps memory and gives it back; it is dirty for long enough then.
pub fn recycle(w: &World) {
    map(w);
    give_back(w);
    w.sys.step().advance_ms(6);
}

/// The same, and engines that fail from time to time; some of the memory is wanted while it is being zeroed.
pub fn recycle_under_failures(w: &World) {
    match chance(6) {
        0 => w.sys.step().fail([Failing::Engine, Failing::Stage, Failing::Unstage][chance(3)]),
        1 => w.sys.step().heal(),
        _ => {}
    }
    recycle(w);
    for _ in 0..chance(4) {
        w.sys.step();
    }
    allocate(w);
    give_back(w);
}

/// Maps a slot and gives back parts of slots, whoever mapped them.
pub fn give_back_parts(w: &World) {
    if let Some(at) = w.space.map(0, SLOT, 1) {
        w.own(at, SLOT_PAGES, false, true);
    }
    split(w);
    give_back(w);
    give_back(w);
}

/// Walks into a large mapping, in which the background thread goes ahead, and ends that in one way or another.
pub fn grow(w: &World) {
    let Some(at) = w.space.map(0, GROWTH * SLOT, 1) else { return };
    let thing = Thing { at, pages: GROWTH * SLOT_PAGES, byte: 0, block: false };
    for slot in 0..=chance(2) {
        let first = Span::new(at + slot * SLOT, PAGE);
        w.sys.step().write(first, 0);
    }
    w.put(thing);
    match chance(4) {
        0 => drop(w.take(is_mapping).map(|thing| w.space.unmap(thing.span()))),
        1 => protect(w),
        2 => claim(w),
        _ => move_mapping(w),
    }
}
const GROWTH: usize = 6;

fn wait(w: &World) {
    w.sys.step().advance_ms([6, 600, 11_000][chance(3)]);
}
