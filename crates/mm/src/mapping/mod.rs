//! Mappings of the program: their addresses are the kernel's, their frames may be ours.
//!
//! The kernel has made a mapping before the engine hears of it, and unmaps it whatever the engine does. In between
//! frames move: zeroed ones into a fresh mapping ([`Space::mapped`]), used ones out of a mapping that ends
//! ([`Space::unmap`]). What is noted here of the program's slots serves the budget alone: how much of it was brought
//! and not seen in use. Whether a frame may move is the kernel's own decision, each time.
//!
//! A slot is noted from its mapping (`Mapped`) until it is unmapped or replaced. A program may change its address space
//! in ways that are not seen here. Then notes are void: the next mapping there, or the next look, takes them back.

pub mod advice;
mod expose;
mod move_ahead;
pub(crate) mod moved;
mod near;
mod owned;
pub mod reuse;
mod supply;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::mapping::owned::Owned;
use crate::space::Space;
use crate::space::account::SAMPLED_PAGES;
use crate::space::free::Settled;
use crate::space::transfer::HandedOut;
use faultless_page::stats::Counter;

/// Slots whose use is not known when they come back: the content of one in this many is looked at.
const SAMPLES: usize = 16;

impl<S: Sys> Space<S> {
    /// The kernel has put a fresh mapping of the program at `span`: private, anonymous, readable and writable. Brings
    /// frames that are there already, and has the rest of it watched as it grows.
    pub fn mapped(&self, cpu: usize, span: Span) {
        let program = self.program();
        let e = Extent::inside(span);
        // Of a mapping that could not be filled most is never touched, and to note all of it would take long.
        if e.n == 0 || span.bytes() > self.span().bytes() || self.is_looked_at() || !self.note_slots(e) {
            return self.forget(span);
        }
        self.worker.cpus.note_program(cpu);
        self.forget(program.span(e));
        if !self.begin_use(e) {
            return;
        }
        let spares = program.sparse.is_granted() || program.untouched.is_long();
        let moved = if spares { HandedOut::default() } else { self.bring(cpu, e) };
        self.count_moved(e, moved);
        let rest = e.behind(moved.slots());
        if !rest.is_empty() {
            self.hand_out_hole(program, rest, span);
        }
        e.slots().for_each(|i| program.slots.set(i, State::Mapped));
        self.note_growth(program, e, span);
        program.count(Counter::MmapServed, 1);
        program.count(Counter::MmapBytes, span.bytes());
    }

    /// Moves free frames, zeroed, to the first slots of `e`, which are the program's and empty.
    pub(crate) fn bring(&self, cpu: usize, e: Extent) -> HandedOut {
        let to = self.program().span(e).start;
        if self.has_nodes && self.sys.has_policy(to) {
            return HandedOut::default();
        }
        let idle = e.n.min(self.budget.idle());
        if idle > 0 {
            self.make_room(idle);
        }
        // Charged before they move: at no time do they look like the program's own.
        let held = idle.min(self.budget.trust());
        self.budget.charge(held);
        let moved = self.move_frames(cpu, to, held);
        let all = e.front(moved.slots());
        if self.has_nodes {
            all.slots().for_each(|i| _ = self.program().slots.mark(i, flag::BROUGHT));
        }
        let not_yet = |i: &Slot| self.program().slots.mark(*i, flag::CHARGED) & flag::CHARGED == 0;
        self.budget.charge(all.slots().filter(not_yet).count());
        self.budget.discharge(held);
        moved
    }

    /// Unmaps `span` and keeps what frames it can; whether it did. Where none can be kept `by_kernel` unmaps it, and
    /// says whether the kernel did. That is not called where no slot is noted that `span` has whole, or where the kernel
    /// may wait for a thread of the program's.
    ///
    /// Then the caller has the kernel unmap `span`. Once the kernel has, the caller calls [`Space::forget`]: a slot that
    /// `span` has in part may be noted, and charged.
    #[must_use = "otherwise the caller unmaps, and calls `forget`"]
    pub fn unmap(&self, cpu: usize, span: Span, by_kernel: impl FnOnce() -> bool) -> bool {
        let is_done = self.unmap_slots(cpu, span, by_kernel);
        if is_done {
            self.cut_ends(span);
        }
        is_done
    }

    /// Cuts the slots that `span` has in part.
    fn cut_ends(&self, span: Span) {
        let e = Extent::inside(span);
        for end in [Slot::around(span.start), Slot::around(span.end - 1)] {
            if !e.has(end) {
                self.cut(end, span);
            }
        }
    }

    fn unmap_slots(&self, cpu: usize, span: Span, by_kernel: impl FnOnce() -> bool) -> bool {
        let program = self.program();
        let e = Extent::inside(span);
        let lent = self.end_uses(e);
        if lent.is_empty() {
            return false;
        }
        self.huge_cost.note_return(lent.slots().count());
        self.end_promise(program, lent.slots());
        self.noted(e).for_each(|part| self.note_left(program, part));
        // Noted of small pages too: what is not used needs no look ahead.
        let is_untouched = self.is_untouched(program, e);
        // Huge pages that moved here, or that the kernel was advised to bring.
        let is_small = |i| program.slots.has(i, flag::FRESH) && !program.slots.has(i, flag::ADVISED);
        let keeps = !self.is_referenced()
            && !lent.slots().all(is_small)
            && self.budget.limit() > 0
            && !self.is_retired()
            && self.can_move()
            // A program that watches memory by a userfaultfd is told of an unmapping, and not of a move.
            && !self.is_looked_at()
            && !is_untouched;
        let isolated = if keeps { self.sys.isolate(span) } else { None };
        if isolated.is_none() && self.is_looked_at() {
            // The kernel's call may wait for a thread of the program's.
            self.drop_notes(&lent);
            return false;
        }
        let Some(isolated) = isolated else {
            // Only then it is known that the memory is gone.
            let is_done = by_kernel();
            if !is_done {
                lent.slots().for_each(|i| program.slots.set(i, State::Mapped));
                return false;
            }
            if self.budget.limit() == 0 {
                program.count(Counter::BytesOverBudget, lent.slots().count() * SLOT);
            }
            self.drop_notes(&lent);
            return true;
        };
        let place = |i: Slot| Span::new(isolated.start + (program.slot(i).start - span.start), SLOT);
        let Settled { keep, held } = self.settle_mapping(&lent, place);
        self.collect(cpu, &lent, place, keep);
        self.sys.drop_isolated(isolated);
        self.budget.discharge(held);
        self.drop_notes(&lent);
        true
    }

    /// Squares the account for slots that come back and lie at `place` now. Those without memory worth keeping
    /// are marked.
    fn settle_mapping(&self, lent: &Owned, place: impl Fn(Slot) -> Span) -> Settled {
        let slots = self.program().slots;
        let unknown = |i: &Slot| slots.has(*i, flag::FRESH | flag::CHARGED);
        lent.slots().filter(|&i| slots.has(i, flag::TAINTED)).for_each(|i| _ = slots.mark(i, flag::EMPTY));
        let every = (lent.slots().filter(unknown).count() / SAMPLES).max(1);
        let (mut backed, mut sampled, mut dense, mut full) = (0, 0, 0, 0);
        for i in lent.slots().filter(unknown) {
            let fresh = slots.has(i, flag::FRESH);
            if fresh && !(slots.has(i, flag::ADVISED) && self.is_backed_at(place(i))) {
                slots.mark(i, flag::EMPTY);
                continue;
            }
            if backed % every == 0 {
                sampled += 1;
                let written = self.written_at(place(i));
                dense += (written * 2 >= SAMPLED_PAGES) as usize;
                full += (written == SAMPLED_PAGES) as usize;
            }
            backed += 1;
        }
        if sampled > 0 {
            self.program().sparse.note(dense == 0);
        }
        let used = (backed * full).checked_div(sampled).unwrap_or(0);
        self.budget.note_use(used, sampled - full);
        let charged = lent.slots().filter(|&i| slots.has(i, flag::CHARGED)).count();
        let held = charged.saturating_sub(used);
        // It is all there at the same time.
        self.budget.use_slots(used);
        self.budget.discharge(charged - held);
        self.look_around();
        self.budget.charge(charged);
        self.release_use(lent.slots());
        self.budget.unuse(used);
        Settled { keep: self.budget.room() + held, held }
    }

    /// Moves frames of slots from `place` into the arena, at most `keep`.
    fn collect(&self, cpu: usize, lent: &Owned, place: impl Fn(Slot) -> Span, keep: usize) {
        let slots = self.program().slots;
        let worth = |i: Slot| !slots.has(i, flag::EMPTY);
        let mut keep = keep;
        let mut collect = |g: Extent, worth: bool| {
            let mut rest = g;
            while worth && !rest.is_empty() && keep > 0 {
                let n = rest.n.min(keep);
                let from = Span::new(place(rest.first).start, n * SLOT);
                let Some(kept) = self.take_frames(cpu, from).map(|bytes| bytes / SLOT) else { return };
                keep -= kept;
                // The kernel keeps the slot that did not move.
                let done = (kept + 1).min(rest.n);
                rest = rest.behind(done);
            }
            self.program().count(Counter::BytesOverBudget, if worth { rest.n * SLOT } else { 0 });
        };
        lent.runs().iter().for_each(|run| run.groups(worth, &mut collect));
    }

    /// Whether a slot of `span` is noted, perhaps in part. Takes no lock.
    pub fn is_noted(&self, span: Span) -> bool {
        self.lent_in(span).next().is_some()
    }

    /// The program has replaced, moved or unmapped `span`: what is noted of its slots is void, but for what is left of
    /// them.
    pub fn forget(&self, span: Span) {
        if span.is_empty() {
            return;
        }
        let outer = Extent::around(span);
        self.noted(outer).flat_map(Extent::slots).for_each(|i| self.cut(i, span));
    }

    /// Memory in `span` is not the program's own any more, or is other memory. A huge page that was brought to slot
    /// `i`, and that the program was not seen to use, stays charged as long as a part of it is left elsewhere. There,
    /// nothing is brought, looked at or kept any more.
    pub(crate) fn cut(&self, i: Slot, span: Span) {
        let slots = self.program().slots;
        let slot = self.program().slot(i);
        let before = Span { start: slot.start, end: span.start.clamp(slot.start, slot.end) };
        let behind = Span { start: span.end.clamp(slot.start, slot.end), end: slot.end };
        let parts = [before, behind];
        let is_there = |part: &Span| !part.is_empty() && self.sys.present_pages(*part) > 0;
        let is_left = || parts.iter().any(is_there) || parts.into_iter().any(|part| self.has_memory(part));
        while self.end_use(i) {
            let counts = slots.has(i, flag::CHARGED) && self.budget.limit() > 0 && !self.is_retired();
            if !counts || !is_left() {
                return self.drop_note(i);
            }
            slots.mark(i, flag::TAINTED);
            slots.set(i, State::Mapped);
            // A thread that came for the rest meanwhile has found the slot in transit, and gone on.
            if is_left() {
                return;
            }
        }
    }

    /// Whether any page of a part of a slot is present, of which parts may be unmapped: page by page.
    fn has_memory(&self, part: Span) -> bool {
        (part.start..part.end).step_by(PAGE).any(|at| self.sys.present(at))
    }

    /// Takes free slots into transit. False: another thread has not ended their last use yet. Then the kernel alone
    /// deals with them.
    fn begin_use(&self, e: Extent) -> bool {
        let slots = self.program().slots;
        let begun = e.slots().take_while(|&i| slots.detach(i, State::Unbacked)).count();
        if begun < e.n {
            e.front(begun).slots().for_each(|i| slots.set(i, State::Unbacked));
        }
        begun == e.n
    }

    /// Ends the program's use of slot `i`, which is in transit then; false when it is not known to have it, or another
    /// thread was first.
    pub(crate) fn end_use(&self, i: Slot) -> bool {
        self.program().slots.detach(i, State::Mapped)
    }

    /// Ends the program's use of the slots of `e`: those that are in transit now, by this thread alone.
    fn end_uses(&self, e: Extent) -> Owned {
        let mut owned = Owned::default();
        for i in self.noted(e).flat_map(Extent::slots) {
            if self.end_use(i) && !owned.add(i) {
                self.drop_note(i);
            }
        }
        owned
    }

    /// Ends what slots in transit count for.
    fn release_use(&self, own: impl Iterator<Item = Slot>) {
        let slots = self.program().slots;
        for i in own {
            if slots.has(i, flag::FRESH | flag::CHARGED) {
                self.budget.discharge(slots.clear(i, flag::CHARGED) as usize);
                slots.mark(i, flag::FRESH);
            } else {
                self.budget.unuse(1);
                slots.mark(i, flag::FRESH);
            }
        }
    }

    pub(crate) fn drop_note(&self, i: Slot) {
        self.release_use(core::iter::once(i));
        self.wipe(i);
    }

    /// Frees slots in transit.
    fn drop_notes(&self, own: &Owned) {
        self.release_use(own.slots());
        own.slots().for_each(|i| self.wipe(i));
    }

    /// In a forked child: no thread is at work on a mapping, and the parent counts what becomes of what was brought.
    pub(crate) fn leave_mappings(&self) {
        let slots = self.program().slots;
        let noted = self.all_slots().filter(|(shard, _)| self.is_program(shard));
        for i in noted.flat_map(|(_, e)| e.slots()) {
            match slots.state(i) {
                State::InTransit => self.wipe(i),
                _ => _ = slots.withdraw(i, flag::AHEAD),
            }
        }
    }

    fn wipe(&self, i: Slot) {
        let slots = self.program().slots;
        slots.clear(i, flag::IN_USE | flag::ADVISED | flag::CHARGED);
        slots.set(i, State::Unbacked);
    }

    /// The slots of a range, some of them perhaps in part, that the program is known to have.
    pub(crate) fn lent_in(&self, span: Span) -> impl Iterator<Item = Slot> {
        let outer = Extent::around(span);
        self.noted(outer).flat_map(Extent::slots).filter(|&i| self.program().slots.state(i) == State::Mapped)
    }

    /// Notes that the content of slots that the program keeps is gone, or that it asks for huge pages itself.
    pub fn change(&self, span: Span, change: Change) {
        let slots = self.program().slots;
        let noted = self.noted(Extent::inside(span)).flat_map(Extent::slots);
        for i in noted.filter(|&i| slots.state(i) == State::Mapped) {
            match change {
                Change::Dropped | Change::Offered => {
                    // How much of it is left is not known: it counts as charged, no longer as used.
                    let before = slots.mark(i, flag::FRESH);
                    if before & (flag::FRESH | flag::CHARGED) == 0 {
                        self.budget.unuse(1);
                        if before & flag::ADVISED != 0 {
                            self.budget.charge(1);
                            slots.mark(i, flag::CHARGED);
                        }
                    } else if change == Change::Dropped
                        && before & flag::ADVISED == 0
                        && slots.withdraw(i, flag::CHARGED)
                    {
                        self.budget.discharge(1);
                    }
                }
                Change::HugeAdvised => {
                    // Slots that it never had, it now has asked for itself.
                    let fresh = slots.mark(i, flag::ADVISED) & flag::FRESH != 0;
                    self.budget.discharge((fresh && slots.withdraw(i, flag::CHARGED)) as usize);
                }
            }
        }
    }
}

/// What a call of the program does to the pages of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Their content goes; they read as zero.
    Dropped,
    /// Their content may go when the kernel needs memory.
    Offered,
    /// The program itself asks for huge pages.
    HugeAdvised,
}
