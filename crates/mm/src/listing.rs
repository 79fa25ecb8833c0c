//! Regions as others see them: a table behind the page of a process that has any.
//!
//! A place of the table has what one region counts, in several lines, so that threads do not meet. When a region has ended its figures
//! stay until another one needs the place; the lines then go on, and what they were is noted. So all places together have what all
//! regions of the process have counted, at any time, and what a place has more than was noted is its region's own.
//!
//! | state | |
//! |---|---|
//! | 0 | nobody's yet |
//! | 1 | a region's |
//! | 2 | of a region that has ended |
//! | 3 | being given to another one |

use core::sync::atomic::{AtomicU64, Ordering};

use faultless_base::Span;

use crate::stats::{BLOCKS, Counter};

/// Regions that are told apart; the others share one more place.
pub const PLACES: usize = 64;
/// What is counted by region. They follow each other in the table of counters, and fill a line.
pub const OWN: [Counter; 8] = [
    Counter::RegionPgfault,
    Counter::RegionPages,
    Counter::RegionWindowHits,
    Counter::RegionWindowMisses,
    Counter::RegionPrefaulted,
    Counter::RegionUnused,
    Counter::RegionFaultNs,
    Counter::RegionGivenUp,
];

const _: () = {
    let mut i = 0;
    while i < OWN.len() {
        assert!(OWN[i] as usize == OWN[0] as usize + i, "they follow each other");
        i += 1;
    }
};

/// How faults are delivered, by the number of it.
pub const DELIVERIES: [&str; 4] = ["best", "direct", "thread", "signal"];

/// Nobody's.
pub const FREE: u64 = 0;
/// A region's.
pub const LIVE: u64 = 1;
/// Of a region that has ended.
pub const ENDED: u64 = 2;
const TAKEN: u64 = 3;

/// Where a counter is among [`OWN`].
pub const fn own(counter: Counter) -> Option<usize> {
    let (at, first) = (counter as usize, OWN[0] as usize);
    if at >= first && at < first + OWN.len() { Some(at - first) } else { None }
}

/// Counters of some threads.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line([AtomicU64; OWN.len()]);

/// What is known of one region, or in the last place of all those without one.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Place {
    /// See above.
    pub state: AtomicU64,
    /// Which region of the process it is, from 1 on.
    pub number: AtomicU64,
    /// Its address.
    pub start: AtomicU64,
    /// Its length.
    pub bytes: AtomicU64,
    /// How its faults are delivered, as a number.
    pub delivery: AtomicU64,
    /// How many of the pages that it was brought are gone again.
    pub dropped: AtomicU64,
    /// What the lines had counted before.
    pub before: [AtomicU64; OWN.len()],
    /// What is counted.
    pub lines: [Line; BLOCKS],
}

const fn zeroes<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

impl Place {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(FREE),
            number: AtomicU64::new(0),
            start: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            delivery: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            before: zeroes(),
            lines: [const { Line(zeroes()) }; BLOCKS],
        }
    }

    /// Counts, if it is counted by region; whether it is.
    pub fn count(&self, counter: Counter, n: u64, hint: usize) -> bool {
        let Some(at) = own(counter) else { return false };
        if !cfg!(feature = "no-counters") {
            self.lines[hint % BLOCKS].0[at].fetch_add(n, Ordering::Relaxed);
        }
        true
    }

    /// So many pages are gone; what comes without being counted is less than nothing.
    pub fn drop_pages(&self, pages: isize) {
        self.dropped.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// What was counted by all that had the place, by the number of the counter among [`OWN`].
    fn all(&self, at: usize) -> u64 {
        self.lines.iter().fold(0, |sum, line| sum.wrapping_add(line.0[at].load(Ordering::Relaxed)))
    }

    /// What the region has counted.
    pub fn counted(&self, counter: Counter) -> Option<u64> {
        let at = own(counter)?;
        Some(self.all(at).wrapping_sub(self.before[at].load(Ordering::Relaxed)))
    }

    /// The region has ended.
    pub fn end(&self) {
        // The place that several share has no state.
        let _ = self.state.compare_exchange(LIVE, ENDED, Ordering::Release, Ordering::Relaxed);
    }

    fn take(&self, from: u64) -> bool {
        self.state.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// The table; whole pages of the kernel's, so that it can be mapped behind a [`Page`](crate::page::Page).
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Listing {
    /// Regions that were made so far.
    pub made: AtomicU64,
    /// One for each, and the last for all the others.
    pub places: [Place; PLACES + 1],
}

impl Listing {
    /// Without regions.
    pub const fn new() -> Self {
        Self { made: AtomicU64::new(0), places: [const { Place::new() }; PLACES + 1] }
    }

    /// A place for a new region: one that nobody has had, that of the one that was made first among those that have ended, or
    /// the one that is shared.
    pub fn take(&self, span: Span, delivery: u64) -> &Place {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let (shared, own) = self.places.split_last().expect("there is one more");
        let Some(place) = own.iter().find(|place| place.take(FREE)).or_else(|| Self::take_oldest(own)) else {
            return shared;
        };
        (0..OWN.len()).for_each(|at| place.before[at].store(place.all(at), Ordering::Relaxed));
        place.dropped.store(0, Ordering::Relaxed);
        place.number.store(number, Ordering::Relaxed);
        place.start.store(span.start as u64, Ordering::Relaxed);
        place.bytes.store(span.bytes() as u64, Ordering::Relaxed);
        place.delivery.store(delivery, Ordering::Relaxed);
        place.state.store(LIVE, Ordering::Release);
        place
    }

    /// The place that several share.
    pub fn shared(&self) -> &Place {
        &self.places[PLACES]
    }

    fn take_oldest(places: &[Place]) -> Option<&Place> {
        loop {
            let ended = places.iter().filter(|place| place.state.load(Ordering::Relaxed) == ENDED);
            let oldest = ended.min_by_key(|place| place.number.load(Ordering::Relaxed))?;
            // Another thread may have been faster.
            if oldest.take(ENDED) {
                return Some(oldest);
            }
        }
    }

    /// The regions of the program that had this process before are not there any more.
    pub fn end_all(&self) {
        self.places.iter().for_each(Place::end);
    }

    /// What all regions have counted.
    pub fn sum(&self, counter: Counter) -> u64 {
        own(counter).map_or(0, |at| self.places.iter().map(|place| place.all(at)).sum())
    }
}

impl Default for Listing {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const HITS: Counter = Counter::RegionWindowHits;

    #[test]
    fn places_are_used_again_and_nothing_that_was_counted_is_lost() {
        let listing = Listing::new();
        let span = |i: usize| Span::new(i << 30, 1 << 20);
        let all: Vec<_> = (0..PLACES).map(|i| listing.take(span(i + 1), 2)).collect();
        for (i, place) in all.iter().enumerate() {
            assert!(place.count(HITS, i as u64 + 1, i) && !place.count(Counter::Forks, 1, i));
            assert_eq!((place.counted(HITS), place.counted(Counter::Forks)), (Some(i as u64 + 1), None));
        }
        let shared = listing.take(span(100), 2);
        assert!(core::ptr::eq(shared, &listing.places[PLACES]));
        shared.count(HITS, 1000, 0);
        shared.end();
        let sum = (1..=PLACES as u64).sum::<u64>() + 1000;
        assert_eq!(listing.sum(HITS), sum);
        [20, 7].iter().for_each(|i: &usize| all[*i].end());
        let again = listing.take(span(200), 3);
        assert!(core::ptr::eq(again, all[7]), "the one that was made first");
        assert_eq!((again.counted(HITS), listing.sum(HITS)), (Some(0), sum));
        assert_eq!(again.number.load(Ordering::Relaxed), PLACES as u64 + 2);
        again.count(HITS, 5, 3);
        assert_eq!((again.counted(HITS), listing.sum(HITS)), (Some(5), sum + 5));
        listing.end_all();
        assert!(core::ptr::eq(listing.take(span(300), 1), all[0]));
    }
}
