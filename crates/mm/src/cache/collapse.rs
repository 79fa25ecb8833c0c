//! Small pages become a huge page where they lie, once all pages of their 2 MiB are present.
//!
//! The bytes are copied to a frame, the small pages go, and the frame moves to their place. If it cannot, the slot is
//! empty, and its pages come again. So the file has to have all of them: dirty pages stay small until they were written.
//! That is why a sync looks for such slots when it is done, and a mapping before it holds them.
//!
//! The caller has no pin of the slot. Meanwhile threads that pin it wait, as while its pages go.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::SLOT_PAGES;
use faultless_base::sys::file_memory::FileMemory;
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, flag};
use crate::cache::share::Share;
use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;

/// How long it is not tried again, in ms, where the kernel had no huge page: it may have looked for one for long.
const PAUSE_MS: u32 = 10_000;

const ALL: Part = Part { first: 0, count: SLOT_PAGES };

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Makes a huge page of a slot of small pages, if it may have one and there is one.
    pub(super) fn collapse(&self, slot: usize) {
        if !self.may_collapse(slot) || !self.has_room() {
            return;
        }
        // The copy is there beside them for a moment.
        let Some(_room) = self.try_room(SLOT_PAGES) else { return };
        let Some(change) = self.index.try_change(slot) else { return };
        if !change.leave() {
            return;
        }
        if !self.may_collapse(slot) {
            return change.stay();
        }
        let Some(frame) = self.take_frame(Need::Any) else {
            // Never 0.
            self.collapse_failed.store(self.store.now_ms().max(1) as usize, Relaxed);
            return change.stay();
        };
        let (before, at) = (self.share(slot), self.slot_span(slot));
        self.memory.copy(at, frame.at);
        if self.memory.discard(at) && self.memory.move_in(frame.at, at.start) {
            self.store.give(frame.at, Kind::Unbacked);
            change.set(flag::HUGE);
            change.unset(flag::TABLE);
            self.counters.add(Counter::FileCollapsed, 1);
            self.count(before, self.share(slot));
            change.stay();
        } else {
            // Before they are gone: a write that makes the file longer takes pages without memory for zeroes.
            self.gone.fetch_add(1, Relaxed);
            self.empty(at);
            self.count(before, Share::default());
            change.gone(flag::TABLE);
            self.return_frame(frame.at);
        }
    }

    /// Whether it may, at this moment.
    fn may_collapse(&self, slot: usize) -> bool {
        let state = self.index.state(slot);
        // The kernel may go on reading what was mapped, and pages that raise faults come and go each by itself.
        let is_in_the_way = state & (flag::HUGE | flag::WATCHED | flag::MAPPED) != 0 || state >= flag::PIN;
        state & flag::FILLED != 0
            && !is_in_the_way
            && self.memory.frees_tables()
            && self.is_huge_at(slot)
            && self.index.has(Entry::Present, slot, ALL)
            && self.index.is_clean(slot)
            && !self.has_failed_lately()
    }

    fn has_failed_lately(&self) -> bool {
        let failed = self.collapse_failed.load(Relaxed) as u32;
        failed != 0 && self.store.now_ms().wrapping_sub(failed) < PAUSE_MS
    }
}
