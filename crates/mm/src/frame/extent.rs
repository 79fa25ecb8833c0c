//! A run of slots.

use faultless_base::{SLOT, Slot, Span};

/// A run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first slot.
    pub first: Slot,
    /// How many slots it has.
    pub n: usize,
}

impl Extent {
    /// No slot.
    pub const NONE: Self = Self { first: Slot::new(0), n: 0 };

    /// One slot.
    #[inline]
    pub const fn one(slot: Slot) -> Self {
        Self { first: slot, n: 1 }
    }

    /// The slots from `first` on that are before `end`.
    #[inline]
    pub fn between(first: Slot, end: Slot) -> Self {
        Self { first, n: end.number().saturating_sub(first.number()) }
    }

    /// The slots of the whole address space of which a part lies in a range of addresses.
    pub fn around(span: Span) -> Self {
        let n = if span.is_empty() { 0 } else { span.end.div_ceil(SLOT) - span.start / SLOT };
        Self { first: Slot::around(span.start), n }
    }

    /// The whole slots of the whole address space inside a range of addresses.
    pub fn inside(span: Span) -> Self {
        let inner = span.aligned_inside(SLOT);
        Self { first: Slot::around(inner.start), n: inner.bytes() / SLOT }
    }

    /// Whether it has no slot.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.n == 0
    }

    /// The slot behind it.
    #[inline]
    pub fn end(self) -> Slot {
        self.first + self.n
    }

    /// Its last slot; it must have one.
    #[inline]
    pub fn last(self) -> Slot {
        self.first + (self.n - 1)
    }

    /// Bytes of addresses.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.n * SLOT
    }

    /// Its addresses, if slot 0 begins at `base`.
    #[inline]
    pub const fn span(self, base: usize) -> Span {
        Span::new(self.first.addr(base), self.bytes())
    }

    /// Whether it has that slot.
    #[inline]
    pub fn has(self, slot: Slot) -> bool {
        slot >= self.first && slot < self.end()
    }

    /// The part that is before `end`.
    #[inline]
    pub fn before(self, end: Slot) -> Self {
        Self { n: self.n.min(Self::between(self.first, end).n), ..self }
    }

    /// Its first `n` slots; it must have as many.
    #[inline]
    pub fn front(self, n: usize) -> Self {
        debug_assert!(n <= self.n);
        Self { n, ..self }
    }

    /// All but its first `n` slots; it must have as many.
    #[inline]
    pub fn behind(self, n: usize) -> Self {
        Self { first: self.first + n, n: self.n - n }
    }

    /// Calls `f` for its neighbouring slots for which `key` gives the same answer, group by group.
    pub fn groups<K: PartialEq>(self, key: impl Fn(Slot) -> K, mut f: impl FnMut(Self, K)) {
        let (mut first, end) = (self.first, self.end());
        while first < end {
            let k = key(first);
            let n = Self { first, n: end - first }.slots().take_while(|&i| key(i) == k).count();
            f(Self { first, n }, k);
            first += n;
        }
    }

    /// Its slots, one by one.
    #[inline]
    pub fn slots(self) -> impl DoubleEndedIterator<Item = Slot> + Clone {
        (self.first.number()..self.end().number()).map(Slot::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::PAGE;
    use std::vec::Vec;

    #[test]
    fn parts_of_an_extent() {
        let e = Extent { first: Slot::new(3), n: 4 };
        let numbers = |e: Extent| e.slots().map(Slot::number).collect::<Vec<_>>();
        assert_eq!((numbers(e), e.end(), e.last()), ([3, 4, 5, 6].into(), Slot::new(7), Slot::new(6)));
        assert_eq!((numbers(e.front(1)), numbers(e.behind(1))), ([3].into(), [4, 5, 6].into()));
        assert_eq!((numbers(e.before(Slot::new(5))), e.before(Slot::new(1)).is_empty()), ([3, 4].into(), true));
        assert_eq!((e.has(Slot::new(2)), e.has(Slot::new(6)), e.has(Slot::new(7))), (false, true, false));
        assert_eq!(e.span(SLOT), Span::new(4 * SLOT, 4 * SLOT));
    }

    #[test]
    fn a_range_of_addresses_lies_in_slots_and_has_whole_ones() {
        let span = Span { start: SLOT - PAGE, end: 3 * SLOT + PAGE };
        assert_eq!(Extent::around(span), Extent { first: Slot::new(0), n: 4 });
        assert_eq!(Extent::inside(span), Extent { first: Slot::new(1), n: 2 });
        assert!(Extent::around(Span::new(SLOT, 0)).is_empty());
    }
}
