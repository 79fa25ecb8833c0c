//! Sizes and ranges of memory.
//!
//! An address and a number of bytes are plain `usize`, and so is how many slots or units there are. What is easily
//! taken for one of these has a type: the number of a slot ([`Slot`]), and a number of pages ([`Pages`]).

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes of a page, the kernel's smallest unit.
pub const PAGE: usize = 4096;
/// Bytes of a run's unit: the smallest piece that is carved out of a slot.
pub const UNIT: usize = 64 << 10;
/// Bytes of a slot: an aligned huge page's worth of address space.
pub const SLOT: usize = 2 << 20;
/// Pages of a slot.
pub const SLOT_PAGES: usize = SLOT / PAGE;

/// Which slot: of an arena, or of the whole address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(usize);

impl Slot {
    /// The one after `number` others.
    #[inline]
    pub const fn new(number: usize) -> Self {
        Self(number)
    }

    /// The slot of the whole address space in which `addr` lies.
    #[inline]
    pub const fn around(addr: usize) -> Self {
        Self(addr / SLOT)
    }

    /// How many are before it.
    #[inline]
    pub const fn number(self) -> usize {
        self.0
    }

    /// It, or the next one whose number is a multiple of `align`.
    #[inline]
    pub const fn next_multiple_of(self, align: usize) -> Self {
        Self(self.0.next_multiple_of(align))
    }

    /// Where it begins, if slot 0 begins at `base`.
    #[inline]
    pub const fn addr(self, base: usize) -> usize {
        base + self.0 * SLOT
    }

    /// Its addresses, if slot 0 begins at `base`.
    #[inline]
    pub const fn span(self, base: usize) -> Span {
        Span::new(self.addr(base), SLOT)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slot that is this many slots on.
impl Add<usize> for Slot {
    type Output = Self;
    #[inline]
    fn add(self, slots: usize) -> Self {
        Self(self.0 + slots)
    }
}

impl AddAssign<usize> for Slot {
    #[inline]
    fn add_assign(&mut self, slots: usize) {
        self.0 += slots;
    }
}

/// The slot that is this many slots before.
impl Sub<usize> for Slot {
    type Output = Self;
    #[inline]
    fn sub(self, slots: usize) -> Self {
        Self(self.0 - slots)
    }
}

/// How many slots lie between.
impl Sub for Slot {
    type Output = usize;
    #[inline]
    fn sub(self, before: Self) -> usize {
        self.0 - before.0
    }
}

/// How many pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pages(usize);

impl Pages {
    /// None.
    pub const NONE: Self = Self(0);

    /// That many.
    #[inline]
    pub const fn new(pages: usize) -> Self {
        Self(pages)
    }

    /// The pages of this many slots.
    #[inline]
    pub const fn of_slots(slots: usize) -> Self {
        Self(slots * SLOT_PAGES)
    }

    /// As many as this number of bytes needs.
    #[inline]
    pub const fn holding(bytes: usize) -> Self {
        Self(bytes.div_ceil(PAGE))
    }

    /// As many as this number of bytes fills.
    #[inline]
    pub const fn filled_by(bytes: usize) -> Self {
        Self(bytes / PAGE)
    }

    /// How many they are.
    #[inline]
    pub const fn count(self) -> usize {
        self.0
    }

    /// Their bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.0 * PAGE
    }

    /// The pages of this many units.
    #[inline]
    pub const fn of_units(units: usize) -> Self {
        Self(units * (UNIT / PAGE))
    }

    /// As many units as they need.
    #[inline]
    pub const fn units_around(self) -> usize {
        self.0.div_ceil(UNIT / PAGE)
    }

    /// As many slots as they need.
    #[inline]
    pub const fn slots_around(self) -> usize {
        self.0.div_ceil(SLOT_PAGES)
    }

    /// As many slots as they fill.
    #[inline]
    pub const fn slots_inside(self) -> usize {
        self.0 / SLOT_PAGES
    }

    /// Those without `others`, or none.
    #[inline]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0.saturating_sub(others.0))
    }
}

impl Add for Pages {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Pages {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Pages {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Pages {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Pages {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::NONE, Add::add)
    }
}

/// A range of addresses, `start` included, `end` excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The span of `bytes` bytes at `start`; an end past the address space is cut off at its top.
    pub const fn new(start: usize, bytes: usize) -> Self {
        Self { start, end: start.saturating_add(bytes) }
    }

    /// Its length in bytes.
    pub const fn bytes(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether `addr` lies inside.
    pub const fn contains(self, addr: usize) -> bool {
        addr >= self.start && addr < self.end
    }

    /// The part that lies in `other` too; empty when there is none.
    pub fn clip(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }

    /// The largest part that starts and ends on multiples of `align` (a power of two).
    pub const fn aligned_inside(self, align: usize) -> Self {
        let start = self.start.saturating_add(align - 1) & !(align - 1);
        let end = self.end & !(align - 1);
        Self { start, end: if end > start { end } else { start } }
    }
}

/// `bytes` rounded up to a multiple of `unit`, or `None` when that does not fit the address space.
pub const fn round_up(bytes: usize, unit: usize) -> Option<usize> {
    match bytes.checked_add(unit - 1) {
        Some(n) => Some(n / unit * unit),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_clip_and_align() {
        let s = Span::new(SLOT - PAGE, 3 * SLOT);
        assert_eq!(s.aligned_inside(SLOT), Span::new(SLOT, 2 * SLOT));
        assert_eq!(s.clip(Span::new(0, SLOT)), Span::new(SLOT - PAGE, PAGE));
        assert!(s.clip(Span::new(9 * SLOT, SLOT)).is_empty());
        assert!(Span::new(PAGE, PAGE).aligned_inside(SLOT).is_empty());
        assert_eq!(Span::new(usize::MAX - 5, 100).end, usize::MAX);
    }

    #[test]
    fn pages_fill_slots_or_need_more() {
        assert_eq!((Pages::holding(PAGE + 1), Pages::filled_by(2 * PAGE - 1)), (Pages::new(2), Pages::new(1)));
        let pages = Pages::of_slots(2) + Pages::new(1);
        assert_eq!((pages.slots_inside(), pages.slots_around(), pages.bytes()), (2, 3, 2 * SLOT + PAGE));
        assert_eq!(
            (Pages::new(3).without(Pages::new(5)), Pages::new(5) - Pages::new(3)),
            (Pages::NONE, Pages::new(2))
        );
    }

    #[test]
    fn slots_have_a_number_and_a_place() {
        let slot = Slot::around(7 * SLOT + PAGE);
        assert_eq!((slot, slot + 2 - Slot::new(4)), (Slot::new(7), 5));
        assert_eq!(slot.span(SLOT), Span::new(8 * SLOT, SLOT));
    }

    #[test]
    fn rounding_reports_overflow() {
        assert_eq!(round_up(1, PAGE), Some(PAGE));
        assert_eq!(round_up(0, PAGE), Some(0));
        assert_eq!(round_up(usize::MAX, PAGE), None);
    }
}
