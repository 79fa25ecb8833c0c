//! What memory of the arena holds, as far as some looks tell: whether it is there, and how much was written to.

use faultless_base::sys::{SIGNATURES, Sys};
use faultless_base::{SLOT, SLOT_PAGES, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::flag;
use crate::space::account::SAMPLED_PAGES;
use crate::space::{Shard, Space};

/// Slots at which a long extent is looked at.
const SAMPLES: usize = 16;

impl<S: Sys> Space<S> {
    /// Whether a large fresh extent comes back as it was handed out, or nearly so, as far as some looks tell. It is
    /// discarded then, which loses time, not data, if it was not so. While one extent after the other comes back
    /// untouched, only now and then one is looked at.
    pub(crate) fn is_untouched(&self, shard: &Shard, e: Extent) -> bool {
        if e.n < 2
            || self.budget.limit() == 0
            || [e.first, e.last()].iter().any(|&i| !shard.slots.has(i, flag::FRESH))
        {
            return false;
        }
        if shard.untouched.is_granted() {
            shard.untouched.note(true);
            return true;
        }
        let span = shard.span(e);
        let present = |looks: usize| {
            let places = (0..=looks).map(|k| (span.start + span.bytes() / looks * k).min(span.end - 1));
            places.filter(|&at| self.sys.present(at)).count()
        };
        // Of a long one a few touched slots are not worth a question for each of the others.
        let untouched = present(2) == 0 || e.n > SAMPLES && present(SAMPLES) <= SAMPLES / 8;
        shard.untouched.note(untouched);
        untouched
    }

    /// Whether a slot that was handed out as a hole has memory throughout now: a huge page, as far as three looks tell,
    /// or all of its small pages.
    pub(crate) fn is_backed(&self, shard: &Shard, i: Slot) -> bool {
        self.is_present(shard, i)
            && (shard.slots.has(i, flag::ADVISED) || self.sys.present_pages(shard.slot(i)) == SLOT_PAGES)
    }

    /// Whether a slot has memory throughout, as far as three looks tell.
    pub(crate) fn is_present(&self, shard: &Shard, i: Slot) -> bool {
        self.is_backed_at(shard.slot(i))
    }

    /// The same for memory of a slot that lies elsewhere.
    pub(crate) fn is_backed_at(&self, slot: Span) -> bool {
        [0, SLOT / 2, SLOT - 1].iter().all(|offset| self.sys.present(slot.start + offset))
    }

    /// The same for memory that was zero and may not be readable by now.
    pub(crate) fn written_at(&self, slot: Span) -> usize {
        self.sys.peek_nonzero_pages(slot, SAMPLED_PAGES)
    }

    /// Of some pages of slot `i`, which can be read, how many were written to.
    pub(crate) fn written(&self, shard: &Shard, i: Slot) -> usize {
        let slot = shard.slot(i);
        match shard.slots.has(i, flag::SIGNED) {
            true => self.sys.overwritten(slot) * (SAMPLED_PAGES / SIGNATURES),
            false => self.sys.nonzero_pages(slot, SAMPLED_PAGES),
        }
    }

    /// The same for a slot that the program may unmap or close meanwhile.
    pub(crate) fn peek_written(&self, shard: &Shard, i: Slot) -> usize {
        let slot = shard.slot(i);
        match shard.slots.has(i, flag::SIGNED) {
            true => self.sys.peek_overwritten(slot) * (SAMPLED_PAGES / SIGNATURES),
            false => self.sys.peek_nonzero_pages(slot, SAMPLED_PAGES),
        }
    }
}
