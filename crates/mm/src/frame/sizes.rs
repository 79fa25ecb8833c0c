//! How long each block of malloc is: a table beside the slots, read without a lock.
//!
//! A block's size changes only in calls about that block, and the program makes one at a time. So its owner reads the
//! size without a lock. A slot in state `Runs` has a byte for each unit: the units of the run that starts there, or
//! 0. These bytes are written with the shard's lock, because runs share words. The first slot of a block of whole
//! slots has the block's pages in its first word, and no other slot has any there.

use faultless_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use faultless_base::sync::words;

use crate::frame::runs::UNITS;

/// Words of a slot.
const WORDS: usize = UNITS / RUNS_OF_WORD;
const RUNS_OF_WORD: usize = 4;

/// The sizes of all blocks of a shard.
#[derive(Clone, Copy)]
pub struct Sizes {
    words: &'static [AtomicU32],
}

impl Sizes {
    /// No block. `None` when the kernel refuses the address space.
    pub fn new(slots: usize) -> Option<Self> {
        Some(Self { words: words(slots.checked_mul(WORDS)?)? })
    }

    fn place(&self, slot: usize, unit: usize) -> (&AtomicU32, u32) {
        (&self.words[slot * WORDS + unit / RUNS_OF_WORD], (unit % RUNS_OF_WORD * 8) as u32)
    }

    /// Units of the run that starts at unit `unit` of a carved slot.
    pub fn run(&self, slot: usize, unit: usize) -> Option<usize> {
        let (word, shift) = self.place(slot, unit);
        let n = word.load(Relaxed) >> shift & 0xFF;
        (n != 0).then_some(n as usize)
    }

    /// The runs of a carved slot: the first unit and the units of each.
    pub fn runs(self, slot: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..UNITS).filter_map(move |unit| Some((unit, self.run(slot, unit)?)))
    }

    /// With the shard's lock: a run of `n` units starts at unit `unit`; 0: none does.
    pub fn set_run(&self, slot: usize, unit: usize, n: usize) {
        let (word, shift) = self.place(slot, unit);
        word.store(word.load(Relaxed) & !(0xFF << shift) | (n as u32) << shift, Relaxed);
    }

    /// A slot in transit is about to be carved: no run starts in it.
    pub fn clear(&self, slot: usize) {
        self.words[slot * WORDS..][..WORDS].iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Pages of the block of whole slots that starts with this slot.
    pub fn pages(&self, slot: usize) -> usize {
        self.words[slot * WORDS].load(Relaxed) as usize
    }

    /// A block of whole slots starts with this slot.
    pub fn set_pages(&self, slot: usize, pages: u32) {
        self.words[slot * WORDS].store(pages, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn runs_of_neighbouring_units_and_slots_are_told_apart() {
        let sizes = Sizes::new(3).unwrap();
        for slot in 0..3 {
            (0..UNITS).for_each(|unit| sizes.set_run(slot, unit, (unit + slot) % (UNITS + 1)));
        }
        sizes.set_run(1, 5, 0);
        for slot in 0..3 {
            for unit in 0..UNITS {
                let expected = if (slot, unit) == (1, 5) { 0 } else { (unit + slot) % (UNITS + 1) };
                assert_eq!(sizes.run(slot, unit).unwrap_or(0), expected);
            }
        }
        sizes.clear(0);
        sizes.set_pages(2, 513);
        assert_eq!((sizes.runs(0).collect::<Vec<_>>().len(), sizes.run(1, 0), sizes.pages(2)), (0, Some(1), 513));
    }
}
