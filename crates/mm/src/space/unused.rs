//! What the program left unused of the memory that was brought ahead of it.
//!
//! That shows when the program is done with the memory, and by its content alone: a page of zeroes was not used, or
//! used for zeroes. So the counts are upper bounds. Pages that are gone by then, because the program dropped them one
//! by one, count neither way.

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::flag;
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Slots looked at in one go, at most, and pages in each.
const LOOKS: usize = 64;
const PAGES: usize = 4;

impl<S: Sys> Space<S> {
    /// The program ends: what it still has is looked at.
    pub fn note_exit(&self) {
        for (shard, e) in self.all_slots() {
            self.busy.enter(shard.span(e), || true, || self.note_left(shard, e));
        }
    }

    /// The user of `e` is done with it: counts how much of it was brought ahead, and how much of this is full of
    /// zeroes.
    pub(crate) fn note_left(&self, shard: &Shard, e: Extent) {
        let slots = shard.slots;
        let n = e.slots().filter(|&i| slots.has(i, flag::AHEAD)).count();
        // With a budget of nothing, the program may be in a sandbox that forbids the calls. A program that watches
        // its memory is not looked at.
        if n == 0 || self.budget.limit() == 0 || self.is_looked_at() {
            return;
        }
        let every = n.div_ceil(LOOKS);
        let (mut looks, mut seen, mut unused) = (0, 0, 0);
        for (turn, i) in e.slots().filter(|&i| slots.withdraw(i, flag::AHEAD)).enumerate() {
            if turn % every == 0 {
                looks += 1;
                let slot = shard.slot(i);
                // Not always the same: programs have habits.
                let first = slot.start + i.number() % (SLOT_PAGES / PAGES) * PAGE;
                for page in (first..slot.end).step_by(SLOT / PAGES) {
                    // In this order, and only in memory that is the engine's business: a look at a missing page
                    // brings one, and may wait.
                    let there = !slots.has(i, flag::TAINTED) && self.sys.present(page);
                    seen += there as usize;
                    unused += (there && self.sys.peek_nonzero_pages(Span::new(page, PAGE), 1) != 1) as usize;
                }
            }
        }
        let bytes = |pages: usize| pages * n * SLOT / (looks * PAGES).max(1);
        shard.count(Counter::BytesAheadSeen, bytes(seen));
        shard.count(Counter::BytesAheadUnused, bytes(unused));
    }
}
