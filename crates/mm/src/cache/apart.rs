//! Reads into places beside the file that are under way without the lock of their slot.
//!
//! Other threads use the slot meanwhile, and read other pages of it. What holds:
//!
//! - Pages that are read are [`Entry::Coming`]. No other thread reads them: it waits, without the lock, or does without.
//! - A pin keeps pages of the slot from leaving. So what is missing at the end of a read was so all the time, and the
//!   file has had no other bytes there.
//! - Where bytes are taken away in spite of pins ([`Change::void_reads`]), reads of these pages that began before do not
//!   count: they are brought anew, by who needs them. The second read keeps the lock, so nothing voids it.
//! - At its end a read needs the lock again. It tries for a moment only: both threads may have locks of other slots.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::Errno;
use faultless_base::sys::file_memory::FileMemory;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::fill::Run;
use crate::cache::group::Room;
use crate::cache::index::{Change, Entry, Part, Pin};
use crate::cache::share::Share;

/// How often a lock is tried at the end of a read: a few ms.
const TRIES: u32 = 250;

/// Such a read. One that is dropped has brought nothing.
pub(super) struct Apart<'a, M: FileMemory, B: Backing> {
    cache: &'a Cache<M, B>,
    slot: usize,
    run: Run,
    _pin: Pin<'a>,
    /// Its pages, as the owner of all frames was told of them.
    pub(super) coming: Share,
    has_place: bool,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The lock of a slot for who takes bytes of some pages away, or knows others of the file.
    pub(super) fn change_to_take(&self, slot: usize, part: Part) -> Change<'_> {
        let change = self.change(slot);
        change.void_reads(part);
        change
    }

    /// A read into a place that has begun goes on without the lock of its slot.
    pub(super) fn read_apart<'a>(&'a self, change: Change<'a>, slot: usize, run: Run) -> Apart<'a, M, B> {
        change.begin_read(run.part);
        let coming = Share::default().coming(run.part.count, self.holds[slot].load(Relaxed) > 0);
        self.tell(Share::default(), coming);
        Apart { cache: self, slot, run, _pin: self.pin(slot), coming, has_place: true }
    }
}

impl<M: FileMemory, B: Backing> Apart<'_, M, B> {
    /// Its pages are present, unless it could not be read, or does not count.
    pub(super) fn end(mut self, read: Result<usize, Errno>, room: &mut Room<'_>) -> Result<(), Errno> {
        let (cache, slot) = (self.cache, self.slot);
        let lock = |turn: u32| {
            let change = cache.index.try_change(slot);
            if change.is_none() {
                cache.memory.relax(turn);
            }
            change
        };
        let Some(change) = (0..TRIES).find_map(lock) else { return Ok(()) };
        if !cache.index.has(Entry::Valid, slot, self.run.part) {
            return Ok(());
        }
        let before = cache.share(slot);
        self.has_place = false;
        let ended = cache.end(&change, slot, self.run, read);
        let after = cache.share(slot);
        cache.tell(before + core::mem::take(&mut self.coming), after);
        room.use_for(before, after);
        cache.keep_promise(slot, after);
        // Before the lock is free: else the next thread that has it would wait once more.
        drop(self);
        ended
    }
}

impl<M: FileMemory, B: Backing> Drop for Apart<'_, M, B> {
    fn drop(&mut self) {
        if self.has_place {
            self.cache.return_place(self.run.to.start, self.run.part.count);
        }
        self.cache.tell(self.coming, Share::default());
        // Last: from now on others may bring them.
        self.cache.index.unset(Entry::Coming, self.slot, self.run.part);
    }
}
