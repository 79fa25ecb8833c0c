//! Zeroed frames that move to where the program is about to be.

mod calls;
mod resting;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::Space;
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block, Counter};

/// The budget, in slots.
const LIMIT: usize = 256;

struct Program {
    fake: Fake,
    space: Space<Fake>,
    counters: &'static [Block],
    knobs: &'static Values,
}

impl Program {
    fn new() -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (LIMIT * SLOT) as u64);
        knobs.set(Knob::Mapped, 1);
        knobs.set(Knob::Check, 1);
        let (fake, counters): (_, &'static [Block]) = (Fake::default(), Box::leak(Box::new([Block::new()])));
        let space = Space::new(fake.clone(), 1024 * SLOT, 1, counters, knobs).unwrap();
        Self { fake, space, counters, knobs }
    }

    fn count(&self, counter: Counter) -> usize {
        self.counters[0].get(counter as usize) as usize
    }

    fn map(&self, slots: usize) -> Span {
        calls::map(&self.space, &self.fake, 0, slots * SLOT)
    }

    fn unmap(&self, span: Span) {
        calls::unmap(&self.space, &self.fake, 0, span);
    }

    fn rest(&self) {
        resting::rest(&self.space, LIMIT);
    }

    /// The program uses `slots` slots at once, before the background thread has a processor.
    fn prepare(&self, slots: usize) {
        self.fake.write(self.map(slots), 7);
        self.rest();
    }

    /// A mapping that finds no frames; and then, because the program uses so much elsewhere, there are some.
    fn growing(&self, slots: usize, frames: usize) -> Span {
        let other = self.map(frames);
        let span = self.map(slots);
        self.fake.write(other, 7);
        // What is ahead of a program comes first, until it seems to stand still.
        (0..4).for_each(|_| self.rest());
        let idle = self.space.budget().idle();
        assert!(idle >= frames, "{idle} of {frames} frames");
        span
    }

    /// The program unmaps it, and nothing is asked for during a long time.
    fn leave(&self, span: Span) {
        self.unmap(span);
        self.rest();
        (0..300).for_each(|_| _ = self.space.step());
    }

    /// The program walks through slots, which must be zero, and writes to every page.
    fn walk(&self, span: Span) {
        for at in (span.start..span.end).step_by(SLOT) {
            let slot = Span::new(at, SLOT);
            assert!((at..at + SLOT).step_by(PAGE).all(|page| self.fake.read(page) == Some(0)));
            self.fake.write(slot, 7);
            self.rest();
        }
    }

    fn present(&self, span: Span) -> Vec<usize> {
        (0..span.bytes() / SLOT).filter(|i| self.fake.page(span.start + i * SLOT).present).collect()
    }
}

fn range(from: usize, to: usize) -> Vec<usize> {
    (from..to).collect()
}

#[test]
fn as_much_as_was_used_is_zeroed_up_to_a_quarter_of_the_budget() {
    for (used, supplied) in [(10, 10), (LIMIT, LIMIT / 4)] {
        let p = Program::new();
        p.prepare(used);
        // One more was touched to see whether memory is cold.
        let idle = p.space.budget().idle();
        assert!((supplied..=supplied + 1).contains(&idle), "{idle} instead of {supplied}");
    }
}

#[test]
fn windows_double_behind_markers_while_the_program_follows() {
    let p = Program::new();
    let span = p.growing(80, 60);
    assert_eq!(p.present(span), [], "before the program has come");
    let slots = |from: usize, to: usize| Span::new(span.start + from * SLOT, (to - from) * SLOT);
    p.walk(slots(0, 1));
    // The program's slot and the next one; then a marker, and a window of sixteen.
    assert_eq!(p.present(span), [&[0], &range(3, 19)[..]].concat());
    p.walk(slots(1, 2));
    assert_eq!(p.count(Counter::MoveWindows), 1);
    p.walk(slots(2, 3));
    assert_eq!(p.present(span), [range(0, 19), range(20, 52)].concat());
    assert_eq!(p.count(Counter::MoveWindows), 2);
    p.walk(Span { start: span.start + 3 * SLOT, end: span.end });
    assert_eq!(p.count(Counter::BytesMovedUnused), 0);
    assert!(p.count(Counter::BytesMoved) >= 48 * SLOT, "{}", p.count(Counter::BytesMoved) / SLOT);
}

/// A program that grows into forty slots, and any of these slots. Slot 9 is in use.
fn growing_over_a_used_slot() -> (Program, Span, impl Fn(usize) -> Span) {
    let p = Program::new();
    let span = p.growing(40, 30);
    let slot = move |i: usize| Span::new(span.start + i * SLOT, SLOT);
    p.fake.write(slot(9), 5);
    (p, span, slot)
}

#[test]
fn what_the_program_does_not_come_to_is_counted() {
    let p = Program::new();
    let span = p.growing(40, 30);
    p.walk(Span::new(span.start, SLOT));
    assert_eq!(p.count(Counter::BytesMovedUnused), 0);
    p.leave(span);
    assert_eq!(p.count(Counter::BytesMovedUnused), 16 * SLOT);
}

#[test]
fn nothing_moves_onto_what_is_there_or_to_what_is_closed() {
    let (p, span, slot) = growing_over_a_used_slot();
    let moved = p.count(Counter::BytesMoved);
    p.walk(slot(0));
    assert_eq!(p.present(span), [&[0], &range(3, 19)[..]].concat());
    assert_eq!(p.fake.read(slot(9).start), Some(5));
    assert_eq!(p.count(Counter::BytesMoved) - moved, 15 * SLOT);
    p.fake.close(slot(25));
    p.walk(slot(1));
    p.walk(slot(2));
    assert!(!p.present(span).contains(&25));
}

/// Neither what the program had there already, nor what moved when the mapping was made.
#[test]
fn what_moved_ahead_is_what_moved_there() {
    let (p, span, slot) = growing_over_a_used_slot();
    let ahead = p.count(Counter::BytesMovedAhead);
    p.walk(slot(0));
    assert_eq!(p.count(Counter::BytesMovedAhead) - ahead, 15 * SLOT);
    p.leave(span);
    assert_eq!(p.count(Counter::BytesMovedUnused), 15 * SLOT, "of sixteen slots, one was the program's");
    let (all, ahead) = (p.count(Counter::BytesMoved), p.count(Counter::BytesMovedAhead));
    p.map(4);
    assert_eq!(p.count(Counter::BytesMoved) - all, 4 * SLOT, "it finds frames");
    assert_eq!(p.count(Counter::BytesMovedAhead), ahead);
}

#[test]
fn turned_off_while_the_program_runs_nothing_is_zeroed_or_moved_any_more() {
    let p = Program::new();
    let span = p.growing(40, 30);
    p.walk(Span::new(span.start, SLOT));
    let counted = || [Counter::MoveWindows, Counter::BytesMoved, Counter::BytesTouchedAhead].map(|c| p.count(c));
    let ([windows, moved, made], idle) = (counted(), p.space.budget().idle());
    assert!(windows > 0 && idle > 0);
    p.knobs.set(Knob::Mapped, 0);
    p.walk(Span { start: span.start + SLOT, end: span.end });
    // What still comes ahead of the program is made for that place.
    let [windows_now, moved_now, made_now] = counted();
    assert!(moved_now > moved);
    assert_eq!((windows_now, moved_now - moved), (windows, made_now - made));
    assert_eq!(p.space.budget().idle(), idle);
    p.prepare(30);
    assert!(p.space.budget().idle() < idle);
}

#[test]
fn without_moves_everything_is_as_always() {
    let p = Program::new();
    p.fake.fail(Failing::Moves);
    p.prepare(30);
    p.walk(p.map(40));
    assert_eq!((p.count(Counter::MovesRefused), p.count(Counter::BytesMoved)), (1, 0));
    // The one frame that could not move showed it; after that, no frame is made that cannot go where it is needed.
    assert!(p.count(Counter::BytesTouchedAhead) <= SLOT, "{} slots", p.count(Counter::BytesTouchedAhead) / SLOT);
    assert!(p.space.budget().idle() <= 1);
}

/// Slots that are present behind the first `n`, where only the background thread was.
fn behind(p: &Program, span: Span, n: usize) -> usize {
    p.present(span).into_iter().filter(|i| *i >= n).count()
}

#[test]
fn what_was_brought_ahead_is_looked_at_when_the_program_is_done_with_it() {
    for mapped in [0, 1] {
        let p = Program::new();
        p.knobs.set(Knob::Mapped, mapped);
        p.prepare(30);
        let brought = || p.count(Counter::BytesMoved);
        let (before, seen) = (brought(), p.count(Counter::BytesAheadSeen));
        let span = p.map(40);
        p.walk(Span::new(span.start, 4 * SLOT));
        let (brought, unused) = (brought() - before, behind(&p, span, 4) * SLOT);
        assert!(0 < unused && unused < brought, "{unused} of {brought}");
        p.unmap(span);
        assert_eq!(p.count(Counter::BytesAheadSeen) - seen, brought);
        assert_eq!(p.count(Counter::BytesAheadUnused), unused);
        // What the program still has, and what was kept for it.
        p.space.note_exit();
        let all = p.count(Counter::BytesAheadSeen);
        assert!(all > seen + brought);
        p.space.note_exit();
        assert_eq!(p.count(Counter::BytesAheadSeen), all, "twice");
    }
}

#[test]
fn what_the_program_used_and_dropped_counts_as_used_and_a_child_counts_nothing() {
    let p = Program::new();
    p.knobs.set(Knob::Mapped, 0);
    let span = p.map(40);
    p.walk(span);
    let brought = p.count(Counter::BytesMoved);
    assert!(brought > 0);
    let seen = p.count(Counter::BytesAheadSeen);
    let half = Span::new(span.start, 20 * SLOT);
    p.space.recycle(0, half, |part| {
        p.fake.empty(part);
        true
    });
    let dropped = p.count(Counter::BytesAheadSeen) - seen;
    assert!(0 < dropped && dropped < brought, "{dropped} of {brought}");
    p.space.fork_prepare();
    p.space.fork_child();
    p.space.note_exit();
    assert_eq!(p.count(Counter::BytesAheadSeen), seen + dropped);
    assert_eq!(p.count(Counter::BytesAheadUnused), 0);
}

/// What a move has taken out may be used again by another thread before the call returns.
#[test]
fn the_kernel_drops_what_did_not_move_and_no_more() {
    let p = Program::new();
    p.prepare(8);
    let span = p.map(8);
    let outer = Span { start: span.start - PAGE, end: span.end };
    let mut dropped = Vec::new();
    for _ in 0..6 {
        p.fake.write(span, 7);
        dropped.clear();
        p.space.recycle(0, outer, |part| {
            dropped.push(part);
            p.fake.empty(part);
            true
        });
    }
    assert!(p.count(Counter::BytesRecycled) > 0);
    assert_eq!(dropped, [Span::new(outer.start, PAGE)]);
}

#[test]
fn a_program_that_stops_early_again_and_again_is_followed_on_credit() {
    let p = Program::new();
    p.knobs.set(Knob::Mapped, 0);
    let unused = (0..8).map(|_| {
        let span = p.map(30);
        p.walk(Span::new(span.start, 10 * SLOT));
        behind(&p, span, 10)
    });
    let unused: usize = unused.sum();
    let brought = p.count(Counter::BytesMoved) / SLOT;
    assert!(unused > 0 && unused <= 2 + brought / 32, "{unused} of {brought}");
}

#[test]
fn what_is_watched_is_exposed_once_and_left_alone() {
    for missing in [true, false] {
        let p = Program::new();
        p.prepare(30);
        let span = p.map(40);
        let used = Span::new(span.start, SLOT);
        p.walk(used);
        let brought = p.present(span);
        assert!(brought.len() > 1 && p.space.is_noted(span));
        p.space.watch(0, span, missing);
        // A program that hears of missing pages finds them missing; one that hears of writes keeps its pages.
        assert_eq!(p.present(span), if missing { vec![0] } else { brought });
        assert!(!p.space.is_noted(span));
        // What the program gives itself is not taken again, nor is it looked at.
        p.fake.write(span, 0);
        p.space.watch(0, span, true);
        assert_eq!(p.present(span), range(0, 40));
        assert_eq!(p.fake.peek_nonzero_pages(used, 8), 0);
        p.rest();
        assert_eq!(p.present(span), range(0, 40));
    }
}

#[test]
fn a_small_part_that_is_replaced_is_noted_no_more() {
    let p = Program::new();
    let span = p.growing(40, 30);
    let part = Span::new(span.start + 5 * SLOT + PAGE, PAGE);
    assert!(p.space.is_noted(part));
    p.space.forget(part);
    assert!(!p.space.is_noted(part) && p.space.is_noted(Span::new(span.start + 4 * SLOT, 2 * SLOT)));
}

/// The stock of the background thread serves blocks. A thread that starts for each small mapping finds nothing to do.
#[test]
fn a_small_mapping_wants_the_background_thread_only_where_frames_move() {
    for (mapped, is_wanted) in [(0, false), (1, true)] {
        let p = Program::new();
        p.knobs.set(Knob::Mapped, mapped);
        p.space.take_notes();
        p.map(1);
        assert_eq!(p.space.is_worker_wanted(), is_wanted, "mapped={mapped}");
    }
}
