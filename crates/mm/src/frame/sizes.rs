//! How long each block of malloc is: a table beside the slots, read without a lock.
//!
//! A block's size changes only in calls about that block, and the program makes one at a time. So its owner reads the
//! size without a lock. A slot in state `Runs` has 16 bits for each unit: the pages of the block whose run starts there,
//! or 0. They are written with the shard's lock, because runs share words. The first slot of a block of whole slots has
//! the block's pages in its first word, and no other slot has any there.

use faultless_base::Pages;
use faultless_base::Slot;
use faultless_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use faultless_base::sync::words;

use crate::frame::runs::{Run, UNITS};

/// Words of a slot.
const WORDS: usize = UNITS / RUNS_OF_WORD;
const RUNS_OF_WORD: usize = 2;
const BITS: usize = 32 / RUNS_OF_WORD;
const MASK: u32 = (1 << BITS) - 1;

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

    fn place(&self, slot: Slot, unit: usize) -> (&AtomicU32, u32) {
        (&self.words[slot.number() * WORDS + unit / RUNS_OF_WORD], (unit % RUNS_OF_WORD * BITS) as u32)
    }

    /// Units of the run that starts at unit `unit` of a carved slot.
    pub fn run(&self, slot: Slot, unit: usize) -> Option<usize> {
        Some(self.run_pages(slot, unit)).filter(|pages| *pages != Pages::NONE).map(Pages::units_around)
    }

    /// Pages of the block whose run starts at unit `unit` of a carved slot, which may not need all of its last unit.
    pub fn run_pages(&self, slot: Slot, unit: usize) -> Pages {
        let (word, shift) = self.place(slot, unit);
        Pages::new((word.load(Relaxed) >> shift & MASK) as usize)
    }

    /// The runs of a carved slot.
    pub fn runs(self, slot: Slot) -> impl Iterator<Item = Run> {
        (0..UNITS).filter_map(move |unit| Some(Run { unit, n: self.run(slot, unit)? }))
    }

    /// With the shard's lock: a run for `pages` pages starts at unit `unit`; with none no run does.
    pub fn set_run(&self, slot: Slot, unit: usize, pages: Pages) {
        let (word, shift) = self.place(slot, unit);
        word.store(word.load(Relaxed) & !(MASK << shift) | (pages.count() as u32) << shift, Relaxed);
    }

    /// A slot in transit is about to be carved: no run starts in it.
    pub fn clear(&self, slot: Slot) {
        self.words[slot.number() * WORDS..][..WORDS].iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Pages of the block of whole slots that starts with this slot.
    pub fn pages(&self, slot: Slot) -> Pages {
        Pages::new(self.words[slot.number() * WORDS].load(Relaxed) as usize)
    }

    /// Whether a block may have this number of pages.
    pub fn may_be(pages: Pages) -> bool {
        u32::try_from(pages.count()).is_ok()
    }

    /// A block of whole slots starts with this slot.
    pub fn set_pages(&self, slot: Slot, pages: Pages) {
        debug_assert!(Self::may_be(pages));
        self.words[slot.number() * WORDS].store(pages.count() as u32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::UNIT;
    use std::vec::Vec;

    #[test]
    fn runs_of_neighbouring_units_and_slots_are_told_apart() {
        let sizes = Sizes::new(3).unwrap();
        let slots = || (0..3).map(|slot| (slot, Slot::new(slot)));
        // From none to all of a slot.
        let pages = |slot, unit| Pages::new((unit + slot) * 167 % 513);
        let [zero, one, two] = [0, 1, 2].map(Slot::new);
        for (slot, at) in slots() {
            (0..UNITS).for_each(|unit| sizes.set_run(at, unit, pages(slot, unit)));
        }
        sizes.set_run(one, 5, Pages::NONE);
        for (slot, at) in slots() {
            for unit in 0..UNITS {
                let expected = if (slot, unit) == (1, 5) { Pages::NONE } else { pages(slot, unit) };
                assert_eq!(sizes.run_pages(at, unit), expected);
                assert_eq!(sizes.run(at, unit).unwrap_or(0), expected.bytes().div_ceil(UNIT));
            }
        }
        sizes.clear(zero);
        sizes.set_pages(two, Pages::new(513));
        assert_eq!(sizes.runs(zero).collect::<Vec<_>>().len(), 0);
        assert_eq!((sizes.run(one, 0), sizes.pages(two)), (Some(11), Pages::new(513)));
    }
}
