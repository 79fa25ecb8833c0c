//! The index of a file: which of its pages are in memory, and which of them are to be written.
//!
//! A page lies where its offset says, so an entry is six bits: present, dirty, in writeback, a hole, coming, valid. The
//! 512 entries of a huge page are eight words of each, which are set and cleared together. A word beside them says what
//! else is true of the 2 MiB ([`flag`]), and counts the threads that use them.
//!
//! | who | does | protected by |
//! |---|---|---|
//! | a lookup | pins, looks for its pages, uses them, unpins | no lock: pinned pages stay |
//! | a change: pages come | adds pages that are not there | the slot's lock, [`flag::CHANGING`] |
//! | a change: pages go | [`Change::leave`], which fails while a thread has a pin; clears all entries | the same |
//!
//! A thread that pins waits while pages leave, which takes one call to the kernel.

use faultless_base::sync::Words;
use faultless_base::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use faultless_base::{Errno, PAGE, SLOT_PAGES, probe};
use faultless_page::gauges::{Gauge, Gauges};

pub use crate::cache::flag;

const BITS: usize = usize::BITS as usize;
/// Words of the pages of one slot.
const WORDS: usize = SLOT_PAGES / BITS;

/// Pages of one slot that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first of them, in the slot.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Part {
    /// No page.
    pub const NONE: Self = Self { first: 0, count: 0 };

    /// Those of them that are not before a page.
    pub fn from(self, page: usize) -> Self {
        let first = self.first.max(page);
        Self { first, count: (self.first + self.count).saturating_sub(first) }
    }

    /// The bits of these pages, by words.
    pub(super) fn masks(self) -> impl Iterator<Item = (usize, usize)> {
        let (mut at, end) = (self.first, self.first + self.count);
        core::iter::from_fn(move || {
            (at < end).then(|| {
                let (word, bit) = (at / BITS, at % BITS);
                let n = (end - at).min(BITS - bit);
                at += n;
                (word, (usize::MAX >> (BITS - n)) << bit)
            })
        })
    }
}

/// Which entry is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The page is in memory.
    Present,
    /// It has bytes that the file does not have.
    Dirty,
    /// It was written, but is not yet known to be durable.
    Writeback,
    /// It is present, and the file has nothing there: as long as it is zero, nothing has to be written.
    Hole,
    /// A thread reads it, without the lock of its slot (`cache/apart.rs`).
    Coming,
    /// What it reads counts: the bytes were not taken away meanwhile.
    Valid,
}

/// The entries of one file.
pub struct Index {
    states: Words,
    entries: [Words; 6],
    slots: usize,
    /// Where its pages count.
    gauges: Option<&'static Gauges>,
}

impl Index {
    /// Entries for that many slots, none present. All of their memory is there from now on, untouched.
    pub fn new(slots: usize) -> Result<Self, Errno> {
        let words = |n: usize| Words::new(n).ok_or(Errno::ENOMEM);
        let bits = || words(slots * WORDS);
        Ok(Self {
            states: words(slots)?,
            entries: [bits()?, bits()?, bits()?, bits()?, bits()?, bits()?],
            slots,
            gauges: None,
        })
    }

    /// The same, with its present, dirty and written pages counted there.
    pub fn counted(mut self, gauges: &'static Gauges) -> Self {
        self.gauges = Some(gauges);
        self
    }

    /// Bits of an entry came or went.
    fn count_bits(&self, entry: Entry, before: u32, after: u32) {
        let gauge = match entry {
            Entry::Present => Gauge::Cached,
            Entry::Dirty => Gauge::Dirty,
            Entry::Writeback => Gauge::Writeback,
            Entry::Hole | Entry::Coming | Entry::Valid => return,
        };
        if let Some(gauges) = self.gauges {
            gauges.change(gauge, u64::from(before) * PAGE as u64, u64::from(after) * PAGE as u64);
        }
    }

    /// How many slots it has.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn of(&self, entry: Entry, slot: usize) -> &[faultless_base::sync::atomic::AtomicUsize] {
        &self.entries[entry as usize][slot * WORDS..][..WORDS]
    }

    /// What is true of a slot, at one moment.
    pub fn state(&self, slot: usize) -> usize {
        self.states[slot].load(Relaxed)
    }

    /// Keeps the pages of a slot where they are; without a lock, unless they are just leaving.
    pub fn pin(&self, slot: usize, mut relax: impl FnMut(u32)) -> Pin<'_> {
        let word = &self.states[slot];
        let (mut state, mut turn) = (word.load(Relaxed), 0);
        loop {
            if state & flag::LEAVING != 0 {
                relax(turn);
                turn += 1;
                state = word.load(Relaxed);
                continue;
            }
            // Acquire: pairs with the end of a change that cleared entries.
            match word.compare_exchange_weak(state, (state | flag::USED) + flag::PIN, Acquire, Relaxed) {
                Ok(_) => return Pin { index: self, slot },
                Err(now) => state = now,
            }
        }
    }

    /// Waits for the right to bring or drop pages of a slot.
    pub fn change(&self, slot: usize, mut relax: impl FnMut(u32)) -> Change<'_> {
        let mut turn = 0;
        loop {
            if let Some(change) = self.try_change(slot) {
                return change;
            }
            relax(turn);
            turn += 1;
        }
    }

    /// The same, if no other thread has it.
    pub fn try_change(&self, slot: usize) -> Option<Change<'_>> {
        let before = self.states[slot].fetch_or(flag::CHANGING, Acquire);
        // Not `then_some`: a guard that is made and dropped frees the lock.
        (before & flag::CHANGING == 0).then(|| Change { index: self, slot })
    }

    /// Sets an entry of pages. The caller keeps them where they are.
    pub fn set(&self, entry: Entry, slot: usize, part: Part) {
        let words = self.of(entry, slot);
        let came = |(word, mask): (usize, usize)| (mask & !words[word].fetch_or(mask, Release)).count_ones();
        self.count_bits(entry, 0, part.masks().map(came).sum());
    }

    /// Ends an entry of pages.
    pub fn unset(&self, entry: Entry, slot: usize, part: Part) {
        let words = self.of(entry, slot);
        let gone = |(word, mask): (usize, usize)| (mask & words[word].fetch_and(!mask, Release)).count_ones();
        self.count_bits(entry, part.masks().map(gone).sum(), 0);
    }

    /// Whether all pages of a part have it. Acquire: pairs with [`Index::set`], so their bytes are there.
    pub fn has(&self, entry: Entry, slot: usize, part: Part) -> bool {
        let words = self.of(entry, slot);
        part.masks().all(|(word, mask)| words[word].load(Acquire) & mask == mask)
    }

    /// Whether any page of a slot has it.
    pub fn has_any(&self, entry: Entry, slot: usize) -> bool {
        self.of(entry, slot).iter().any(|word| word.load(Acquire) != 0)
    }

    /// Whether the file has all bytes of a slot of which no thread has a pin. The caller has its lock, without which no
    /// dirty page comes to be in writeback.
    pub fn is_clean(&self, slot: usize) -> bool {
        // Pages become dirty again when they could not be written: that is seen before or afterwards.
        let entries = [Entry::Dirty, Entry::Writeback, Entry::Dirty];
        entries.iter().all(|entry| !self.has_any(*entry, slot))
    }

    /// How many pages of a slot have it.
    pub fn count(&self, entry: Entry, slot: usize) -> usize {
        self.of(entry, slot).iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }

    /// How many pages of a part are not in memory.
    pub fn missing(&self, slot: usize, part: Part) -> usize {
        let words = self.of(Entry::Present, slot);
        part.masks().map(|(word, mask)| (mask & !words[word].load(Acquire)).count_ones() as usize).sum()
    }

    /// Has all pages with one entry have another one instead.
    pub fn turn(&self, from: Entry, to: Entry, slot: usize) {
        let (mut came, mut gone) = (0, 0);
        for (from, to) in self.of(from, slot).iter().zip(self.of(to, slot)) {
            // In this order: at no time does a page have neither.
            let bits = from.load(Acquire);
            came += (bits & !to.fetch_or(bits, Release)).count_ones();
            gone += (bits & from.fetch_and(!bits, AcqRel)).count_ones();
        }
        self.count_bits(to, 0, came);
        self.count_bits(from, gone, 0);
    }

    /// Ends an entry for all pages of a slot.
    pub fn clear(&self, entry: Entry, slot: usize) {
        let gone = self.of(entry, slot).iter().map(|word| word.swap(0, Release).count_ones()).sum();
        self.count_bits(entry, gone, 0);
    }

    /// The first run of pages of `part` whose entry is as `set` says; empty if there is none.
    pub fn run(&self, entry: Entry, slot: usize, part: Part, set: bool) -> Part {
        let words = self.of(entry, slot);
        let is = |page: &usize| (words[page / BITS].load(Acquire) >> (page % BITS) & 1 == 1) == set;
        let end = part.first + part.count;
        let Some(first) = (part.first..end).find(is) else { return Part::NONE };
        let count = (first..end).take_while(is).count();
        Part { first, count }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if self.gauges.is_none() {
            return;
        }
        for slot in (0..self.slots).filter(|slot| self.state(*slot) != 0) {
            [Entry::Present, Entry::Dirty, Entry::Writeback].iter().for_each(|entry| self.clear(*entry, slot));
        }
    }
}

/// A thread uses a slot, whose pages stay where they are until this is dropped.
pub struct Pin<'a> {
    index: &'a Index,
    slot: usize,
}

impl Pin<'_> {
    /// Stays until [`Pin::unpin`].
    pub fn keep(self) {
        core::mem::forget(self);
    }

    /// Ends one that was kept.
    pub fn unpin(index: &Index, slot: usize) {
        drop(Pin { index, slot });
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // Release: what this thread read and wrote there comes before the pages leave.
        self.index.states[self.slot].fetch_sub(flag::PIN, Release);
    }
}

/// The right to bring or drop pages of a slot.
pub struct Change<'a> {
    index: &'a Index,
    slot: usize,
}

impl Change<'_> {
    /// Whether this is true of the slot.
    pub fn is(&self, flags: usize) -> bool {
        self.index.state(self.slot) & flags != 0
    }

    /// Makes it true.
    pub fn set(&self, flags: usize) {
        self.index.states[self.slot].fetch_or(flags, Relaxed);
    }

    /// Makes it untrue.
    pub fn unset(&self, flags: usize) {
        self.index.states[self.slot].fetch_and(!flags, Relaxed);
    }

    /// Pages are there now, with their bytes: all of them at once.
    pub fn add(&self, part: Part) {
        self.set(flag::FILLED);
        self.index.set(Entry::Present, self.slot, part);
        let order = if self.is(flag::HUGE) { SLOT_PAGES.ilog2() as usize } else { 0 };
        probe::file_add(self.slot * SLOT_PAGES + part.first, part.count, order);
    }

    /// Pages are read from now on, without this lock.
    pub fn begin_read(&self, part: Part) {
        self.index.set(Entry::Coming, self.slot, part);
        self.index.set(Entry::Valid, self.slot, part);
    }

    /// The bytes of pages are taken away, or others come, though threads may have pins: reads of these pages that are
    /// under way do not count.
    pub fn void_reads(&self, part: Part) {
        self.unset(flag::STREAMED);
        // Most slots have none: their entries stay untouched memory.
        if self.index.has_any(Entry::Coming, self.slot) {
            self.index.unset(Entry::Valid, self.slot, part);
        }
    }

    /// Begins to let all pages go, unless a thread uses them.
    pub fn leave(&self) -> bool {
        let word = &self.index.states[self.slot];
        let mut state = word.load(Relaxed);
        while state < flag::PIN {
            // Acquire: pairs with the end of pins.
            match word.compare_exchange_weak(state, state | flag::LEAVING, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// They stay, after all.
    pub fn stay(&self) {
        self.index.states[self.slot].fetch_and(!flag::LEAVING, Release);
    }

    /// They are gone; `left` is true of the slot from now on.
    pub fn gone(self, left: usize) {
        self.index.clear(Entry::Present, self.slot);
        self.index.clear(Entry::Hole, self.slot);
        self.unset(flag::TABLE & !left);
        self.set(left);
        let ended = flag::LEAVING | flag::HUGE | flag::FILLED | flag::USED | flag::MAPPED | flag::STALE;
        self.index.states[self.slot].fetch_and(!ended, Release);
        probe::file_delete(self.slot * SLOT_PAGES);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.index.states[self.slot].fetch_and(!flag::CHANGING, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Part = Part { first: 0, count: SLOT_PAGES };

    #[test]
    fn entries_of_a_part_are_those_pages_and_no_others() {
        for (first, count) in [(0, 1), (63, 2), (0, SLOT_PAGES), (511, 1), (64, 128), (100, 300), (5, 0)] {
            let index = Index::new(2).unwrap();
            let part = Part { first, count };
            index.change(1, |_| ()).add(part);
            assert!(index.has(Entry::Present, 1, part));
            assert_eq!((index.count(Entry::Present, 1), index.count(Entry::Present, 0)), (count, 0));
            index.set(Entry::Dirty, 1, ALL);
            index.unset(Entry::Dirty, 1, part);
            assert_eq!(index.count(Entry::Dirty, 1), SLOT_PAGES - count);
            let run = index.run(Entry::Present, 1, ALL, true);
            assert_eq!(run, if count == 0 { Part::NONE } else { part });
        }
    }

    #[test]
    fn pages_in_use_do_not_leave() {
        let index = Index::new(1).unwrap();
        index.change(0, |_| ()).add(ALL);
        let pin = index.pin(0, |_| ());
        assert!(!index.change(0, |_| ()).leave());
        drop(pin);
        let change = index.change(0, |_| ());
        assert!(change.leave());
        change.gone(flag::TABLE);
        assert_eq!((index.state(0), index.count(Entry::Present, 0)), (flag::TABLE, 0));
    }
}
