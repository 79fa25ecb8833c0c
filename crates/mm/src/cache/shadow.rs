//! Pages that went to make room: which, and when. So it is known how much more memory would have kept one that comes
//! back.
//!
//! The clock is what has gone so far from the caches of all files of the process. Each page has a bit. The 64 pages of
//! a word share a time, the last at which one of them went. So a distance is never too large. What goes by advice, or
//! with a part of the file, leaves nothing here.
//!
//! The slot's lock protects both.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sync::Words;
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT_PAGES};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Change, Entry, Part};
use crate::predict::average::Average;

const BITS: usize = usize::BITS as usize;
/// Words of the pages of one slot.
const WORDS: usize = SLOT_PAGES / BITS;

/// What has gone of a file.
pub(super) struct Shadows {
    pages: Words,
    times: Words,
    /// Pages that had gone meanwhile when others came back.
    distance: Average,
}

/// Pages that came back, and the sum of their distances, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refaults {
    pages: usize,
    distances: usize,
}

impl Shadows {
    /// Of a file with that many slots, nothing of which has gone.
    pub(super) fn new(slots: usize) -> Result<Self, Errno> {
        let words = || Words::new(slots * WORDS).ok_or(Errno::ENOMEM);
        Ok(Self { pages: words()?, times: words()?, distance: Average::new() })
    }

    /// The words of a part, each with the bits of its pages.
    fn words(slot: usize, part: Part) -> impl Iterator<Item = (usize, usize)> {
        part.masks().map(move |(word, mask)| (slot * WORDS + word, mask))
    }

    fn go(&self, slot: usize, part: Part, now: usize) {
        for (word, mask) in Self::words(slot, part) {
            self.pages[word].fetch_or(mask, Relaxed);
            self.times[word].store(now, Relaxed);
        }
    }

    fn come(&self, slot: usize, part: Part, now: usize) -> Refaults {
        let mut back = Refaults::default();
        for (word, pages) in self.forget(slot, part) {
            back.pages += pages;
            back.distances += pages * now.saturating_sub(self.times[word].load(Relaxed));
        }
        back
    }

    /// The words of a part of which pages had gone, and how many: they are as if they had not.
    fn forget(&self, slot: usize, part: Part) -> impl Iterator<Item = (usize, usize)> {
        Self::words(slot, part).filter_map(|(word, mask)| {
            // Most pages that come have never gone: their words stay as they are.
            let gone = self.pages[word].load(Relaxed) & mask;
            (gone != 0).then(|| {
                self.pages[word].fetch_and(!gone, Relaxed);
                (word, gone.count_ones() as usize)
            })
        })
    }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// How many pages have gone from all files to make room.
    fn gone_so_far(&self) -> usize {
        self.counters.get(Counter::FileGone as usize) as usize / PAGE
    }

    /// The present pages of a slot are about to go to make room.
    pub(super) fn note_gone(&self, slot: usize) {
        let pages = self.index.count(Entry::Present, slot);
        self.counters.add(Counter::FileGone, (pages * PAGE) as u64);
        let now = self.gone_so_far();
        let mut rest = Part { first: 0, count: SLOT_PAGES };
        while let run = self.index.run(Entry::Present, slot, rest, true)
            && run != Part::NONE
        {
            self.shadows.go(slot, run, now);
            rest = rest.from(run.first + run.count);
        }
    }

    /// Pages of a slot are there now, with their bytes.
    pub(super) fn add(&self, change: &Change<'_>, slot: usize, part: Part) {
        let back = self.shadows.come(slot, part, self.gone_so_far());
        if back.pages > 0 {
            self.counters.add(Counter::FileRefaults, back.pages as u64);
            self.counters.add(Counter::FileRefaultDistance, (back.distances * PAGE) as u64);
            self.shadows.distance.note(back.distances / back.pages);
        }
        change.add(part);
    }

    /// Pages of a slot are not the file's any more: others may come in their place.
    pub(super) fn forget_gone(&self, slot: usize, part: Part) {
        self.shadows.forget(slot, part).for_each(drop);
    }

    /// Bytes of memory in which the file would find what is used of it: an estimate. That is what it has, and what had
    /// gone meanwhile when pages came back lately.
    pub fn working_set(&self) -> usize {
        let distance = self.shadows.distance.get() * PAGE;
        (self.present() + distance).min(self.length().next_multiple_of(PAGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const SLOTS: usize = 3;

    /// A page of the oracle: when it went.
    #[derive(Clone, Copy, PartialEq)]
    enum Page {
        Never,
        Gone(usize),
    }

    fn part() -> impl Strategy<Value = (usize, Part)> {
        let count = prop_oneof![1..5usize, 1..SLOT_PAGES];
        (0..SLOTS, 0..SLOT_PAGES, count)
            .prop_map(|(slot, first, count)| (slot, Part { first, count: count.min(SLOT_PAGES - first) }))
    }

    proptest! {
        /// Beside an oracle that knows of each page when it went: each counts once, and its distance is what went since
        /// the last page of its 64 did.
        #[test]
        fn what_comes_back_counts_once_and_from_when_it_went(
            ops in prop::collection::vec((0..3u8, part(), 0..100usize), 1..80)
        ) {
            let shadows = Shadows::new(SLOTS).unwrap();
            let mut pages = vec![Page::Never; SLOTS * SLOT_PAGES];
            let mut now = 0;
            for (op, (slot, part), passed) in ops {
                now += passed;
                let range = slot * SLOT_PAGES + part.first..slot * SLOT_PAGES + part.first + part.count;
                if op == 0 {
                    shadows.go(slot, part, now);
                    let around = range.start / BITS * BITS..range.end.next_multiple_of(BITS);
                    pages[around].iter_mut().filter(|page| **page != Page::Never).for_each(|page| *page = Page::Gone(now));
                    pages[range].fill(Page::Gone(now));
                    continue;
                }
                let distances: Vec<usize> = pages[range.clone()]
                    .iter()
                    .filter_map(|page| if let Page::Gone(when) = page { Some(now - when) } else { None })
                    .collect();
                let expected = Refaults { pages: distances.len(), distances: distances.iter().sum() };
                prop_assert_eq!(shadows.come(slot, part, now), expected);
                prop_assert_eq!(shadows.come(slot, part, now), Refaults::default(), "twice");
                pages[range].fill(Page::Never);
            }
        }
    }
}
