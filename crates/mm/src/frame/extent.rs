//! A run of slots.

use faultless_base::{SLOT, Span};

/// A run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first slot.
    pub first: usize,
    /// Its slots.
    pub n: usize,
}

impl Extent {
    /// The slots of the whole address space of which a part lies in a range of addresses.
    pub fn around(span: Span) -> Self {
        let n = if span.is_empty() { 0 } else { span.end.div_ceil(SLOT) - span.start / SLOT };
        Self { first: span.start / SLOT, n }
    }

    /// The whole slots of the whole address space inside a range of addresses.
    pub fn inside(span: Span) -> Self {
        let inner = span.aligned_inside(SLOT);
        Self { first: inner.start / SLOT, n: inner.bytes() / SLOT }
    }

    /// The numbers of its slots.
    pub fn slots(self) -> core::ops::Range<usize> {
        self.first..self.first + self.n
    }
}
