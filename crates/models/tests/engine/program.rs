//! What the threads of the program do.

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span, UNIT};
use faultless_fake::Failing;
use faultless_mm::Need;
use shuttle::rand::{Rng, thread_rng};

use crate::world::{Thing, World};

type Call = fn(&World);

/// Calls, and how often each is made.
const CALLS: &[(Call, usize)] = &[
    (map, 5),
    (allocate, 5),
    (give_back, 6),
    (give_back_later, 1),
    (unmap_front, 2),
    (split, 2),
    (protect, 2),
    (drop_content, 2),
    (drop_unseen, 1),
    (unmap_unseen, 2),
    (replace, 2),
    (commit, 2),
    (move_mapping, 2),
    (pin, 1),
    (resize, 1),
    (write, 1),
    (fork, 1),
    (taint, 1),
    (press, 1),
    (wait, 2),
];

impl World {
    /// One call.
    pub fn call(&self) {
        let mut at = chance(CALLS.iter().map(|(_, weight)| weight).sum());
        for (call, weight) in CALLS {
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

fn map(w: &World) {
    let pages = (1 + chance(4)) * SLOT_PAGES + [0, 0, 0, 100][chance(4)];
    let span = w.map(chance(2), pages);
    w.own(span.start, span.bytes() / PAGE, false, true);
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

/// Plain memory that the program puts where it has some.
fn commit(w: &World) {
    let Some(thing) = w.take(|t| is_mapping(t) && t.pages >= 2 * SLOT_PAGES) else { return };
    w.check(thing);
    w.call_about(thing.span(), || {
        {
            let _replaced = w.space.replace(thing.span());
            w.sys.step().empty(thing.span());
        }
        w.space.forget(thing.span());
        w.space.uncommitted(thing.span());
        w.space.committed(thing.span());
    });
    w.own(thing.at, thing.pages, false, true);
}

/// Slots and pages from the front, so that the program has some slot in part.
fn unmap_front(w: &World) {
    let Some(mut thing) = w.take(|t| is_mapping(t) && t.pages > SLOT_PAGES) else { return };
    let front = Span::new(thing.at, [10, SLOT_PAGES, SLOT_PAGES / 2][chance(3)] * PAGE);
    w.check(thing);
    thing.at = front.end;
    thing.pages -= front.bytes() / PAGE;
    // First, so that the program still has it when the thread ends in its call.
    w.put(w.fill(thing));
    w.unmap(chance(2), front);
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

/// Closes memory for a while, in which no other thread may touch it. The engine hears nothing of it.
fn protect(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.sys.step().close(thing.span());
    for _ in 0..8 {
        w.sys.step();
    }
    w.sys.step().open(thing.span());
    w.check(thing);
    w.put(thing);
}

fn drop_content(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.call_about(thing.span(), || {
        w.space.recycle(chance(2), thing.span(), |part| {
            w.sys.step().empty(part);
            true
        });
    });
    dropped(w, thing);
}

fn drop_unseen(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.sys.step().empty(thing.span());
    dropped(w, thing);
}

/// Whatever moves there is zero; the program uses it again, or not.
fn dropped(w: &World, thing: Thing) {
    let thing = Thing { byte: 0, ..thing };
    w.check(thing);
    w.put(if chance(3) == 0 { thing } else { w.fill(thing) });
}

/// Drops what was in use, again and again.
pub fn drop_again(w: &World) {
    map(w);
    for _ in 0..4 {
        write(w);
        drop_content(w);
    }
}

fn unmap_unseen(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.check(thing);
    w.unmap_unseen(thing.span());
}

/// A mapping of the program's own over one that it has; the engine hears of it afterwards, or not at all.
fn replace(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    w.check(thing);
    let seen = chance(2) == 0;
    if !seen {
        w.unseen.put(thing.span());
    }
    let fake = w.sys.step();
    fake.unmap(thing.span());
    fake.open(thing.span());
    if seen {
        w.space.forget(thing.span());
    }
    w.own(thing.at, thing.pages, false, true);
}

fn move_mapping(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    let (from, more) = (thing.span(), chance(2) * SLOT_PAGES * PAGE);
    let seen = chance(2) == 0;
    if !seen {
        w.unseen.put(from);
    }
    let to = {
        let fake = w.sys.step();
        let whole = fake.map(from.bytes() + more + from.start % SLOT);
        let to = Span { start: whole.start + from.start % SLOT, end: whole.end };
        fake.unmap(Span { start: whole.start, end: to.start });
        assert!(fake.migrate(from, to.start));
        fake.unmap(from);
        to
    };
    w.vacant.put(from);
    if seen {
        w.call_about(to, || w.space.moved(from, to));
    }
    w.check_moved(thing, to.start, thing.pages);
    w.put(w.fill(Thing { at: to.start, pages: to.bytes() / PAGE, ..thing }));
}

/// A page has another reference for a while: it cannot move.
fn pin(w: &World) {
    let Some(thing) = w.take(is_mapping) else { return };
    let page = thing.at + chance(thing.pages) * PAGE;
    w.sys.step().pin(page, true);
    let span = thing.span();
    w.call_about(span, || {
        w.space.recycle(0, span, |part| {
            w.sys.step().empty(part);
            true
        });
    });
    w.sys.step().pin(page, false);
    dropped(w, thing);
}

fn taint(w: &World) {
    let Some(thing) = w.take(|thing| thing.block) else { return };
    w.space.taint(thing.span());
    // No thread of the engine accesses it any more, not even one that was about to.
    let closed = Span::new(thing.at, PAGE);
    w.sys.step().close(closed);
    w.sys.step().open(closed);
    w.put(thing);
}

fn resize(w: &World) {
    if w.leaves {
        // A block whose thread is gone has no owner, and is lost as it would be without faultless.
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

/// The same, or gives idle memory back.
pub fn recycle_or_press(w: &World) {
    if chance(3) == 0 { press(w) } else { recycle(w) }
}

/// The same as [`recycle`], and engines that fail from time to time; some of the memory is wanted while it is being zeroed.
pub fn recycle_under_failures(w: &World) {
    match chance(6) {
        0 => w.sys.step().fail(Failing::Engine),
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

/// Maps a slot and gives back parts of slots that any thread has mapped.
pub fn give_back_parts(w: &World) {
    let span = w.map(0, SLOT_PAGES);
    w.own(span.start, span.bytes() / PAGE, false, true);
    split(w);
    give_back(w);
    give_back(w);
}

/// Unmaps a range, seen or unseen, while others map there at once.
pub fn map_where_others_unmap(w: &World) {
    map(w);
    match chance(3) {
        0 => unmap_unseen(w),
        1 => move_mapping(w),
        _ => give_back(w),
    }
    map(w);
    give_back(w);
}

/// Maps a range, or unmaps one that another thread maps or unmaps at that moment.
pub fn unmap_under_way(w: &World) {
    match chance(3) {
        0 => w.unmap_under_way(0),
        1 => w.unseen.put(w.map(chance(2), 3 * SLOT_PAGES)),
        _ => {
            let span = w.map(chance(2), 3 * SLOT_PAGES);
            w.unmap(0, span);
        }
    }
}

/// Walks into a large mapping, in which the background thread goes ahead, and ends that in one way or another.
pub fn grow(w: &World) {
    let span = w.map(0, GROWTH * SLOT_PAGES);
    let thing = Thing { at: span.start, pages: span.bytes() / PAGE, byte: 0, block: false };
    for slot in 0..=chance(2) {
        let first = Span::new(thing.at + slot * SLOT, PAGE);
        w.sys.step().write(first, 0);
    }
    w.put(thing);
    match chance(6) {
        0 => give_back(w),
        1 => protect(w),
        2 => replace(w),
        3 => unmap_unseen(w),
        4 => drop_content(w),
        _ => move_mapping(w),
    }
}
const GROWTH: usize = 6;

fn wait(w: &World) {
    w.sys.step().advance_ms([6, 600, 11_000][chance(3)]);
}
