//! Slots of a region of which all pages may be written to, as far as that is known.
//!
//! A snapshot protects long runs of them without asking the kernel which pages are protected already. Of huge pages that
//! question takes half as long as to protect them. Any value does no harm: what is protected once more stays protected,
//! and of all other slots the kernel is asked.

use faultless_base::sync::Words;
use faultless_base::sync::atomic::Ordering;
use faultless_base::{SLOT, Span};

/// Shorter runs are not worth a call of their own.
const LONG: usize = 8 * SLOT;
/// Bits of a word.
const TOGETHER: usize = usize::BITS as usize;

/// A bit for each slot: it has protected pages, or may have some.
pub struct Open {
    closed: Words,
    base: usize,
}

impl Open {
    /// All are open. `None` when there is no memory for it.
    pub fn new(region: Span) -> Option<Self> {
        let slots = region.bytes().div_ceil(SLOT);
        Some(Self { closed: Words::new(slots.div_ceil(TOGETHER))?, base: region.start })
    }

    fn place(&self, slot: usize) -> (usize, usize) {
        let number = (slot - self.base) / SLOT;
        (number / TOGETHER, 1 << (number % TOGETHER))
    }

    /// Writes to all of a slot were let through.
    pub fn set(&self, slot: usize) {
        let (word, bit) = self.place(slot);
        self.closed[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// All pages of whole slots were protected.
    pub fn close(&self, span: Span) {
        for slot in (span.start..span.end).step_by(SLOT) {
            let (word, bit) = self.place(slot);
            self.closed[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The first long run of open slots; an empty one at the end if there is none.
    pub fn first(&self, span: Span) -> Span {
        let mut run = Span::new(span.start, 0);
        for slot in (span.start..span.end).step_by(SLOT) {
            let (word, bit) = self.place(slot);
            match self.closed[word].load(Ordering::Relaxed) & bit == 0 {
                true => run.end = slot + SLOT,
                false if run.bytes() >= LONG => return run,
                false => run = Span::new(slot + SLOT, 0),
            }
        }
        if run.bytes() >= LONG { run } else { Span::new(span.end, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(first: usize, count: usize) -> Span {
        Span::new((7 + first) * SLOT, count * SLOT)
    }

    #[test]
    fn long_runs_of_open_slots_are_found() {
        let all = slots(0, 200);
        let open = Open::new(all).unwrap();
        assert_eq!(open.first(all), all);
        open.close(all);
        assert_eq!(open.first(all), slots(200, 0));
        // Across the border of a word, up to the end, and too short ones between.
        let runs = [slots(60, 9), slots(192, 8)];
        for run in [runs[0], slots(80, 7), slots(90, 1), runs[1]] {
            (run.start..run.end).step_by(SLOT).for_each(|slot| open.set(slot));
        }
        assert_eq!(open.first(all), runs[0]);
        assert_eq!(open.first(Span { start: runs[0].end, ..all }), runs[1]);
        open.close(slots(64, 1));
        assert_eq!(open.first(all), runs[1]);
    }
}
