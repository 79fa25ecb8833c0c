//! Keeping what a region drops: huge pages with the bytes that are in them, for regions that take them so.
//!
//! They are in a pool of their own, so that none ever comes to a region that was promised zeroes.

use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, SLOT, Span};

use crate::region::Region;
use crate::region::entry::Kind;
use crate::region::install::MOST_AGAIN;
use crate::region::pool::Pool;
use faultless_page::knobs::Knob;

const PAGES: usize = SLOT / PAGE;
/// Frames that are kept of what is unmapped at a time.
const MOST: usize = 128;

/// Frames that were taken from their slots, and may go back.
pub(crate) struct Aside {
    frames: [(usize, usize); MOST],
    count: usize,
}

impl<M: Mmu> Region<M> {
    /// Has the region keep the huge pages that it drops in `pool`, as many as the budget allows. It takes those
    /// before any of zeroes. For a program that writes to all of its memory before it reads it.
    pub fn with_old_bytes(mut self, pool: &'static Pool) -> Self {
        self.frames.take_old(pool);
        self
    }

    /// Takes the huge pages of a span out of it, while `keep` says so of a slot and its frame. No thread installs
    /// anything there.
    fn take_frames(&self, span: Span, mut keep: impl FnMut(&Pool, usize, usize) -> bool) {
        let Some(pool) = self.frames.old() else { return };
        let most = self.knobs.get(Knob::Budget) as usize / SLOT;
        let whole = span.aligned_inside(SLOT);
        for slot in (whole.start..whole.end).step_by(SLOT) {
            if self.entries.read(slot).kind() != Kind::Huge {
                continue;
            }
            let Some(frame) = Some(pool).filter(|pool| pool.ready() < most).and_then(Pool::begin) else { return };
            let there = PAGES - self.left_to_kernel(Span::new(slot, SLOT)).min(PAGES);
            if !self.mmu.take_huge(slot, frame) {
                pool.leave(frame);
                continue;
            }
            self.count_less(there);
            self.entries.put(Span::new(slot, SLOT), Kind::Empty, |turn| self.mmu.relax(turn));
            if !keep(pool, slot, frame) {
                return;
            }
        }
    }

    /// Keeps the huge pages of a span that is dropped in any case.
    pub(crate) fn keep_frames(&self, span: Span) {
        self.take_frames(span, |pool, _, frame| {
            pool.put_back(frame);
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
        let Some(pool) = self.frames.old() else { return };
        for (slot, frame) in &aside.frames[..aside.count] {
            let is_back = !dropped && self.move_back(*frame, *slot);
            pool.let_go(*frame, !is_back && self.mmu.drop_unless_whole(*frame));
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
