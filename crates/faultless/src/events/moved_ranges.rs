//! Which bytes belong at addresses that are no area's: of a forked child, or of memory that was moved away without
//! the region's knowledge.
//!
//! The table lies in pages of its own. The reader of messages must not allocate, because forking threads hold the
//! allocator's locks meanwhile. A range for which there is no memory is not known, and an access to it fails.

use std::sync::atomic::Ordering;

use faultless_base::Span;
use faultless_base::sync::Words;

const WORDS: usize = 3;

/// Ranges of addresses, each with the offset in the backing that belongs at its start. Of two that overlap the newer
/// one holds.
pub struct Pieces {
    words: Words,
    len: usize,
}

impl Pieces {
    /// Room for `places` of them, and more when they are needed.
    pub fn new(places: usize) -> Option<Self> {
        Some(Self { words: Words::new(places * WORDS)?, len: 0 })
    }

    /// The same, elsewhere.
    pub fn copy(&self) -> Option<Self> {
        let mut copy = Self::new(self.words.len() / WORDS)?;
        (0..self.len).for_each(|i| copy.push(self.get(i).0, self.get(i).1));
        Some(copy)
    }

    fn get(&self, i: usize) -> (Span, usize) {
        let word = |word: usize| self.words[i * WORDS + word].load(Ordering::Relaxed);
        (Span { start: word(0), end: word(1) }, word(2))
    }

    fn set(&self, i: usize, span: Span, offset: usize) {
        for (word, value) in [span.start, span.end, offset].into_iter().enumerate() {
            self.words[i * WORDS + word].store(value, Ordering::Relaxed);
        }
    }

    /// Whether there is room for one more.
    fn has_room(&mut self) -> bool {
        let is_full = (self.len + 1) * WORDS > self.words.len();
        if is_full && let Some(words) = Words::new(2 * self.words.len()) {
            for (new, old) in words.iter().zip(self.words.iter()) {
                new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.words = words;
            return true;
        }
        !is_full
    }

    /// Adds one, if there is memory for it.
    pub fn push(&mut self, span: Span, offset: usize) {
        self.insert(self.len, span, offset);
    }

    /// Adds one that is older than those from `i` on.
    fn insert(&mut self, i: usize, span: Span, offset: usize) {
        if !span.is_empty() && self.has_room() {
            (i..self.len).rev().for_each(|i| self.set(i + 1, self.get(i).0, self.get(i).1));
            self.set(i, span, offset);
            self.len += 1;
        }
    }

    /// Nothing belongs anywhere any more.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.len
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (Span, usize)> {
        (0..self.len).map(|i| self.get(i))
    }

    /// The one around `addr`, with what belongs at its start.
    pub fn find(&self, addr: usize) -> Option<(Span, usize)> {
        self.all().rev().find(|(span, _)| span.contains(addr))
    }

    /// Nothing of this belongs at `gone` any more.
    pub fn remove(&mut self, gone: Span) {
        let mut i = 0;
        while i < self.len {
            let (span, offset) = self.get(i);
            if span.clip(gone).is_empty() {
                i += 1;
                continue;
            }
            let before = Span { end: gone.start.max(span.start), ..span };
            let after = Span { start: gone.end.min(span.end), ..span };
            // In order, because the newer one holds: what is behind the gap takes its own place where there is none
            // before it.
            if before.is_empty() {
                self.set(i, after, offset + (after.start - span.start));
                if after.is_empty() {
                    (i + 1..self.len).for_each(|i| self.set(i - 1, self.get(i).0, self.get(i).1));
                    self.len -= 1;
                    continue;
                }
            } else {
                self.set(i, before, offset);
                self.insert(i + 1, after, offset + (after.start - span.start));
            }
            i += 1;
        }
    }

    /// The bytes of `from` belong at `to` as well, by the `oldest` first of the ranges.
    pub fn moved(&mut self, from: Span, to: usize, oldest: usize) {
        for i in 0..oldest {
            let (span, offset) = self.get(i);
            let part = span.clip(from);
            self.push(Span::new(to + (part.start - from.start), part.bytes()), offset + (part.start - span.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pieces: &Pieces, addr: usize) -> Option<usize> {
        pieces.find(addr).map(|(span, offset)| offset + (addr - span.start))
    }

    fn table(places: usize) -> Pieces {
        let mut pieces = Pieces::new(places).unwrap();
        pieces.push(Span::new(100, 50), 1000);
        pieces
    }

    #[test]
    fn what_is_cut_out_belongs_nowhere() {
        for (gone, left) in [((110, 20), 30), ((90, 30), 30), ((140, 90), 40), ((0, 500), 0), ((10, 20), 50)] {
            let mut pieces = table(3);
            pieces.push(Span::new(300, 10), 7);
            let gone = Span::new(gone.0, gone.1);
            pieces.remove(gone);
            for addr in 0..400 {
                let all = table(1);
                let expected = if (300..310).contains(&addr) { Some(addr - 293) } else { at(&all, addr) };
                assert_eq!(
                    at(&pieces, addr),
                    expected.filter(|_| !gone.contains(addr)),
                    "{addr} without {gone:?}"
                );
            }
            assert_eq!((100..150).filter(|addr| at(&pieces, *addr).is_some()).count(), left);
        }
    }

    #[test]
    fn what_is_moved_is_found_there_and_in_copies() {
        let mut pieces = table(4);
        pieces.moved(Span::new(120, 100), 120, 1);
        pieces.moved(Span::new(120, 10), 500, 1);
        let copy = pieces.copy().unwrap();
        pieces.remove(Span::new(0, 1000));
        assert_eq!((at(&copy, 500), at(&copy, 509), at(&copy, 510)), (Some(1020), Some(1029), None));
        assert_eq!(pieces.all().count(), 0);
    }

    #[test]
    fn the_newer_one_holds() {
        let mut pieces = table(2);
        pieces.push(Span::new(120, 10), 5);
        assert_eq!((at(&pieces, 119), at(&pieces, 120), at(&pieces, 130)), (Some(1019), Some(5), Some(1030)));
    }

    #[test]
    fn the_newer_one_holds_also_when_the_older_one_is_cut() {
        let mut pieces = table(3);
        pieces.push(Span::new(130, 10), 5);
        pieces.remove(Span::new(110, 10));
        assert_eq!((at(&pieces, 109), at(&pieces, 110), at(&pieces, 120)), (Some(1009), None, Some(1020)));
        assert_eq!((at(&pieces, 130), at(&pieces, 139), at(&pieces, 140)), (Some(5), Some(14), Some(1040)));
    }

    #[test]
    fn there_is_room_for_all() {
        let mut pieces = table(1);
        (0..1000).for_each(|i| pieces.push(Span::new(200 + 20 * i, 10), i));
        pieces.remove(Span::new(110, 10));
        assert_eq!((at(&pieces, 109), at(&pieces, 115), at(&pieces, 120)), (Some(1009), None, Some(1020)));
        assert!((0..1000).all(|i| at(&pieces, 205 + 20 * i) == Some(i + 5)));
    }
}
