//! Parts of a region that the program has taken: it unmapped them or moved them away by calls of its own.
//!
//! A bit for each page, set once and for good. There is neither an allocation nor a lock here: the thread that reads
//! the messages about such calls must not wait for another one.

use crate::sync::Words;
use crate::sync::atomic::Ordering;
use crate::{PAGE, Span};

const BITS: usize = usize::BITS as usize;

/// The parts of a region that are no longer its own.
pub struct Lost {
    region: Span,
    bits: Words,
}

impl Lost {
    /// None of a region yet. `None` when there is no memory for the bits.
    pub fn new(region: Span) -> Option<Self> {
        Some(Self { region, bits: Words::new((region.bytes() / PAGE).div_ceil(BITS))? })
    }

    /// The words that a part of the region meets, with the bits of the part.
    fn words(&self, part: Span) -> impl Iterator<Item = (usize, usize)> + use<> {
        let part = Some(part.clip(self.region)).filter(|part| !part.is_empty());
        let part = part.unwrap_or(Span::new(self.region.start, 0));
        let first = (part.start - self.region.start) / PAGE;
        let end = first + part.bytes().div_ceil(PAGE);
        (first / BITS..end.div_ceil(BITS)).map(move |word| {
            let from = first.max(word * BITS) - word * BITS;
            let to = end.min((word + 1) * BITS) - word * BITS;
            (word, usize::MAX << from & usize::MAX >> (BITS - to))
        })
    }

    /// A part is gone.
    pub fn mark(&self, part: Span) {
        for (word, mask) in self.words(part) {
            self.bits[word].fetch_or(mask, Ordering::Release);
        }
    }

    /// Whether something of a part is gone.
    pub fn meets(&self, part: Span) -> bool {
        self.words(part).any(|(word, mask)| self.bits[word].load(Ordering::Acquire) & mask != 0)
    }

    /// The first run of pages of a part that are the region's own; empty if there is none.
    fn first_kept(&self, part: Span) -> Span {
        let is_lost = |page: &usize| self.meets(Span::new(*page, PAGE));
        // Mostly nothing is lost, and then whole words are passed at a time.
        let whole = |at: usize| Span::new(at, BITS * PAGE).clip(part);
        let mut start = part.start;
        while start < part.end && is_lost(&start) {
            start += PAGE;
        }
        let mut end = start;
        while end < part.end && !is_lost(&end) {
            end = if self.meets(whole(end)) { end + PAGE } else { whole(end).end };
        }
        Span { start, end }
    }

    /// The runs of a part that are the region's own.
    pub fn kept(&self, part: Span) -> impl Iterator<Item = Span> {
        let mut at = part.clip(self.region);
        core::iter::from_fn(move || {
            let run = self.first_kept(at);
            at.start = run.end;
            (!run.is_empty()).then_some(run)
        })
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const REGION: Span = Span { start: 7 * PAGE, end: 407 * PAGE };

    fn pages(first: usize, end: usize) -> Span {
        Span { start: REGION.start + first * PAGE, end: REGION.start + end * PAGE }
    }

    #[test]
    fn what_is_not_lost_is_kept() {
        let parts = [(0, 1), (63, 64), (63, 65), (64, 128), (5, 300), (399, 400), (0, 400), (10, 10)];
        for (first, end) in parts {
            let lost = Lost::new(REGION).unwrap();
            lost.mark(pages(first, end));
            for page in 0..400 {
                let expected = (first..end).contains(&page);
                assert_eq!(lost.meets(pages(page, page + 1)), expected, "page {page} of {first}..{end}");
            }
            let all = [(0, first), (end.max(first), 400)].map(|(first, end)| pages(first, end));
            let expected: Vec<_> = match first == end {
                true => [REGION].into(),
                false => all.into_iter().filter(|run| !run.is_empty()).collect(),
            };
            assert_eq!(lost.kept(REGION).collect::<Vec<_>>(), expected, "{first}..{end}");
        }
    }

    #[test]
    fn others_memory_is_no_region_s() {
        let lost = Lost::new(REGION).unwrap();
        lost.mark(Span { start: 0, end: REGION.start });
        lost.mark(Span { start: REGION.end, end: REGION.end + 9 * PAGE });
        lost.mark(Span::new(REGION.end + 1000 * PAGE, 9 * PAGE));
        assert!(!lost.meets(Span { start: 0, end: usize::MAX & !(PAGE - 1) }));
        lost.mark(Span { start: 0, end: REGION.start + PAGE });
        assert!(lost.meets(pages(0, 1)) && !lost.meets(pages(1, 400)));
    }
}
