//! Pages of a file go: those that no mapping holds, no thread uses and the file has, by second chance.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::file_memory::FileMemory;
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Change, Part, flag};
use crate::cache::share::Share;
use crate::frame::buddy::Kind;
use faultless_base::{SLOT, SLOT_PAGES};

/// Where the frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To the owner of all frames, as far as the budget allows: another file, or memory of the program's, gets them.
    Store,
    /// To the kernel: memory is short.
    Kernel,
}

/// Why they go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Others need the room.
    Room,
    /// The program has said that it does not need them.
    Advice,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Lets up to `most` slots go. Slots that were used since the last round stay for one round more, and those that an
    /// access needs together for a moment. How many went.
    pub fn evict(&self, most: usize, to: To) -> usize {
        // Behind the end nothing is present.
        let slots = self.length().div_ceil(SLOT);
        let mut gone = 0;
        // Everything once for its first chance, and once more.
        for _ in 0..2 * slots {
            if gone == most {
                break;
            }
            let slot = self.hand.fetch_add(1, Relaxed) % slots;
            gone += self.evict_slot(slot, to) as usize;
        }
        if gone < most && to == To::Kernel {
            gone += self.try_evict_stream();
        }
        gone
    }

    fn evict_slot(&self, slot: usize, to: To) -> bool {
        let state = self.index.state(slot);
        if state & flag::FILLED == 0 || state >= flag::PIN {
            return false;
        }
        if self.staging.get().is_some_and(|staging| staging.recent().is_needed(slot, || self.store.now_ms())) {
            return false;
        }
        let Some(change) = self.index.try_change(slot) else { return false };
        if change.is(flag::USED) {
            change.unset(flag::USED);
            return false;
        }
        self.evict_clean(change, slot, (to, Why::Room))
    }

    /// Lets the slots go that lie inside a range of bytes whole, or up to the end of the file; how many. Those that another
    /// thread is at stay.
    pub fn evict_range(&self, offset: usize, bytes: usize, to: To) -> usize {
        let slots = offset.div_ceil(SLOT)..self.whole_slots(offset.saturating_add(bytes));
        let on_the_way = self.evict_stream(|slot| slots.contains(&slot), to);
        let filled = slots.filter(|slot| self.index.state(*slot) & flag::FILLED != 0);
        filled.fold(on_the_way, |gone, slot| {
            let change = self.index.try_change(slot);
            gone + change.is_some_and(|change| self.evict_clean(change, slot, (to, Why::Advice))) as usize
        })
    }

    /// Others have changed the file, just now or, without `is_new`, before: lets all slots go from before that lie inside
    /// a number of bytes whole. Whether some stay for now: they are mapped, or could not be written. The caller has the
    /// file for itself, and has written back what was dirty.
    pub fn evict_stale(&self, bytes: usize, is_new: bool) -> bool {
        let mut stays = false;
        for slot in 0..self.whole_slots(bytes) {
            let which = if is_new { flag::FILLED } else { flag::STALE };
            if self.index.state(slot) & which != 0 {
                // No slot stays because another thread looks at it.
                let change = self.change(slot);
                if change.is(flag::FILLED) {
                    change.set(flag::STALE);
                    stays |= !self.evict_clean(change, slot, (To::Store, Why::Advice));
                }
            }
        }
        stays
    }

    /// Where the slots end that lie before a byte whole. The last one of the file may be cut.
    fn whole_slots(&self, end: usize) -> usize {
        if end >= self.length() { self.index.slots() } else { end / SLOT }
    }

    fn evict_clean(&self, change: Change<'_>, slot: usize, (to, why): (To, Why)) -> bool {
        let is_tracked = self.is_tracked(slot);
        let is_changed = is_tracked && self.find_changes(slot, Part { first: 0, count: SLOT_PAGES });
        if !self.backing.is_written_back() && (is_changed || !self.index.is_clean(slot)) {
            self.keep_for_good(slot);
            return false;
        }
        if is_changed || !change.leave() {
            return false;
        }
        let is_clean = self.index.is_clean(slot) && change.is(flag::FILLED);
        if !is_clean || is_tracked && !self.take_out(&change, slot) {
            change.stay();
            return false;
        }
        self.gone.fetch_add(1, Relaxed);
        if why == Why::Room {
            self.note_gone(slot);
        }
        match is_tracked {
            true => change.gone(if self.memory.frees_tables() { 0 } else { flag::TABLE }),
            false => self.let_go(change, slot, to),
        }
        self.counters.add(Counter::FileEvicted, SLOT as u64);
        true
    }

    /// A slot with changes that go nowhere is the program's own from now on. The caller has its lock.
    fn keep_for_good(&self, slot: usize) {
        self.pin(slot).keep();
        let before = self.share(slot);
        self.holds[slot].fetch_add(1, Relaxed);
        self.count(before, self.share(slot));
    }

    /// Lets the memory of a slot go that no thread uses.
    pub(super) fn let_go(&self, change: Change<'_>, slot: usize, to: To) {
        let before = self.share(slot);
        let at = self.slot_span(slot);
        let is_huge = change.is(flag::HUGE);
        // Before it is kept by the owner: no memory counts twice.
        self.tell(before, Share::default());
        // The kernel may go on reading what it has a reference to: no other file's bytes may come there.
        let is_reused = is_huge && to == To::Store && !change.is(flag::MAPPED | flag::WATCHED);
        let place = is_reused.then(|| self.store.place_to_keep()).flatten();
        let left = match place {
            Some(frame) => {
                let moved = self.memory.move_out(at.start, frame);
                self.store.give(frame, if moved { Kind::Dirty } else { Kind::Unbacked });
                0
            }
            None => {
                self.empty(at);
                if self.memory.frees_tables() || is_huge { 0 } else { flag::TABLE }
            }
        };
        change.gone(left);
        // Only now is its memory another file's.
        self.charge(before, Share::default());
    }

    /// Whether one slot more may be kept. An idle frame makes way for it, or comes to be its memory.
    pub(super) fn has_room(&self) -> bool {
        self.store.room() > 0 || if self.is_huge() { self.store.idle() > 0 } else { self.store.drop_idle() }
    }

    /// Lets one slot go where nothing more may be kept. If all are dirty they are written back first: dirty memory
    /// does not grow beyond the budget.
    pub(super) fn make_room(&self) {
        let has_some = || self.account.lock().slots > 0;
        if self.has_room() || !has_some() || self.evict(1, To::Store) > 0 {
            return;
        }
        self.counters.add(Counter::FileThrottled, 1);
        // An error is kept, for the next call that asks for it.
        let _ = self.sync(0, self.length());
        self.evict(1, To::Store);
    }
}
