//! Where each page of a region is: a word for each.
//!
//! | state | the page is | who makes it so |
//! |---|---|---|
//! | home | in the region, or was never there | a fault, from aside; a drop; reclaim, of a page of zeroes |
//! | aside | in the memory aside, at the same place | reclaim, from home; a fault, from out |
//! | out | in the store, at the same offset | reclaim, from aside |
//!
//! A word changes with the lock of its entry, or while its area changes. Of a page that is out, the word has the
//! checksum, and when it went: a number of pages, of all that ever went, which begins anew after 2^30.

use faultless_base::sync::Words;
use faultless_base::sync::atomic::Ordering;
use faultless_base::{PAGE, Span};

const STATE: usize = 0b11;
const HOME: usize = 0;
const ASIDE: usize = 1;
const OUT: usize = 2;
const WHEN_SHIFT: u32 = 2;
const DIGEST_SHIFT: u32 = 32;
/// How far the count of pages that went is kept.
pub(super) const WHEN_MASK: usize = (1 << (DIGEST_SHIFT - WHEN_SHIFT)) - 1;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Home,
    Aside,
    Out { digest: u32, when: usize },
}

/// The same without what belongs to the page alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Home,
    Aside,
    Out,
}

impl Place {
    fn pack(self) -> usize {
        match self {
            Self::Home => HOME,
            Self::Aside => ASIDE,
            Self::Out { digest, when } => {
                OUT | (when & WHEN_MASK) << WHEN_SHIFT | (digest as usize) << DIGEST_SHIFT
            }
        }
    }

    fn unpack(word: usize) -> Self {
        match word & STATE {
            HOME => Self::Home,
            ASIDE => Self::Aside,
            _ => Self::Out { digest: (word >> DIGEST_SHIFT) as u32, when: word >> WHEN_SHIFT & WHEN_MASK },
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Home => Kind::Home,
            Self::Aside => Kind::Aside,
            Self::Out { .. } => Kind::Out,
        }
    }

    /// home → aside → out → aside → home; from anywhere home, when the page is dropped, or is zero.
    fn may_become(self, next: Self) -> bool {
        match next.kind() {
            Kind::Home => true,
            Kind::Aside => self != Self::Aside,
            Kind::Out => self.kind() != Kind::Home,
        }
    }
}

/// The words of a region.
pub(super) struct Table {
    words: Words,
    base: usize,
}

impl Table {
    pub(super) fn new(region: Span) -> Option<Self> {
        Some(Self { words: Words::new(region.bytes() / PAGE)?, base: region.start })
    }

    pub(super) fn get(&self, page: usize) -> Place {
        Place::unpack(self.words[(page - self.base) / PAGE].load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, page: usize, place: Place) {
        let word = &self.words[(page - self.base) / PAGE];
        debug_assert!(Place::unpack(word.load(Ordering::Relaxed)).may_become(place));
        word.store(place.pack(), Ordering::Relaxed);
    }

    /// Sets all pages of a span.
    pub(super) fn put(&self, span: Span, place: Place) {
        (span.start..span.end).step_by(PAGE).for_each(|page| self.set(page, place));
    }

    /// The run of pages of one kind that a span begins with.
    pub(super) fn run(&self, span: Span) -> (Kind, Span) {
        let kind = self.get(span.start).kind();
        let mut pages = (span.start..span.end).step_by(PAGE);
        let end = pages.find(|page| self.get(*page).kind() != kind).unwrap_or(span.end);
        (kind, Span { end, ..span })
    }

    /// The runs of pages of one kind in a span, in order, as they are when each is asked for.
    pub(super) fn runs(&self, span: Span) -> impl Iterator<Item = (Kind, Span)> {
        let mut at = span.start;
        core::iter::from_fn(move || {
            (at < span.end).then(|| {
                let (kind, run) = self.run(Span { start: at, ..span });
                at = run.end;
                (kind, run)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_all_that_a_page_out_has() {
        for place in [
            Place::Home,
            Place::Aside,
            Place::Out { digest: 0, when: 0 },
            Place::Out { digest: u32::MAX, when: WHEN_MASK },
            Place::Out { digest: 0xDEAD_BEEF, when: 12345 },
        ] {
            assert_eq!(Place::unpack(place.pack()), place);
        }
    }
}
