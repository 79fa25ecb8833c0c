//! Sets of pages of one slot: a bit for each.

use core::ops::{BitAnd, BitOr, Range, Sub};

use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

const BITS: usize = usize::BITS as usize;
/// Words of a set.
pub const WORDS: usize = SLOT_PAGES / BITS;

/// Pages of one slot, by their numbers in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSet(pub [usize; WORDS]);

impl PageSet {
    /// Pages one after the other.
    pub fn of(pages: Range<usize>) -> Self {
        let bits = |word: usize| {
            let (first, end) = (word * BITS, (word + 1) * BITS);
            let (from, to) = (pages.start.clamp(first, end) - first, pages.end.clamp(first, end) - first);
            let below = |n: usize| if n == BITS { usize::MAX } else { (1 << n) - 1 };
            below(to) & !below(from.min(to))
        };
        Self(core::array::from_fn(bits))
    }

    /// Those of a span, all of it in one slot.
    pub fn of_span(span: Span) -> Self {
        let first = span.start % SLOT / PAGE;
        Self::of(first..first + span.bytes() / PAGE)
    }

    /// Whether a page is one of them.
    pub fn has(&self, page: usize) -> bool {
        self.0[page / BITS] & 1 << (page % BITS) != 0
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The first page from `from` on that is one of them, or is not; the end of the slot if there is none.
    fn next(&self, from: usize, has: bool) -> usize {
        let mut at = from;
        while at < SLOT_PAGES {
            let word = if has { self.0[at / BITS] } else { !self.0[at / BITS] } >> (at % BITS);
            if word != 0 {
                return at + word.trailing_zeros() as usize;
            }
            at = (at / BITS + 1) * BITS;
        }
        SLOT_PAGES
    }

    /// Runs of them, in order.
    pub fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let start = self.next(at, true);
            at = self.next(start, false);
            (start < SLOT_PAGES).then_some(start..at)
        })
    }
}

impl BitOr for PageSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl BitAnd for PageSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

/// Those that are not among the others.
impl Sub for PageSet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & !other.0[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn sets_are_as_lists_of_pages() {
        let bounds = [0, 1, 63, 64, 65, 127, 128, 300, 511, 512];
        for (i, start) in bounds.into_iter().enumerate() {
            for end in bounds[i..].iter().copied() {
                let set = PageSet::of(start..end);
                assert!(
                    (0..SLOT_PAGES).all(|page| set.has(page) == (start..end).contains(&page)),
                    "{start}..{end}"
                );
                assert_eq!((set.count(), set.is_empty()), (end - start, start == end));
                let other = PageSet::of(100..200);
                for (made, is) in [
                    (set | other, (|a, b| a || b) as fn(bool, bool) -> bool),
                    (set & other, |a, b| a && b),
                    (set - other, |a, b| a && !b),
                ] {
                    assert!((0..SLOT_PAGES).all(|page| made.has(page) == is(set.has(page), other.has(page))));
                    let of_runs: Vec<usize> = made.runs().flatten().collect();
                    assert!(of_runs.into_iter().eq((0..SLOT_PAGES).filter(|page| made.has(*page))));
                }
            }
        }
        assert_eq!(PageSet::of_span(Span::new(3 * SLOT + 5 * PAGE, 2 * PAGE)), PageSet::of(5..7));
    }
}
