//! Regions as others see them: a table behind the page of a process that has any.
//!
//! A place of the table describes one region. Behind all places come lines of counters, for each place as many as the
//! machine has processors, so that these do not meet. When a region has ended its figures stay until another one
//! needs the place; the lines then go on, and what they were is noted. So all places together have what all regions
//! of the process have counted, at any time, and what a place has more than was noted is its region's own.
//!
//! | state | |
//! |---|---|
//! | 0 | no region's yet |
//! | 1 | a region's |
//! | 2 | of a region that has ended |
//! | 3 | being given to another one |

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

use faultless_base::Span;

use crate::stats::Counter;

/// Regions that are told apart; the others share one more place.
pub const PLACES: usize = 64;
/// Counters that are kept by region: these two, and all that stand between them in the table of counters.
pub const OWN: &[Counter] = {
    let (to_last, _) = Counter::ALL.split_at(Counter::SwapCorrupt as usize + 1);
    to_last.split_at(Counter::RegionPgfault as usize).1
};

/// How faults are delivered, by the number of it.
pub const DELIVERIES: [&str; 5] = ["best", "direct", "thread", "signal", "kernel"];

/// Of no region.
pub const FREE: u64 = 0;
/// Of a region that lives.
pub const LIVE: u64 = 1;
/// Of a region that has ended.
pub const ENDED: u64 = 2;
const TAKEN: u64 = 3;

/// Where a counter is among [`OWN`].
pub const fn own(counter: Counter) -> Option<usize> {
    let (at, first) = (counter as usize, OWN[0] as usize);
    if at >= first && at < first + OWN.len() { Some(at - first) } else { None }
}

/// Lines of a place at least, and at most.
const LEAST: usize = 8;
/// See there.
pub const MOST: usize = 256;

/// Lines of a place on a machine of `processors` processors: a power of two, so that a fault finds its line without a
/// division.
pub const fn lines_for(processors: usize) -> usize {
    match processors {
        ..=LEAST => LEAST,
        MOST.. => MOST,
        some => some.next_power_of_two(),
    }
}

const fn zeroes<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

/// Counters of a processor. With each line of 64 bytes one fetches its neighbour too, so they are apart by two.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Line([AtomicU64; OWN.len()]);

impl Line {
    /// Nothing.
    pub const fn new() -> Self {
        Self(zeroes())
    }

    /// Adds `n` to a counter, which must be among [`OWN`].
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        if !cfg!(feature = "no-counters") {
            self.0[(counter as usize).wrapping_sub(OWN[0] as usize)].fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Its value of a counter, whose place among [`OWN`] is `at`.
    pub fn get(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// The description of one region; the last place stands for all regions without a place.
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
    /// The counts of the lines before this region.
    pub before: [AtomicU64; OWN.len()],
}

impl Place {
    /// Of no region.
    pub const fn new() -> Self {
        Self {
            state: AtomicU64::new(FREE),
            number: AtomicU64::new(0),
            start: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            delivery: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            before: zeroes(),
        }
    }

    /// This many pages are gone. The number is below zero for pages that came without being counted.
    pub fn drop_pages(&self, pages: isize) {
        self.dropped.fetch_add(pages as u64, Ordering::Relaxed);
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

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// The table, as it lies behind a [`Page`](crate::layout::Page).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Listing {
    /// Regions that were made so far.
    pub made: AtomicU64,
    /// Lines of each place, or 0 where there are none yet.
    pub lines: AtomicU64,
    /// One for each, and the last for all the others.
    pub places: [Place; PLACES + 1],
}

impl Listing {
    /// Without regions.
    pub const fn new() -> Self {
        Self { made: AtomicU64::new(0), lines: AtomicU64::new(0), places: [const { Place::new() }; PLACES + 1] }
    }
}

impl Default for Listing {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a region counts: its place, and the lines of the place.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    place: &'a Place,
    lines: &'a [Line],
}

impl<'a> Counted<'a> {
    /// A place and its lines, as many as a power of two.
    pub fn new(place: &'a Place, lines: &'a [Line]) -> Self {
        assert!(lines.len().is_power_of_two());
        Self { place, lines }
    }

    /// How many lines there are.
    pub fn lines(self) -> usize {
        self.lines.len()
    }

    /// Where is counted what a processor counts: those of numbers one after the other do not meet.
    #[inline]
    pub fn line(self, cpu: usize) -> &'a Line {
        &self.lines[cpu & (self.lines.len() - 1)]
    }

    /// The count of all regions that had the place, by the number of the counter among [`OWN`].
    fn all(self, at: usize) -> u64 {
        self.lines.iter().fold(0, |sum, line| sum.wrapping_add(line.get(at)))
    }

    /// The region's own count.
    pub fn get(self, counter: Counter) -> Option<u64> {
        let at = own(counter)?;
        Some(self.all(at).wrapping_sub(self.place.before[at].load(Ordering::Relaxed)))
    }
}

impl Deref for Counted<'_> {
    type Target = Place;
    fn deref(&self) -> &Place {
        self.place
    }
}

/// The table and the lines of all its places.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'a> {
    listing: &'a Listing,
    lines: &'a [Line],
}

impl<'a> Regions<'a> {
    /// A table, and as many lines for each of its places as it says from now on.
    pub fn new(listing: &'a Listing, lines: &'a [Line]) -> Self {
        listing.lines.store((lines.len() / (PLACES + 1)) as u64, Ordering::Release);
        Self { listing, lines }
    }

    fn at(self, i: usize) -> Counted<'a> {
        let each = self.lines.len() / (PLACES + 1);
        Counted::new(&self.listing.places[i], &self.lines[i * each..][..each])
    }

    /// A place for a new region: one that was never used, or the oldest of those whose regions have ended, or the
    /// shared one.
    pub fn take(self, span: Span, delivery: u64) -> Counted<'a> {
        let number = self.listing.made.fetch_add(1, Ordering::Relaxed) + 1;
        let free = || (0..PLACES).find(|i| self.listing.places[*i].take(FREE));
        let Some(i) = free().or_else(|| self.take_oldest()) else { return self.shared() };
        let place = self.at(i);
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
    pub fn shared(self) -> Counted<'a> {
        self.at(PLACES)
    }

    fn take_oldest(self) -> Option<usize> {
        let place = |i: usize| &self.listing.places[i];
        loop {
            let ended = (0..PLACES).filter(|i| place(*i).state.load(Ordering::Relaxed) == ENDED);
            let oldest = ended.min_by_key(|i| place(*i).number.load(Ordering::Relaxed))?;
            // Another thread may have been faster.
            if place(oldest).take(ENDED) {
                return Some(oldest);
            }
        }
    }

    /// The regions of the program that had this process before are not there any more.
    pub fn end_all(self) {
        self.listing.places.iter().for_each(Place::end);
    }

    /// The count of all regions.
    pub fn sum(self, counter: Counter) -> u64 {
        let add = |sum: u64, i| own(counter).map_or(0, |at| sum.wrapping_add(self.at(i).all(at)));
        (0..=PLACES).fold(0, add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::cases;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HITS: Counter = Counter::RegionWindowHits;

    #[test]
    fn places_are_used_again_and_nothing_that_was_counted_is_lost() {
        let (listing, lines) = (Listing::new(), Vec::from_iter((0..4 * (PLACES + 1)).map(|_| Line::new())));
        let regions = Regions::new(&listing, &lines);
        let span = |i: usize| Span::new(i << 30, 1 << 20);
        let all: Vec<_> = (0..PLACES).map(|i| regions.take(span(i + 1), 2)).collect();
        for (i, place) in all.iter().enumerate() {
            place.line(i).add(HITS, i as u64 + 1);
            assert_eq!((place.get(HITS), place.get(Counter::Forks)), (Some(i as u64 + 1), None));
        }
        let is = |one: Counted<'_>, place: &Place| core::ptr::eq(&*one, place);
        let shared = regions.take(span(100), 2);
        assert!(is(shared, &listing.places[PLACES]));
        shared.line(0).add(HITS, 1000);
        shared.end();
        let sum = (1..=PLACES as u64).sum::<u64>() + 1000;
        assert_eq!(regions.sum(HITS), sum);
        [20, 7].iter().for_each(|i: &usize| all[*i].end());
        let again = regions.take(span(200), 3);
        assert!(is(again, &all[7]), "the one that was made first");
        assert_eq!((again.get(HITS), regions.sum(HITS)), (Some(0), sum));
        assert_eq!(again.number.load(Ordering::Relaxed), PLACES as u64 + 2);
        again.line(3).add(HITS, 5);
        assert_eq!((again.get(HITS), regions.sum(HITS)), (Some(5), sum + 5));
        regions.end_all();
        assert!(is(regions.take(span(300), 1), &all[0]));
    }

    #[test]
    fn each_processor_has_a_line_of_its_own_while_there_are_enough() {
        assert_eq!([1, 2, 8, 9, 64, 200, 256, 5000].map(lines_for), [8, 8, 8, 16, 64, 256, 256, 256]);
        let (place, lines) = (Place::new(), Vec::from_iter((0..64).map(|_| Line::new())));
        let counted = Counted::new(&place, &lines);
        (1000..1064).for_each(|cpu| counted.line(cpu).add(HITS, 1));
        assert!(lines.iter().all(|line| line.get(own(HITS).unwrap()) == 1));
        assert_eq!(counted.get(HITS), Some(64));
    }

    proptest! {
        #![proptest_config(cases())]

        /// A table that stands in a file may hold anything. Regions still get places, and lines of their own place.
        #[test]
        fn any_table_gives_places(
            words in prop::collection::vec((0usize..8, 0usize..=PLACES, prop_oneof![0u64..5, any::<u64>()]), 0..300),
            counts in prop::collection::vec((0usize..8 * (PLACES + 1), 0usize..OWN.len(), any::<u64>()), 0..40),
        ) {
            let (listing, lines) = (Listing::new(), Vec::from_iter((0..8 * (PLACES + 1)).map(|_| Line::new())));
            for (field, place, value) in words {
                let at = &listing.places[place];
                let words = [&at.state, &at.number, &at.start, &at.bytes, &at.delivery, &at.dropped, &at.before[0]];
                words.get(field).unwrap_or(&&listing.made).store(value, Ordering::Relaxed);
            }
            counts.iter().for_each(|(line, at, n)| lines[*line].add(OWN[*at], *n));
            let regions = Regions::new(&listing, &lines);
            let sum = regions.sum(HITS);
            for i in 0..PLACES + 3 {
                let place = regions.take(Span::new(i << 30, 1 << 20), 1);
                let is_shared = core::ptr::eq(&*place, &listing.places[PLACES]);
                prop_assert!(is_shared || place.get(HITS) == Some(0));
                place.line(i).add(HITS, 1);
                place.drop_pages(-1);
            }
            regions.end_all();
            prop_assert_eq!(regions.sum(HITS), sum.wrapping_add(PLACES as u64 + 3));
        }
    }
}
