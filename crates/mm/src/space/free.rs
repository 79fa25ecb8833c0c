//! The way of memory back from its user: what is worth keeping, and what the peak rule allows to keep.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{Pages, SLOT, Slot, UNIT};

use core::sync::atomic::Ordering;

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::later::{Later, Note, What};
use crate::frame::runs::UNITS;
use crate::frame::slot::{Slots, flag};
use crate::space::account::SAMPLED_PAGES;
use crate::space::transfer::Split;
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Slots whose contents are looked at when memory comes back whose use is not known.
const SAMPLES: usize = 16;

/// What the account says of slots that come back.
pub(crate) struct Settled {
    /// How many of them may be kept.
    pub(crate) keep: usize,
    /// How many stay charged until that is done, because they were not the program's own.
    pub(crate) held: usize,
}

/// What became of memory that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The program has a mapping of its own there: it is left alone.
    Lost,
    /// Its attributes were changed: replace the mapping.
    Reset,
    /// The same, but its frames are kept.
    Refresh,
    /// It has no memory worth keeping.
    Discard,
    /// It is kept.
    Keep,
}

/// The units at which blocks start, of a bit for each.
fn starts(blocks: u32) -> impl Iterator<Item = usize> {
    (0..UNITS).filter(move |unit| blocks & 1 << unit != 0)
}

impl<S: Sys> Space<S> {
    /// Takes an extent in transit back that was a block's.
    pub(crate) fn take_block_back(&self, shard: &Shard, e: Extent) {
        if self.is_left(shard.span(e)) {
            self.take_back(shard, e);
        } else {
            self.budget.defer(Pages::of_slots(e.n));
            self.drop_deferred(shard, e);
            self.note_later(shard, |later| later.extent(e, What::TakeBack));
        }
    }

    /// The memory of an extent that is taken back later goes at once where the account has no room for it: the thread
    /// that is in it may have no processor for long.
    fn drop_deferred(&self, shard: &Shard, e: Extent) {
        if self.is_retired() || self.budget.excess(Pages::NONE) == 0 {
            return;
        }
        self.examine(shard, e);
        e.groups(
            |i| matches!(self.fate(shard.slots, i), Fate::Discard | Fate::Keep),
            |g, is_plain| {
                if is_plain && self.sys.discard(shard.span(g)) {
                    g.slots().for_each(|i| _ = shard.slots.mark(i, flag::EMPTY));
                }
            },
        );
    }

    /// Puts an extent in transit into the free lists, now or later.
    pub(crate) fn put_back(&self, shard: &Shard, e: Extent, kind: Kind, stamp_ms: u32) {
        if e.n == 0 {
            return;
        }
        match shard.lock_soon() {
            // Checked with the lock: a thread that retires the arena first says so, then takes the lock.
            Some(_) if self.is_retired() => self.let_go(shard, e),
            Some(mut arena) => {
                shard.given.fetch_add(1, Ordering::SeqCst);
                arena.give(e, kind, stamp_ms);
            }
            None => self.note_later(shard, |later| later.extent(e, What::Give(kind))),
        }
    }

    /// Notes what cannot be taken in now. The background thread sees to it if no other thread comes by.
    pub(crate) fn note_later(&self, shard: &Shard, note: impl FnOnce(&Later)) {
        note(&shard.later);
        shard.count(Counter::BackLater, 1);
        self.want_worker();
    }

    /// The same for a block that starts at a unit of a slot.
    pub(crate) fn free_block_later(&self, shard: &Shard, slot: Slot, unit: usize) {
        let memory = self.block_at(shard, slot, unit);
        self.budget.defer(memory);
        self.note_later(shard, |later| {
            if !later.free(slot, unit) {
                self.budget.end_deferral(memory);
            }
        });
    }

    /// What the block that starts at a unit of a slot has.
    fn block_at(&self, shard: &Shard, slot: Slot, unit: usize) -> Pages {
        Pages::filled_by(self.usable(slot.addr(shard.base) + unit * UNIT))
    }

    /// Takes in what came back to a shard while it could not be taken in.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_in(&self, shard: &Shard) {
        shard.later.take().for_each(|note| self.take_in_one(shard, note));
    }

    /// Frees the blocks that start at these units of a slot, a bit each.
    pub(crate) fn take_in_blocks(&self, shard: &Shard, slot: Slot, blocks: u32) {
        starts(blocks).for_each(|unit| _ = self.free_now(shard, slot, unit));
    }

    fn take_in_one(&self, shard: &Shard, note: Note) {
        let noted = starts(note.blocks).map(|unit| self.block_at(shard, note.slot, unit));
        self.budget.end_deferral(noted.sum());
        self.take_in_blocks(shard, note.slot, note.blocks);
        match note.extent {
            Some((e, What::Give(kind))) => self.put_back(shard, e, kind, self.now_ms()),
            Some((e, What::TakeBack)) => {
                self.budget.end_deferral(Pages::of_slots(e.n));
                self.take_block_back(shard, e);
            }
            None => {}
        }
    }

    /// Keeps or returns the memory of an extent in transit that comes back. No thread of ours is in it.
    fn take_back(&self, shard: &Shard, e: Extent) {
        let slots = shard.slots;
        self.huge_cost.note_return(e.n);
        self.note_left(shard, e);
        if !self.is_retired() {
            self.examine(shard, e);
        }
        let Settled { mut keep, held } = self.settle(shard, e);
        if self.is_retired() {
            self.budget.discharge(held);
            return self.let_go(shard, e);
        }
        self.mark_distant(shard, e);
        let stamp = self.now_ms();
        let mut all_kept = 0;
        e.groups(
            |i| self.fate(slots, i),
            |g, fate| {
                let span = shard.span(g);
                let (mut kept, mut lost) = (0, 0);
                match fate {
                    Fate::Lost => return self.lose_slots(shard, g),
                    Fate::Reset if !self.reset(shard, g) => return self.abandon(shard, g),
                    Fate::Reset => {}
                    Fate::Refresh => {
                        let Some(back) = self.refresh(shard, g, keep) else { return self.abandon(shard, g) };
                        kept = back;
                        keep -= kept;
                        shard.count(Counter::BytesKept, kept * SLOT);
                    }
                    Fate::Discard if !self.sys.discard(span) => return self.abandon(shard, g),
                    Fate::Discard => {}
                    Fate::Keep => {
                        kept = g.n.min(keep);
                        keep -= kept;
                        if kept < g.n {
                            let over = g.behind(kept);
                            if !self.sys.discard(shard.span(over)) {
                                self.abandon(shard, over);
                                lost = over.n;
                            }
                            shard.count(Counter::BytesOverBudget, over.n * SLOT);
                        }
                        shard.count(Counter::BytesKept, kept * SLOT);
                    }
                }
                let back = g.front(g.n - lost);
                back.slots().for_each(|i| _ = slots.clear(i, flag::IN_USE));
                self.budget.keep(kept);
                all_kept += kept;
                self.put_back(shard, back.front(kept), Kind::Dirty, stamp);
                self.put_back(shard, back.behind(kept), Kind::Unbacked, stamp);
                match kept {
                    0 => {}
                    _ if self.is_due(shard, stamp) => self.want_worker_now(),
                    _ => self.want_worker(),
                }
            },
        );
        self.budget.discharge(held);
        if all_kept > 0
            && let Some(mut arena) = shard.lock_soon()
        {
            arena.note_last(e);
        }
    }

    /// Replaces the mapping under an extent in transit, but not the frames of up to `most` slots from the first on:
    /// they move away and back. The kernel moves no frames that it locks or pins, or that have other rights. How many
    /// are there again; `None`: the mapping is as it was.
    fn refresh(&self, shard: &Shard, e: Extent, most: usize) -> Option<usize> {
        let n = if self.can_move() { e.n.min(most) } else { 0 };
        let away = (n > 0).then(|| shard.lock_soon()?.take_holes(n, 1, &self.sys)).flatten();
        let to = |e: Extent| shard.span(e).start;
        let moved = away.map_or(0, |away| self.move_bytes(shard, shard.span(e.front(n)), to(away)));
        let advised = e.slots().all(|i| shard.slots.has(i, flag::ADVISED));
        let done = self.reset(shard, e);
        let mut back = 0;
        if let Some(away) = away {
            if done && advised {
                self.sys.huge(shard.span(e), Huge::Advised);
                e.slots().for_each(|i| _ = shard.slots.mark(i, flag::ADVISED));
            }
            let moved = Split::at(away, moved);
            if done && !moved.whole.is_empty() {
                back = self.move_bytes(shard, shard.span(moved.whole), to(e)) / SLOT;
            }
            let begun = away.front(moved.begun());
            self.put_back(shard, begun.front(back), Kind::Unbacked, 0);
            self.put_back_empty(shard, begun.behind(back), 0);
            self.put_back(shard, moved.rest, Kind::Unbacked, 0);
        }
        done.then_some(back)
    }

    /// Squares the account for slots that come back.
    fn settle(&self, shard: &Shard, e: Extent) -> Settled {
        let slots = shard.slots;
        let untouched = self.is_untouched(shard, e);
        let unknown = |i: Slot| slots.has(i, flag::FRESH | flag::CHARGED);
        let every = (e.slots().filter(|&i| unknown(i)).count() / SAMPLES).max(1);
        // With nothing to be kept, no look is needed: a program in a sandbox may forbid the calls.
        let looks = self.budget.limit() > 0;
        let (mut known, mut charged, mut backed, mut sampled, mut dense, mut full) = (0, 0, 0, 0, 0, 0);
        for i in e.slots() {
            let is_unknown = unknown(i);
            charged += slots.clear(i, flag::CHARGED) as usize;
            let lost = slots.has(i, flag::TAINTED | flag::FORKED);
            if !is_unknown {
                known += 1;
                continue;
            }
            let fresh = slots.has(i, flag::FRESH);
            let has_memory = !fresh || looks && !lost && !untouched && self.is_backed(shard, i);
            if !has_memory {
                slots.mark(i, flag::EMPTY);
            } else if !lost {
                // The program may have unmapped the slot by itself. And the last slot of a block may not be all the
                // program's.
                let whole = e.n == 1 || i < e.last();
                if looks && whole && backed % every == 0 && (fresh || self.is_present(shard, i)) {
                    sampled += 1;
                    // A load from memory that the program has closed would fault.
                    let written = match slots.has(i, flag::ALTERED) {
                        true => self.peek_written(shard, i),
                        false => self.written(shard, i),
                    };
                    dense += (written * 2 >= SAMPLED_PAGES) as usize;
                    full += (written == SAMPLED_PAGES) as usize;
                }
                backed += 1;
            }
        }
        if sampled > 0 {
            shard.sparse.note(dense == 0);
        }
        let used = (backed * full).checked_div(sampled).unwrap_or(0);
        self.budget.note_use(used, sampled - full);
        let held = charged.saturating_sub(used);
        self.end_promise(shard, e.slots());
        self.budget.use_slots(used);
        self.budget.discharge(charged - held);
        // It is all there at the same time.
        self.look_around();
        self.budget.unuse(used + known);
        let keep = if self.budget.limit() == 0 { 0 } else { self.budget.room() + held };
        Settled { keep, held }
    }

    fn fate(&self, slots: Slots, i: Slot) -> Fate {
        if slots.has(i, flag::GIVEN_UP) {
            Fate::Lost
        } else if slots.has(i, flag::TAINTED | flag::FORKED) {
            Fate::Reset
        } else if slots.has(i, flag::EMPTY) || self.is_referenced() || self.is_watched() {
            if slots.has(i, flag::ALTERED) { Fate::Reset } else { Fate::Discard }
        } else if slots.has(i, flag::ALTERED) {
            Fate::Refresh
        } else {
            Fate::Keep
        }
    }

    /// Replaces the mapping under an extent in transit: no memory, no attributes.
    /// Whether that worked: at the limit of areas it may not.
    pub(crate) fn reset(&self, shard: &Shard, e: Extent) -> bool {
        let slots = shard.slots;
        let forked = slots.has(e.first, flag::FORKED);
        shard.count(if forked { Counter::BytesForked } else { Counter::BytesTainted }, e.n * SLOT);
        if !self.sys.reset(shard.span(e)) {
            return false;
        }
        e.slots().for_each(|i| {
            slots.clear(i, flag::ADVISED);
        });
        true
    }

    /// Puts an extent in transit into the free lists without its memory.
    pub(crate) fn put_back_empty(&self, shard: &Shard, e: Extent, stamp_ms: u32) {
        match e.n == 0 || self.sys.discard(shard.span(e)) {
            true => self.put_back(shard, e, Kind::Unbacked, stamp_ms),
            false => self.abandon(shard, e),
        }
    }

    /// Takes an extent in transit whose mapping cannot be replaced out of use for good, without its memory if that goes.
    pub(crate) fn abandon(&self, shard: &Shard, e: Extent) {
        let _ = self.sys.discard(shard.span(e));
        self.lose_slots(shard, e);
    }

    /// The same where nothing of ours is mapped any more.
    pub(crate) fn lose_slots(&self, shard: &Shard, e: Extent) {
        e.slots().for_each(|i| shard.slots.lose(i));
    }
}
