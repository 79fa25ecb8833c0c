//! Programs that look whether their memory is resident: by a userfaultfd of their own, or by mincore.
//!
//! A mapping that frames moved into is resident at once. To such a program it must be as the kernel made it. From the
//! first look on, no frames move in any more. When the program registers memory to hear of missing pages, frames that
//! moved in before and are still all zero move out again.
//!
//! Calls of a userfaultfd take one area of the kernel's each, and advice for a part of a mapping makes it several. So
//! nothing is advised from the first look on, and memory that is registered becomes one area again.

use faultless_base::sync::atomic::Ordering::Relaxed;
use faultless_base::sys::{Huge, Sys};
use faultless_base::{PAGE, SLOT, Slot, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};

/// How long a process waits in all until frames can be taken out. What is pinned never can.
const MOST_WAITED_NS: u64 = 250_000_000;

impl<S: Sys> Space<S> {
    /// The program is about to watch memory: nothing is brought any more, and its memory is looked at no more.
    pub fn note_watch(&self) {
        self.note_look();
        self.moves.watched.set();
        self.sys.end_looks();
    }

    fn note_look(&self) {
        self.moves.looked_at.set();
    }

    /// The program asks which pages of `span` are resident. Resident pages stay: to take a frame out could lose
    /// another thread's first write.
    pub fn note_question(&self, span: Span) {
        if self.is_noted(span) {
            self.note_look();
        }
    }

    /// Whether the program has a userfaultfd. Nothing is served any more, so nothing is kept.
    pub(crate) fn is_watched(&self) -> bool {
        self.moves.watched.is_set()
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        self.moves.looked_at.is_set()
    }

    /// The program watches `span` from now on; `missing`: its pages that are not there. Then memory that was brought
    /// and is not used is taken out first. A program that hears of writes alone wants its memory to stay there.
    ///
    /// Nothing is known of the range any more: it is exposed once, before it is watched, and never again.
    pub fn watch(&self, cpu: usize, span: Span, missing: bool) {
        self.note_watch();
        self.unite(span);
        self.forget_range(cpu, span, missing);
        self.uncommitted(span);
    }

    /// A call of the program's failed for memory of `span` that was brought and is not used. It is taken out.
    pub fn unbring(&self, cpu: usize, span: Span) {
        self.forget_range(cpu, span, true);
    }

    /// Ends what is known of `span`. `unused`: memory that was brought there and is not used is taken out.
    fn forget_range(&self, cpu: usize, span: Span, unused: bool) {
        let program = self.program();
        for i in self.lent_in(span).filter(|&i| self.end_use(i)) {
            let slot = program.slot(i);
            // Whether it is used is not known after a fork, nor whether it holds anything where it was only advised.
            if unused && self.sys.present_pages(slot) > 0 {
                self.take_unused_in_time(cpu, slot);
            }
            self.drop_note(i);
        }
    }

    /// The program is about to have a userfaultfd. What it moves pages from by it is not registered: so no advice of
    /// ours divides what the program has from now on.
    pub fn expose(&self) {
        self.note_watch();
        let program = self.program();
        for (shard, e) in self.all_slots() {
            if !self.is_program(shard) {
                self.sys.huge(shard.span(e), Huge::Refused);
                continue;
            }
            e.groups(
                |i| program.slots.state(i) == State::Mapped,
                |g, is_lent| {
                    if is_lent {
                        self.unite(program.span(g));
                    }
                },
            );
        }
        let mut last = None;
        while let Some(known) = self.any_known().filter(|known| last != Some(*known)) {
            self.unite(known);
            self.uncommitted(known);
            last = Some(known);
        }
        // Nothing of it will be handed out any more.
        self.press();
    }

    /// The same huge-page advice for all of `span`, if the engine gave it to a part of it or of the mappings there. The
    /// program may register their other parts later: these have the same advice from now on.
    fn unite(&self, span: Span) {
        let slots = self.program().slots;
        let known = self.known_around(span);
        let is_ours = !self.span().clip(span).is_empty();
        let slot = |i: Slot| self.program().slot(i);
        let is_lent = |at: usize| self.is_noted(Span::new(at, SLOT));
        let (mut first, mut last) = (Slot::around(span.start), Slot::around(span.end - 1));
        let mut all = known.unwrap_or(span);
        if is_lent(slot(first).start) {
            while is_lent(slot(first).start - SLOT) {
                first = first - 1;
            }
            all.start = all.start.min(slot(first).start);
        }
        if is_lent(slot(last).start) {
            while is_lent(slot(last).end) {
                last += 1;
            }
            all.end = all.end.max(slot(last).end);
        }
        // Before it is asked what was advised: a thread of ours may be about to advise more, and has looked before.
        drop(self.replace(all));
        if !is_ours {
            let is_advised = |i: Slot| slots.has(i, flag::ADVISED);
            if known.is_none() && !self.lent_in(all).any(is_advised) {
                return;
            }
            // Where advice is for all of a mapping, it is for its ends, too, which fill no slot.
            let area = |at: usize| self.sys.area(at).filter(|area| area.contains(at)).unwrap_or(all);
            let (first, last) = (area(all.start), area(all.end - 1));
            all = Span { start: all.start.min(first.start), end: all.end.max(last.end) };
        }
        let _replaced = self.replace(all);
        self.sys.huge(all, Huge::Refused);
        self.lent_in(all).for_each(|i| _ = slots.mark(i, flag::ADVISED));
    }

    /// Part of a mapping that begins at `start` is about to be advised, and nothing of it is there yet. The kernel makes no
    /// area of two whose first pages came while they were two (`anon_vma`). So it makes that ready now for all of it, as for
    /// a page that moves there. None does.
    pub(crate) fn keep_whole(&self, start: usize) {
        if self.is_looked_at() || !self.sys.may_move() {
            return;
        }
        let Some((shard, e)) = self.take_hole(self.all_shards()) else { return };
        let _ = self.sys.move_pages(Span::new(shard.span(e).start, PAGE), start);
        self.put_back(shard, e, Kind::Unbacked, 0);
    }

    /// A slot without memory, of the first of these shards whose lock is free and that has one.
    fn take_hole<'a>(&'a self, shards: impl IntoIterator<Item = &'a Shard>) -> Option<(&'a Shard, Extent)> {
        let hole = |shard: &Shard| shard.lock_soon()?.take_holes(1, 1, &self.sys);
        shards.into_iter().find_map(|shard| Some((shard, hole(shard)?)))
    }

    /// Whether the engine may have asked for small pages in `span`, which is plain memory of the program then. It may,
    /// where another thread is about to.
    pub fn may_have_refused(&self, span: Span) -> bool {
        let is_known = || {
            let table = self.advices.lock();
            table.is_none_or(|table| table.all().any(|known| !known.span.clip(span).is_empty()))
        };
        self.is_noted(span) || self.may_have_committed(span) && is_known()
    }

    /// The same as [`Self::take_unused`], tried for as long as all such tries of the process together may take.
    fn take_unused_in_time(&self, cpu: usize, slot: Span) {
        let waited = &self.moves.waited_ns;
        let mut turn = 0;
        loop {
            let begun = self.sys.now_ns();
            if self.take_unused(cpu, slot) || waited.load(Relaxed) > MOST_WAITED_NS {
                return;
            }
            self.sys.relax(turn);
            turn += 1;
            waited.fetch_add(self.sys.now_ns() - begun, Relaxed);
        }
    }

    /// Takes the frame out of a slot if it is all zero. False: not now. A thread with a lock may have no processor, or
    /// the kernel holds the page for a moment.
    fn take_unused(&self, cpu: usize, slot: Span) -> bool {
        let shards = core::iter::once(self.shard(cpu)).chain(self.all_shards());
        let Some((shard, e)) = self.take_hole(shards) else { return false };
        let dropped = self.sys.drop_zero(slot, shard.span(e));
        self.put_back_empty(shard, e, 0);
        dropped.is_some()
    }
}
