//! Keeping what a region drops: huge pages with the bytes that are in them go back to the owner of all frames. Others
//! get them zeroed, or as they are where they will do.

use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, SLOT, Span};

use crate::frame::buddy::Kind as Holds;
use crate::frame::store::Store;
use crate::region::Region;
use crate::region::entry::Kind;
use crate::region::install::MOST_AGAIN;

const PAGES: usize = SLOT / PAGE;
/// Frames that are kept of what is unmapped at a time.
const MOST: usize = 128;

/// Frames that were taken from their slots, and may go back.
pub(crate) struct Aside {
    frames: [(usize, usize); MOST],
    count: usize,
}

impl<M: Mmu> Region<M> {
    /// Has the region keep the huge pages that it drops, as many as the budget allows. It takes frames with old bytes
    /// before any of zeroes. For a program that writes to all of its memory before it reads it.
    pub fn with_old_bytes(mut self) -> Self {
        self.frames.take_old();
        self
    }

    /// Takes the huge pages of a span out of it, while `keep` says so of a slot and its frame. No thread installs
    /// anything there.
    fn take_frames(&self, span: Span, mut keep: impl FnMut(&dyn Store, usize, usize) -> bool) {
        let Some(store) = self.frames.keeps() else { return };
        let whole = span.aligned_inside(SLOT);
        for slot in (whole.start..whole.end).step_by(SLOT) {
            if self.entries.read(slot).kind() != Kind::Huge {
                continue;
            }
            let Some(frame) = store.place_to_keep() else { return };
            let there = PAGES - self.left_to_kernel(Span::new(slot, SLOT)).min(PAGES);
            if !self.mmu.take_huge(slot, frame) {
                store.give(frame, Holds::Unbacked);
                continue;
            }
            self.count_less(there);
            self.entries.put(Span::new(slot, SLOT), Kind::Empty, |turn| self.mmu.relax(turn));
            if !keep(store, slot, frame) {
                return;
            }
        }
    }

    /// Keeps the huge pages of a span that is dropped in any case.
    pub(crate) fn keep_frames(&self, span: Span) {
        self.take_frames(span, |store, _, frame| {
            store.give(frame, Holds::Dirty);
            true
        });
    }

    /// Sets them aside, where it is not certain that the span is dropped; not all, if they are many.
    pub(crate) fn set_aside(&self, span: Span) -> Aside {
        let mut aside = Aside { frames: [(0, 0); MOST], count: 0 };
        self.take_frames(span, |_, slot, frame| {
            aside.frames[aside.count] = (slot, frame);
            aside.count += 1;
            aside.count < MOST
        });
        aside
    }

    /// Keeps what was set aside, or puts it back where it was.
    pub(crate) fn settle(&self, aside: &Aside, dropped: bool) {
        let Some(store) = self.frames.keeps() else { return };
        for (slot, frame) in &aside.frames[..aside.count] {
            let is_back = !dropped && self.move_back(*frame, *slot);
            let is_left = !is_back && self.mmu.drop_unless_whole(*frame);
            store.give(*frame, if is_left { Holds::Dirty } else { Holds::Unbacked });
        }
    }

    /// The slots are as they were, and empty; the kernel may still ask to try again.
    fn move_back(&self, frame: usize, slot: usize) -> bool {
        let moved = (0..MOST_AGAIN).any(|turn| {
            self.mmu.move_huge(frame, slot) || {
                self.mmu.relax(turn);
                false
            }
        });
        if moved {
            self.count_more(PAGES);
            self.entries.put(Span::new(slot, SLOT), Kind::Huge, |turn| self.mmu.relax(turn));
        }
        moved
    }
}
