//! Blocks and extents that come back while the shard is locked: a list without a lock.
//!
//! No thread waits for a shard's lock. A thread that cannot have the lock notes what comes back here, and the next
//! thread that comes by takes it in. A slot's words say what came back of the slot; they are written first, then the
//! slot is put on the list, unless it is on the list already. A thread that takes the list takes all of it, takes a
//! slot off, and then reads its words. So a thread that finds its slot on the list knows that its note will be read.
//!
//! A thread that stops for ever in the middle of this keeps what it has in its hands, and holds up no other thread.

use faultless_base::Slot;
use faultless_base::sync::atomic::{AtomicU32, Ordering::SeqCst};
use faultless_base::sync::words;

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;

/// Words of a slot: its place on the list, runs to be freed, what becomes of the extent that it begins.
const WORDS: usize = 3;
const LINK: usize = 0;
const RUNS: usize = 1;
const EXTENT: usize = 2;

/// Values of a link besides the next slot: not on the list, and on the list as the last one.
const OUT: u32 = 0;
const LAST: u32 = 1;
const FIRST_SLOT: u32 = 2;

/// What is to be done with an extent in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It comes back from its user.
    TakeBack,
    /// It goes into the free lists.
    Give(Kind),
}

const TAKE_BACK: u32 = 3;

/// What comes back of one shard.
pub struct Later {
    head: AtomicU32,
    words: &'static [AtomicU32],
}

/// What came back of a slot.
pub struct Note {
    /// The slot.
    pub slot: Slot,
    /// The blocks to be freed, by their first unit: a bit each.
    pub blocks: u32,
    /// The extent that it begins.
    pub extent: Option<(Extent, What)>,
}

impl Later {
    /// Nothing. `None` when the kernel refuses the address space.
    pub fn new(slots: usize) -> Option<Self> {
        Some(Self { head: AtomicU32::new(LAST), words: words(slots.checked_mul(WORDS)?)? })
    }

    fn word(&self, slot: Slot, which: usize) -> &AtomicU32 {
        &self.words[slot.number() * WORDS + which]
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(SeqCst) == LAST
    }

    /// The block that starts at unit `unit` of a slot is free; whether that is new.
    pub fn free(&self, slot: Slot, unit: usize) -> bool {
        let before = self.word(slot, RUNS).fetch_or(1 << unit, SeqCst);
        self.put(slot);
        before & 1 << unit == 0
    }

    /// An extent in transit, which is this thread's no longer.
    pub fn extent(&self, e: Extent, what: What) {
        let what = match what {
            What::Give(kind) => kind as u32,
            What::TakeBack => TAKE_BACK,
        };
        self.word(e.first, EXTENT).store((e.n as u32) << 2 | what, SeqCst);
        self.put(e.first);
    }

    fn put(&self, slot: Slot) {
        let link = self.word(slot, LINK);
        if link.compare_exchange(OUT, LAST, SeqCst, SeqCst).is_err() {
            return;
        }
        // No thread takes a single slot off the list. So a head that is the same again means the same list, or a new
        // one with the same first slot.
        let _ = self.head.fetch_update(SeqCst, SeqCst, |head| {
            link.store(head, SeqCst);
            Some(slot.number() as u32 + FIRST_SLOT)
        });
    }

    /// All that has come back until now; it is the caller's.
    pub fn take(&self) -> impl Iterator<Item = Note> {
        let mut next = self.head.swap(LAST, SeqCst);
        core::iter::from_fn(move || {
            let slot = Slot::new(next.checked_sub(FIRST_SLOT)? as usize);
            next = self.word(slot, LINK).swap(OUT, SeqCst);
            Some(self.note(slot))
        })
    }

    fn note(&self, slot: Slot) -> Note {
        let blocks = self.word(slot, RUNS).swap(0, SeqCst);
        let extent = self.word(slot, EXTENT).swap(0, SeqCst);
        let what = match extent & 3 {
            0 => What::Give(Kind::Unbacked),
            1 => What::Give(Kind::Dirty),
            2 => What::Give(Kind::Zeroed),
            _ => What::TakeBack,
        };
        let e = Extent { first: slot, n: (extent >> 2) as usize };
        Note { slot, blocks, extent: (e.n > 0).then_some((e, what)) }
    }

    /// In a forked child, where threads of the parent may have been in the middle of this: the list is empty then.
    /// The notes of `slots` are the caller's.
    pub fn begin_again(&self, slots: Extent) -> impl Iterator<Item = Note> {
        self.head.store(LAST, SeqCst);
        // A word that is not written is not copied in the child's memory.
        let noted = |slot: &Slot| (0..WORDS).any(|which| self.word(*slot, which).load(SeqCst) != 0);
        slots.slots().filter(noted).map(|slot| {
            self.word(slot, LINK).store(OUT, SeqCst);
            self.note(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_came_back_is_taken_once_and_whole() {
        let later = Later::new(8).unwrap();
        assert!(later.is_empty());
        later.free(Slot::new(3), 0);
        later.free(Slot::new(3), 31);
        later.extent(Extent { first: Slot::new(5), n: 2 }, What::Give(Kind::Zeroed));
        later.extent(Extent::one(Slot::new(0)), What::TakeBack);
        later.free(Slot::new(3), 7);
        let mut notes: Vec<_> = later.take().map(|note| (note.slot.number(), note.blocks, note.extent)).collect();
        notes.sort_by_key(|note| note.0);
        assert_eq!(
            notes,
            [
                (0, 0, Some((Extent::one(Slot::new(0)), What::TakeBack))),
                (3, 1 << 31 | 1 << 7 | 1, None),
                (5, 0, Some((Extent { first: Slot::new(5), n: 2 }, What::Give(Kind::Zeroed)))),
            ]
        );
        assert!(later.is_empty() && later.take().next().is_none());
        later.free(Slot::new(3), 1);
        assert_eq!(later.take().map(|note| (note.slot.number(), note.blocks)).collect::<Vec<_>>(), [(3, 2)]);
    }

    #[test]
    fn a_child_finds_what_a_thread_left_behind_had_in_its_hands() {
        let later = Later::new(4).unwrap();
        later.free(Slot::new(1), 4);
        later.free(Slot::new(2), 5);
        let mut left_behind = later.take();
        assert_eq!(left_behind.next().map(|note| note.slot.number()), Some(2));
        let found: Vec<_> =
            later.begin_again(Extent { first: Slot::new(0), n: 4 }).filter(|note| note.blocks != 0).collect();
        assert_eq!(found.iter().map(|note| (note.slot.number(), note.blocks)).collect::<Vec<_>>(), [(1, 1 << 4)]);
        later.free(Slot::new(1), 6);
        assert_eq!(later.take().map(|note| (note.slot.number(), note.blocks)).collect::<Vec<_>>(), [(1, 1 << 6)]);
    }
}
