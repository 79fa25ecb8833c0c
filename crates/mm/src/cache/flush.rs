//! Dirty pages are written before a sync asks for it, by a thread of the background.
//!
//! It does what a sync does, for a few slots at a time. Their pages are durable and clean then; or they are
//! dirty as before, and the error is kept. A thread that writes to a page meanwhile waits for nothing.
//!
//! How old a dirty page is goes by slots, from the moment at which this thread saw the first of them. A thread that
//! syncs holds `syncing`. This thread does without a turn while another one has it.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use faultless_base::sync::Words;
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, SLOT, SLOT_PAGES};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, flag};

/// Slots of one turn: as much as one call writes.
const MOST_SLOTS: usize = 16;

/// Which dirty pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// All of them.
    All,
    /// Those of slots that were seen dirty that many ms ago, or before.
    Older(u32),
}

/// Since when slots are dirty.
pub(super) struct Ages {
    /// In ms; 0: since no time that is known.
    since: Words,
    /// Where the next turn begins.
    hand: AtomicUsize,
}

impl Ages {
    pub(super) fn new(slots: usize) -> Result<Self, Errno> {
        Ok(Self { since: Words::new(slots).ok_or(Errno::ENOMEM)?, hand: AtomicUsize::new(0) })
    }

    /// Whether a dirty slot is to be written now. It is noted if it was not seen before.
    fn is_due(&self, slot: usize, now_ms: u32, which: Flush) -> bool {
        let since = self.since[slot].load(Relaxed) as u32;
        if since == 0 {
            // Never 0.
            self.since[slot].store(now_ms.max(1) as usize, Relaxed);
        }
        match which {
            Flush::All => true,
            Flush::Older(ms) => since != 0 && now_ms.wrapping_sub(since) >= ms,
        }
    }

    fn forget(&self, slot: usize) {
        self.since[slot].store(0, Relaxed);
    }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Writes dirty pages of a few slots, and waits until they are durable. How many bytes: none where
    /// no more are due, or while another thread syncs.
    pub fn flush(&self, which: Flush) -> Result<usize, Errno> {
        if !self.backing.is_written_back() {
            return Ok(0);
        }
        let Some(_syncing) = self.syncing.try_lock() else { return Ok(0) };
        let (mut due, mut n) = ([0; MOST_SLOTS], 0);
        let (slots, now) = (self.length().div_ceil(SLOT), self.store.now_ms());
        let begin = self.ages.hand.load(Relaxed);
        for slot in (0..slots).map(|i| (begin + i) % slots) {
            if n == MOST_SLOTS {
                break;
            }
            self.ages.hand.store(slot + 1, Relaxed);
            if self.index.state(slot) & flag::FILLED == 0 {
                continue;
            }
            // Pages that are written to once more would be protected for nothing: the write itself looks again.
            if self.is_tracked(slot) && self.index.count(Entry::Dirty, slot) < SLOT_PAGES / 2 {
                let _change = self.change(slot);
                self.find_changes(slot, Part { first: 0, count: SLOT_PAGES });
            }
            if !self.index.has_any(Entry::Dirty, slot) {
                self.ages.forget(slot);
            } else if self.ages.is_due(slot, now, which) {
                self.ages.forget(slot);
                due[n] = slot;
                n += 1;
            }
        }
        let (written, result) = self.write_slots(|| due[..n].iter().copied());
        self.counters.add(Counter::FileFlushed, written as u64);
        // Where devices go on writing to all of it, there is nothing more to do now.
        let is_any_clean = due[..n].iter().any(|slot| !self.index.has_any(Entry::Dirty, *slot));
        result.map(|()| if is_any_clean { written } else { 0 })
    }
}
