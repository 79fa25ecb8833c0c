//! The regions of a process, as they are listed behind its page.

use std::mem::{offset_of, size_of};

use faultless_base::PAGE;
use faultless_page::layout::Whole;
use faultless_page::listing::{DELIVERIES, ENDED, LIVE, Line, Listing, OWN, PLACES, Place, lines_for, own};
use faultless_page::stats::Counter;

use super::PageError;

/// What is kept by region, in the order of [`OWN`].
pub type Values = [u64; OWN.len()];

/// Nothing of it.
const NONE: Values = [0; OWN.len()];

/// One region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Which one of the process, from 1 on.
    pub number: u64,
    /// Its address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// How its faults are delivered.
    pub delivery: &'static str,
    /// Whether it is there no more.
    pub ended: bool,
    /// What is there of it; not known where the kernel brings it.
    pub present_bytes: Option<u64>,
    values: Values,
}

/// All of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Those that are told apart, in the order in which they were made.
    pub each: Vec<Region>,
    /// How many others there were.
    pub others: u64,
    rest: Values,
}

impl Default for Regions {
    fn default() -> Self {
        Self { each: Vec::new(), others: 0, rest: NONE }
    }
}

fn add(sum: &mut Values, more: &Values) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

fn less(from: &Values, before: &Values) -> Values {
    std::array::from_fn(|i| from[i].wrapping_sub(before[i]))
}

fn get(values: &Values, counter: Counter) -> u64 {
    own(counter).map_or(0, |at| values[at])
}

impl Region {
    /// One of its counters.
    pub fn get(&self, counter: Counter) -> u64 {
        get(&self.values, counter)
    }

    /// Whether it counted anything.
    pub fn has_counted(&self) -> bool {
        self.values.iter().any(|value| *value > 0)
    }
}

impl Regions {
    /// Reads what is behind a page; nothing if there is nothing. What all regions have counted together comes with it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Values), PageError> {
        let (mut regions, mut all) = (Self::default(), NONE);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let words = |at: usize| -> Values { std::array::from_fn(|i| word(at + 8 * i)) };
        let listing = offset_of!(Whole, listing);
        // A process that has none, or is about to make the first one.
        let lines = if bytes.len() < size_of::<Whole>() { 0 } else { word(listing + offset_of!(Listing, lines)) };
        let lines = match lines as usize {
            0 => return Ok((regions, all)),
            lines if lines != lines_for(lines) => return Err(PageError::Tables),
            lines => lines,
        };
        if bytes.len() < Whole::bytes(lines) {
            return Err(PageError::Truncated { bytes: bytes.len(), of: Whole::bytes(lines) });
        }
        for place in 0..=PLACES {
            let at = listing + offset_of!(Listing, places) + place * size_of::<Place>();
            let mut counted = NONE;
            for line in place * lines..(place + 1) * lines {
                add(&mut counted, &words(size_of::<Whole>() + line * size_of::<Line>()));
            }
            add(&mut all, &counted);
            let state = word(at + offset_of!(Place, state));
            if place == PLACES || !matches!(state, LIVE | ENDED) {
                add(&mut regions.rest, &counted);
                continue;
            }
            let before = words(at + offset_of!(Place, before));
            add(&mut regions.rest, &before);
            let values = less(&counted, &before);
            let field = |offset| word(at + offset);
            let delivery = DELIVERIES.get(field(offset_of!(Place, delivery)) as usize).copied().unwrap_or("?");
            let pages = get(&values, Counter::RegionPages).wrapping_sub(field(offset_of!(Place, dropped)));
            let present =
                if state == ENDED { 0 } else { ((pages as i64).max(0) as u64).saturating_mul(PAGE as u64) };
            regions.each.push(Region {
                number: field(offset_of!(Place, number)),
                start: field(offset_of!(Place, start)),
                bytes: field(offset_of!(Place, bytes)),
                delivery,
                ended: state == ENDED,
                present_bytes: (!matches!(delivery, "direct" | "kernel")).then_some(present),
                values,
            });
        }
        regions.each.sort_by_key(|region| region.number);
        regions.others = word(listing + offset_of!(Listing, made)).saturating_sub(regions.each.len() as u64);
        Ok((regions, all))
    }

    /// Whether there is none, and was none.
    pub fn is_empty(&self) -> bool {
        self.each.is_empty() && self.others == 0
    }

    /// Those that counted something.
    pub fn active(&self) -> Self {
        let each = self.each.iter().filter(|region| region.has_counted()).cloned().collect();
        let others = if self.rest.iter().any(|value| *value > 0) { self.others } else { 0 };
        Self { each, others, rest: self.rest }
    }

    /// One of the counters of all others.
    pub fn rest(&self, counter: Counter) -> u64 {
        get(&self.rest, counter)
    }

    /// The counts since `before`; numbers of pages are those of now.
    pub fn since(&self, before: &Self) -> Self {
        let old = |region: &Region| before.each.iter().find(|old| old.number == region.number);
        let each = self.each.iter().map(|region| {
            let values = old(region).map_or(region.values, |old| less(&region.values, &old.values));
            Region { values, ..region.clone() }
        });
        let mut each: Vec<_> = each.collect();
        // What one counted that is listed no more is among the others, and was told before.
        let mut rest = less(&self.rest, &before.rest);
        let is_gone = |old: &&Region| self.each.iter().all(|region| region.number != old.number);
        before.each.iter().filter(is_gone).for_each(|gone| rest = less(&rest, &gone.values));
        each.retain(|region| !region.ended || region.has_counted());
        Self { each, rest, others: self.others }
    }
}

/// Lists made up, for tests.
#[cfg(any(test, feature = "made"))]
pub mod made {
    use std::sync::atomic::Ordering;

    use faultless_base::Span;
    use faultless_page::listing::{self, Counted};

    use super::*;

    /// Lines of each place.
    pub const LINES: usize = 8;

    /// The list of a process.
    pub struct Made {
        listing: Box<Listing>,
        lines: Vec<Line>,
    }

    impl Default for Made {
        /// Without regions.
        fn default() -> Self {
            let lines = (0..LINES * (PLACES + 1)).map(|_| Line::new()).collect();
            Self { listing: Box::default(), lines }
        }
    }

    impl Made {
        /// Another region.
        pub fn take(&self, span: Span, delivery: u64) -> Counted<'_> {
            listing::Regions::new(&self.listing, &self.lines).take(span, delivery)
        }

        /// What is read of them.
        pub fn read(&self) -> Regions {
            Regions::parse(&self.bytes()).unwrap().0
        }

        /// The bytes of a page with this list behind it.
        pub fn bytes(&self) -> Vec<u8> {
            let mut bytes = vec![0u8; Whole::bytes(LINES)];
            let mut put = |at: usize, n: u64| bytes[at..at + 8].copy_from_slice(&n.to_ne_bytes());
            let first = offset_of!(Whole, listing);
            let listing = &self.listing;
            put(first + offset_of!(Listing, made), listing.made.load(Ordering::Relaxed));
            put(first + offset_of!(Listing, lines), listing.lines.load(Ordering::Relaxed));
            for (i, place) in listing.places.iter().enumerate() {
                let at = first + offset_of!(Listing, places) + i * size_of::<Place>();
                let fields = [
                    (offset_of!(Place, state), &place.state),
                    (offset_of!(Place, number), &place.number),
                    (offset_of!(Place, start), &place.start),
                    (offset_of!(Place, bytes), &place.bytes),
                    (offset_of!(Place, delivery), &place.delivery),
                    (offset_of!(Place, dropped), &place.dropped),
                ];
                fields.iter().for_each(|(offset, word)| put(at + offset, word.load(Ordering::Relaxed)));
                for (j, before) in place.before.iter().enumerate() {
                    put(at + offset_of!(Place, before) + 8 * j, before.load(Ordering::Relaxed));
                }
            }
            for (i, line) in self.lines.iter().enumerate() {
                let at = size_of::<Whole>() + i * size_of::<Line>();
                (0..OWN.len()).for_each(|j| put(at + 8 * j, line.get(j)));
            }
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made::{LINES, Made};
    use super::*;
    use faultless_base::Span;

    const HITS: Counter = Counter::RegionWindowHits;
    #[test]
    fn regions_are_read_and_compared_with_what_was_before() {
        let list = Made::default();
        let made: Vec<_> = (1..=PLACES + 1).map(|i| list.take(Span::new(i << 30, 4 << 20), 3)).collect();
        for (i, place) in made.iter().enumerate() {
            place.line(i).add(HITS, 1 + i as u64);
            place.line(i).add(Counter::RegionPages, 10);
        }
        made[1].drop_pages(4);
        let (first, all) = Regions::parse(&list.bytes()).unwrap();
        let sum = (PLACES as u64 + 1) * (PLACES as u64 + 2) / 2;
        assert_eq!((first.each.len(), first.others, first.rest(HITS)), (PLACES, 1, PLACES as u64 + 1));
        assert_eq!(get(&all, HITS), sum);
        let second = &first.each[1];
        assert_eq!((second.number, second.start, second.delivery, second.ended), (2, 2 << 30, "signal", false));
        assert_eq!((second.get(HITS), second.present_bytes), (2, Some(6 * 4096)));

        // The first one ends, another has its place; the second goes on.
        made[0].line(0).add(HITS, 7);
        made[0].end();
        list.take(Span::new(99 << 30, 4 << 20), 1).line(0).add(HITS, 5);
        made[1].line(0).add(HITS, 3);
        let (now, all) = Regions::parse(&list.bytes()).unwrap();
        assert_eq!(get(&all, HITS), sum + 15);
        let since = now.since(&first);
        let counted: Vec<_> =
            since.each.iter().filter(|r| r.has_counted()).map(|r| (r.number, r.get(HITS))).collect();
        assert_eq!(counted, [(2, 3), (PLACES as u64 + 2, 5)]);
        assert_eq!((since.rest(HITS), since.others), (7, 2), "what the first one counted since");
        assert_eq!(since.each.last().unwrap().present_bytes, None, "the kernel's");
    }

    #[test]
    fn a_list_is_read_with_as_many_lines_as_it_says() {
        let list = Made::default();
        (0..LINES).for_each(|i| list.take(Span::new(1 << 30, 4 << 20), 3).line(i).add(HITS, 1));
        let bytes = list.bytes();
        assert_eq!(get(&Regions::parse(&bytes).unwrap().1, HITS), LINES as u64);
        assert!(Regions::parse(&bytes[..8192]).unwrap().0.is_empty(), "there is none");
        let with_lines = |lines: usize| {
            let mut bytes = bytes.clone();
            let at = offset_of!(Whole, listing) + offset_of!(Listing, lines);
            bytes[at..at + 8].copy_from_slice(&(lines as u64).to_ne_bytes());
            Regions::parse(&bytes).map(|(regions, _)| regions.each.len())
        };
        assert!(matches!(with_lines(LINES), Ok(LINES)));
        assert!(matches!(with_lines(0), Ok(0)), "it is being made");
        let of = Whole::bytes(2 * LINES);
        assert!(matches!(with_lines(2 * LINES), Err(PageError::Truncated { of: n, .. }) if n == of));
        for lines in [1, LINES - 1, usize::MAX] {
            assert!(matches!(with_lines(lines), Err(PageError::Tables)), "{lines}");
        }
    }
}
