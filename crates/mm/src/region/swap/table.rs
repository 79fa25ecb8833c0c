//! Where each page of a region is: a word for each.
//!
//! | state | the page is | who makes it so |
//! |---|---|---|
//! | home | in the region, or was never there | a fault, from aside; a drop; reclaim, of a page of zeroes |
//! | home, clean | there, and in the store, unless it was written to since | a fault, from aside and clean, or from out |
//! | aside | in the memory aside, at the same place | reclaim, from home |
//! | aside, clean | there, and in the store | reclaim, from home and clean; a fault, from out |
//! | out | in the store, at the same offset | reclaim, from aside |
//!
//! A word changes with the lock of its entry, or while its area changes. Of a page that the store has, the word has the
//! checksum. Of one that is only there, it has also when it went: a number of pages, of all that ever went, which begins
//! anew after 2^29.

use faultless_base::sync::Words;
use faultless_base::sync::atomic::Ordering;
use faultless_base::{PAGE, Span};

const STATE: usize = 0b111;
const HOME: usize = 0;
const HOME_CLEAN: usize = 1;
const ASIDE: usize = 2;
const ASIDE_CLEAN: usize = 3;
const OUT: usize = 4;
const WHEN_SHIFT: u32 = 3;
const DIGEST_SHIFT: u32 = 32;
/// How far the count of pages that went is kept.
pub(super) const WHEN_MASK: usize = (1 << (DIGEST_SHIFT - WHEN_SHIFT)) - 1;

/// Where a page is. *Clean* is what the store has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Home,
    HomeClean { digest: u32 },
    Aside,
    AsideClean { digest: u32 },
    Out { digest: u32, when: usize },
}

/// The same without what belongs to the page alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Home,
    HomeClean,
    Aside,
    AsideClean,
    Out,
}

impl Kind {
    /// Whether it takes memory outside the region.
    pub(super) fn is_aside(self) -> bool {
        matches!(self, Self::Aside | Self::AsideClean)
    }

    /// Whether the store has it, or had it before it was written to.
    pub(super) fn is_stored(self) -> bool {
        matches!(self, Self::HomeClean | Self::AsideClean | Self::Out)
    }
}

impl Place {
    fn pack(self) -> usize {
        let with = |state: usize, digest: u32| state | (digest as usize) << DIGEST_SHIFT;
        match self {
            Self::Home => HOME,
            Self::HomeClean { digest } => with(HOME_CLEAN, digest),
            Self::Aside => ASIDE,
            Self::AsideClean { digest } => with(ASIDE_CLEAN, digest),
            Self::Out { digest, when } => with(OUT, digest) | (when & WHEN_MASK) << WHEN_SHIFT,
        }
    }

    fn unpack(word: usize) -> Self {
        let digest = (word >> DIGEST_SHIFT) as u32;
        match word & STATE {
            HOME => Self::Home,
            HOME_CLEAN => Self::HomeClean { digest },
            ASIDE => Self::Aside,
            ASIDE_CLEAN => Self::AsideClean { digest },
            _ => Self::Out { digest, when: word >> WHEN_SHIFT & WHEN_MASK },
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Home => Kind::Home,
            Self::HomeClean { .. } => Kind::HomeClean,
            Self::Aside => Kind::Aside,
            Self::AsideClean { .. } => Kind::AsideClean,
            Self::Out { .. } => Kind::Out,
        }
    }

    /// The checksum of what the store has of it.
    pub(super) fn digest(self) -> Option<u32> {
        match self {
            Self::HomeClean { digest } | Self::AsideClean { digest } | Self::Out { digest, .. } => Some(digest),
            Self::Home | Self::Aside => None,
        }
    }

    /// home → aside → out → aside → home; a page alone from out to home; from anywhere home, when the page is dropped, or is zero. What is clean comes
    /// from the store, and stays what it is there.
    fn may_become(self, next: Self) -> bool {
        let is_same = self.digest() == next.digest();
        match (self.kind(), next.kind()) {
            (_, Kind::Home) => true,
            (Kind::Home | Kind::HomeClean | Kind::AsideClean, Kind::Aside) => true,
            (Kind::HomeClean | Kind::Out, Kind::AsideClean) => is_same,
            (Kind::AsideClean | Kind::Out, Kind::HomeClean) | (Kind::AsideClean, Kind::Out) => is_same,
            (Kind::Aside, Kind::Out) => true,
            _ => false,
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

    /// How many pages of a span are aside.
    pub(super) fn aside(&self, span: Span) -> usize {
        self.runs(span).filter(|(kind, _)| kind.is_aside()).map(|(_, run)| run.bytes() / PAGE).sum()
    }

    /// The run of pages of one kind that a span begins with.
    pub(super) fn run(&self, span: Span) -> (Kind, Span) {
        let kind = self.get(span.start).kind();
        let mut pages = (span.start..span.end).step_by(PAGE);
        let end = pages.find(|page| self.get(*page).kind() != kind).unwrap_or(span.end);
        (kind, Span { end, ..span })
    }

    /// The first run of pages of a span that are aside, clean or not.
    pub(super) fn first_aside(&self, span: Span) -> Option<Span> {
        let mut asides = self.runs(span).skip_while(|(kind, _)| !kind.is_aside());
        let (_, first) = asides.next()?;
        let rest = asides.take_while(|(kind, _)| kind.is_aside()).last();
        Some(Span { start: first.start, end: rest.map_or(first.end, |(_, last)| last.end) })
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
            Place::HomeClean { digest: u32::MAX },
            Place::AsideClean { digest: 0xDEAD_BEEF },
            Place::Out { digest: 0, when: 0 },
            Place::Out { digest: u32::MAX, when: WHEN_MASK },
            Place::Out { digest: 0xDEAD_BEEF, when: 12345 },
        ] {
            assert_eq!(Place::unpack(place.pack()), place);
        }
    }
}
