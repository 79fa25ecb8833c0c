//! Sizes and ranges of memory.

/// Bytes of a page, the kernel's smallest unit.
pub const PAGE: usize = 4096;
/// Bytes of a run's unit: the smallest piece that is carved out of a slot.
pub const UNIT: usize = 64 << 10;
/// Bytes of a slot: an aligned huge page's worth of address space.
pub const SLOT: usize = 2 << 20;
/// Pages of a slot.
pub const SLOT_PAGES: usize = SLOT / PAGE;

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
    fn rounding_reports_overflow() {
        assert_eq!(round_up(1, PAGE), Some(PAGE));
        assert_eq!(round_up(0, PAGE), Some(0));
        assert_eq!(round_up(usize::MAX, PAGE), None);
    }
}
