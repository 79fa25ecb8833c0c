//! Memory beside a file: pages of watched slots are made ready here, or wait here while they go.
//!
//! A thread that takes a place has it alone, and gives it back. Its lock is one bit.

use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{PAGE, SLOT, Span};

use crate::cache::recent::Recent;

/// Pages of one place.
pub(super) const PLACE_PAGES: usize = 16;
const PLACE: usize = PLACE_PAGES * PAGE;
/// Those of them that keep the memory of all their pages when they are given back.
const KEPT: usize = 8;
/// Places: twice as many as one call has reads under way.
const PLACES: usize = 256;
const BITS: usize = usize::BITS as usize;

pub(super) struct Staging {
    span: Span,
    /// A bit for each place.
    taken: [AtomicUsize; PLACES / BITS],
    recent: Recent,
}

impl Staging {
    /// For a file of this many slots. `None`: there are no addresses for it, or pages cannot move there.
    pub(super) fn new<M: FileMemory>(memory: &M, slots: usize) -> Option<Self> {
        let recent = Recent::new(slots)?;
        let bytes = (PLACES * PLACE).next_multiple_of(SLOT);
        let span = memory.reserve(bytes)?;
        if memory.open(span) && memory.watch_aside(span) {
            return Some(Self { span, taken: Default::default(), recent });
        }
        memory.release(span);
        None
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Pages that came for a fault.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// The address of a place; `None` while all are taken.
    pub(super) fn take(&self) -> Option<usize> {
        let mut first = 0;
        for word in &self.taken {
            while let free = word.load(Relaxed).trailing_ones() as usize
                && free < BITS
            {
                // Acquire: pairs with its return.
                if word.fetch_or(1 << free, Acquire) >> free & 1 == 0 {
                    return Some(self.span.start + (first + free) * PLACE);
                }
            }
            first += BITS;
        }
        None
    }

    /// Whether a place keeps its memory: few are in use at a time, mostly.
    pub(super) fn keeps(&self, at: usize) -> bool {
        at < self.span.start + KEPT * PLACE
    }

    pub(super) fn give(&self, at: usize) {
        let place = (at - self.span.start) / PLACE;
        self.taken[place / BITS].fetch_and(!(1 << (place % BITS)), Release);
    }
}
