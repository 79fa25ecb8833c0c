//! Background steps on growth: touching memory that the process never had before the program gets there.
//!
//! Growth is a large extent that was handed out without memory. The background thread follows the program through it,
//! and touches every other slot of a window ahead of the program. So both zero different slots at the same time, and
//! the slots left out show how far the program is. The window doubles while the program follows (the anticipatory
//! prefaulting of 2004, in slots instead of pages). An extent that the program does not follow is forgotten.
//!
//! Huge-page advice for growth is charged to the budget until the program is seen to use the memory. The looks here
//! find that out, and so give room for the next advice.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{PAGE, Pages, SLOT, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::account::SAMPLED_PAGES;
use crate::space::progress::{Progress, sooner};
use crate::space::{Shard, Space};
use crate::state::ahead::SMALL_DEMAND;
use crate::state::announced::expected;
use crate::state::growths::{FOLLOWED, Growth};

/// Slots touched ahead at first, and at most (128 MiB).
const WINDOW_START: usize = 4;
const WINDOW_MAX: usize = 64;
/// Slots without memory over which a program is still found.
const GAP: usize = 6;
/// Looks without progress of the program after which an extent is forgotten.
const PATIENCE: u16 = 200;
/// Slots that get advice at a time, at least (128 MiB).
const ADVISED_AT_ONCE: usize = 64;
const LOOK_US: u64 = 100;
/// A program that takes as long for a slot computes much, or has cold memory. Warm slots take a tenth of that.
const SLOW_US: u64 = 1_500;
/// Slots that such a program passes for each one that is touched to see what it takes.
const PROBED: usize = 6;
const MOST_PROBES: usize = 16;
/// Slots that a program's thread looks at in one call.
const LOOKS_IN_CALL: usize = 128;
/// Slots that it passes at most, to find them.
const STEPS_IN_CALL: usize = 16 << 10;

/// In place of the number of a shard: the program's own mappings.
const PROGRAM: usize = usize::MAX;

/// What may be done ahead of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Everything.
    Full,
    /// Moves of frames that are zeroed already: while the background work rests.
    Moves,
}

impl<S: Sys> Space<S> {
    /// Notes an extent just handed out, inside `whole`; it is followed if much of it has no memory.
    pub(crate) fn note_growth(&self, shard: &Shard, e: Extent, whole: Span) {
        let slots = shard.slots;
        let fresh = |i: Slot| slots.has(i, flag::FRESH);
        if !self.goes_ahead() || e.n < 2 || !fresh(e.last()) || shard.untouched.is_long() {
            // The stock is for blocks. Mappings have to do with it only where frames move to them.
            let is_stocked = !self.is_program(shard) || self.moves();
            if e.n <= SMALL_DEMAND && is_stocked && self.goes_ahead() {
                self.want_worker();
            }
            return;
        }
        let advised = e.slots().take_while(|&i| slots.has(i, flag::ADVISED)).count();
        let begin = e.slots().take_while(|&i| slots.has(i, flag::AHEAD)).count();
        let shard_index =
            if self.is_program(shard) { PROGRAM } else { (shard.base - self.span().start) / (slots.len() * SLOT) };
        let growth = Growth {
            shard: shard_index,
            first: e.first,
            n: e.n,
            whole,
            advised,
            begin,
            reached: begin,
            confirmed: 0,
            touched: begin,
            window: self.first_window(WINDOW_START),
            moved: None,
            since_ms: self.now_ms(),
            probes: 0,
            quiet: 0,
        };
        let Some(mut growths) = self.ahead.growths() else { return };
        growths.add(growth);
        drop(growths);
        self.want_worker_now();
    }

    /// Follows the growing extents and fills the stock.
    pub(crate) fn ahead_step(&self, effort: Effort) -> Progress {
        if !self.goes_ahead() {
            return Progress::Idle;
        }
        let mut result = Progress::Idle;
        for place in 0..FOLLOWED {
            let Some(mut growth) = self.ahead.growths().and_then(|growths| growths.at(place)) else {
                continue;
            };
            let progress = self.follow(&mut growth, effort);
            result = sooner(result, progress);
            let Some(mut growths) = self.ahead.growths() else { continue };
            if progress == Progress::Idle {
                self.note_end(self.shard_of(&growth), &growth);
            }
            growths.update(place, &growth, progress != Progress::Idle);
        }
        let done = result == Progress::Worked || effort == Effort::Moves;
        if done { result } else { sooner(result, self.stock_step()) }
    }

    fn shard_of(&self, g: &Growth) -> &Shard {
        if g.shard == PROGRAM { self.program() } else { self.shard(g.shard) }
    }

    fn follow(&self, g: &mut Growth, effort: Effort) -> Progress {
        let shard = self.shard_of(g);
        let huge = match self.huge_cost.is_too_cold(|| self.now_ms()) {
            true => Huge::Refused,
            false => Huge::Advised,
        };
        let old = g.reached;
        g.reached = self.reached(shard, g);
        if g.reached > old {
            g.quiet = 0;
            self.announce(expected(g.n, g.reached) - expected(g.n, old));
            let came_to_window = g.moved.is_some_and(|window| old <= window.marker);
            if came_to_window || g.reached >= old + g.window / 4 {
                g.window = (g.window * 2).min(WINDOW_MAX);
            }
            self.confirm(shard, g);
            if huge == Huge::Advised {
                self.advise_more(shard, g);
            }
        } else {
            g.quiet += 1;
        }
        if g.reached >= g.n || g.quiet > PATIENCE {
            return Progress::Idle;
        }
        if huge == Huge::Refused {
            self.refuse_rest(shard, g);
        } else if self.moves() && (g.reached > g.begin || self.is_trusted()) && self.next_window(shard, g, old) {
            return if g.reached > old { Progress::Worked } else { Progress::Wait(LOOK_US) };
        }
        if effort == Effort::Moves {
            return Progress::Wait(LOOK_US);
        }
        // The slot that the program is in, and the next one, are its own.
        g.touched = g.touched.max(g.reached + 1);
        let end = (g.reached + 1 + g.window).min(if huge == Huge::Refused { g.n } else { g.advised });
        // Nothing is touched before the program has come to the extent at all.
        while g.touched < end && g.reached > g.begin {
            let i = g.touched;
            if i % 2 == 0 {
                g.touched += 1;
                continue;
            }
            let is_on_budget = self.ahead.prefault_budget.take();
            let probes = || self.may_probe(g) && self.ahead.prefault_budget.take_beyond();
            if !is_on_budget && !probes() {
                break;
            }
            g.touched += 1;
            g.probes += !is_on_budget as u16;
            let is_ours = huge == Huge::Advised || self.charge_small(shard, g.first + i);
            if is_ours && self.touch_lent(shard, g.first + i, huge) {
                if !is_on_budget {
                    self.note_cold(self.huge_cost.is_cold(self.now_ms()) == Some(true));
                }
                return Progress::Worked;
            }
            match is_on_budget {
                true => self.ahead.prefault_budget.give_back(),
                false => self.ahead.prefault_budget.give_back_beyond(),
            }
        }
        // A program that moves is looked after at once.
        if g.reached > old { Progress::Worked } else { Progress::Wait(LOOK_US) }
    }

    /// Whether a slot is worth a touch beyond the prefault budget, to see what it takes: the program is slow, and its
    /// memory may be cold. Its own faults may tell that it is not.
    fn may_probe(&self, g: &Growth) -> bool {
        let passed = g.reached - g.begin;
        let us = u64::from(self.now_ms().wrapping_sub(g.since_ms)) * 1000;
        usize::from(g.probes) < (passed / PROBED).min(MOST_PROBES)
            && us > passed as u64 * SLOW_US
            && !self.is_still_warm()
    }

    /// How far the program has come: one past the last slot that has memory from the program's own touch. Looks on
    /// from where it was seen last, over a short gap.
    fn reached(&self, shard: &Shard, g: &Growth) -> usize {
        let present = |i: usize| {
            let at = shard.slot(g.first + i).start;
            self.sys.present(at) || self.sys.present(at + SLOT - PAGE)
        };
        let mut reached = g.reached;
        let moved = match g.moved {
            Some(window) if reached <= window.marker => {
                return if present(window.marker) { window.marker + 1 } else { reached };
            }
            Some(window) => window.end,
            None => 0,
        };
        let theirs = |i: &usize| i % 2 == 0 || *i >= g.touched;
        let mut from = reached.max(moved);
        while let Some(i) = (from..(from + GAP).min(g.n)).filter(theirs).find(|&i| present(i)) {
            from = i + 1;
            reached = from;
        }
        reached
    }

    /// Charges a slot that gets small pages ahead of the program; false where the budget has no room.
    fn charge_small(&self, shard: &Shard, i: Slot) -> bool {
        let granted = self.budget.charge_up_to(1);
        let is_charged = granted > 0 && shard.slots.charge(i, 0);
        if !is_charged {
            self.budget.discharge(granted);
        }
        is_charged
    }

    fn touch_lent(&self, shard: &Shard, i: Slot, huge: Huge) -> bool {
        let touched = self.enter(shard, Extent::one(i), |span| {
            // The program may have unmapped the slot by a system call that was not seen: then it is not touched.
            let missing = self.sys.missing(span.start);
            missing
                && !self.is_looked_at()
                && self.touch_for_program(shard, i, huge, |at| self.sys.touch_if_open(at))
        });
        touched == Some(true)
    }

    /// The range of advice that reaches to the end of an extent: all of a mapping, which stays one area then.
    fn whole(&self, shard: &Shard, g: &Growth, e: Extent) -> Span {
        let is_whole = || g.extent().slots().all(|i| shard.slots.state(i) == State::Mapped);
        if self.is_program(shard) && is_whole() { g.whole } else { shard.span(e) }
    }

    /// Takes the advice back where the program has not been yet.
    fn refuse_rest(&self, shard: &Shard, g: &mut Growth) {
        let first = (g.reached + 1).max(g.touched) + 1;
        let advised = g.extent().front(g.advised);
        let e = advised.behind(first.min(advised.n));
        if e.is_empty() {
            return;
        }
        let slots = shard.slots;
        let waiting = |i: Slot| [flag::FRESH, flag::ADVISED, flag::CHARGED].iter().all(|&f| slots.has(i, f));
        let refused = self.enter(shard, e, |_| {
            let refuses = e.slots().all(waiting) && !self.is_looked_at();
            if refuses {
                self.sys.huge(self.whole(shard, g, e), Huge::Refused);
                self.budget.promise(Pages::of_slots(e.n));
                for i in e.slots() {
                    slots.clear(i, flag::ADVISED);
                    self.budget.discharge(slots.clear(i, flag::CHARGED) as usize);
                }
            }
            refuses
        });
        if refused == Some(true) {
            g.advised = first;
        }
    }

    /// Looks at the slots that the program has passed: those that it uses densely are no longer charged.
    fn confirm(&self, shard: &Shard, g: &mut Growth) {
        while g.confirmed < g.reached {
            let i = g.first + g.confirmed;
            g.confirmed += 1;
            let confirmed =
                self.enter(shard, Extent::one(i), |_| self.confirm_slot(shard, i, || self.peek_full(shard, i)));
            if confirmed == Some(true) {
                self.note_demand(1);
            }
            // Also where another thread has seen it. Slots touched before the hand-out did not come out of the
            // prefault budget.
            let used = confirmed.is_some() && !shard.slots.has(i, flag::CHARGED);
            let brought = used && g.confirmed > g.begin && shard.slots.has(i, flag::AHEAD);
            self.ahead.prefault_budget.note_used(brought as usize);
        }
    }

    /// In a program's thread that finds the budget used up: looks at some of the charged slots. The background thread
    /// may not have had a processor for a while.
    pub(crate) fn confirm_some(&self) {
        let Some(mut at) = self.ahead.confirming() else { return };
        let now = self.now_ms();
        if at.rests(now) {
            return;
        }
        let (mut looks, mut found, mut steps) = (0, 0, 0);
        let shards = self.all_slots().count();
        let all: usize = self.all_slots().map(|(_, e)| e.n).sum();
        while looks < LOOKS_IN_CALL
            && steps < STEPS_IN_CALL.min(all + shards)
            && let Some((shard, e)) = self.all_slots().nth(at.shard)
        {
            steps += 1;
            if at.slot >= e.n {
                (at.shard, at.slot) = ((at.shard + 1) % shards, 0);
                continue;
            }
            let i = e.first + at.slot;
            at.slot += 1;
            if shard.slots.has(i, flag::CHARGED) && !(self.is_program(shard) && shard.slots.has(i, flag::TAINTED))
            {
                looks += 1;
                let is_lent = || matches!(shard.slots.state(i), State::Mapped | State::Block | State::Runs);
                let look = || self.confirm_slot(shard, i, || self.peek_full(shard, i));
                let span = shard.slot(i);
                found += (self.busy.enter(span, is_lent, look) == Some(true)) as usize;
            }
        }
        at.rest(found > 0, now);
    }

    /// Whether most of slot `i`, which the program may unmap meanwhile, was written to.
    pub(crate) fn peek_dense(&self, shard: &Shard, i: Slot) -> bool {
        self.peek_written(shard, i) * 2 >= SAMPLED_PAGES
    }

    /// The same for all of it, as far as some pages tell.
    fn peek_full(&self, shard: &Shard, i: Slot) -> bool {
        self.peek_written(shard, i) == SAMPLED_PAGES
    }

    fn confirm_slot(&self, shard: &Shard, i: Slot, is_full: impl Fn() -> bool) -> bool {
        if !shard.slots.has(i, flag::CHARGED) {
            return false;
        }
        let span = shard.slot(i);
        if self.is_program(shard) && !self.sys.present(span.start) && !self.sys.missing(span.start) {
            // Unmapped by a call that was not seen.
            self.cut(i, Span::new(span.start, PAGE));
            return false;
        }
        // A slot in use must not be counted twice, not even for a moment: the wrong peak would stay.
        if !self.sys.present(span.start) || !is_full() {
            return false;
        }
        // Before the flags say so: a thread that sees the flags may end this use at once.
        self.budget.use_slots(1);
        let confirmed = shard.slots.confirm(i);
        match confirmed {
            true => {
                self.budget.discharge(1);
                self.budget.note_use(1, 0);
            }
            false => self.budget.unuse(1),
        }
        confirmed
    }

    /// Advises huge pages further ahead, as far as the budget has room again.
    fn advise_more(&self, shard: &Shard, g: &mut Growth) {
        let missing = g.n - g.advised;
        let room = self.budget.room().min(self.budget.trust());
        // In few and large pieces, and not before they are near: the program's faults wait for each.
        let near = g.reached + 4 * WINDOW_MAX >= g.advised;
        if missing == 0 || !near || room < missing.min(ADVISED_AT_ONCE) {
            return;
        }
        let e = g.extent().behind(g.advised).front(missing.min(room));
        g.advised += e.n;
        // The slots may have come back and been handed out again since.
        let slots = shard.slots;
        let waiting = |i: Slot| slots.has(i, flag::FRESH) && !slots.has(i, flag::ADVISED | flag::CHARGED);
        self.enter(shard, e, |_| {
            if e.slots().all(waiting) && !self.is_looked_at() {
                let last = g.advised == g.n;
                let at = if last { self.whole(shard, g, e) } else { shard.span(e) };
                let advised = self.advise_in_use(shard, e, at);
                self.budget.end_promise(Pages::of_slots(advised));
            }
        });
    }
}
