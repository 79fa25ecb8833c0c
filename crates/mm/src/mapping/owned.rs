//! The slots of the program's that one thread has in transit.

use faultless_base::Slot;

use crate::frame::extent::Extent;

/// Runs of slots that one thread may have in transit at a time.
const RUNS: usize = 8;

/// Slots of the program's that one thread has in transit. Other threads may have slots between them.
pub(super) struct Owned {
    runs: [Extent; RUNS],
    n: usize,
}

impl Default for Owned {
    fn default() -> Self {
        Self { runs: [Extent::NONE; RUNS], n: 0 }
    }
}

impl Owned {
    pub(super) fn is_empty(&self) -> bool {
        self.n == 0
    }

    pub(super) fn runs(&self) -> &[Extent] {
        &self.runs[..self.n]
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.runs().iter().flat_map(|run| run.slots())
    }

    /// Adds the slot `i`, which is behind all others. False: there is no room for one more run.
    pub(super) fn add(&mut self, i: Slot) -> bool {
        match self.runs[..self.n].last_mut() {
            Some(last) if last.end() == i => last.n += 1,
            _ if self.n == RUNS => return false,
            _ => {
                self.runs[self.n] = Extent::one(i);
                self.n += 1;
            }
        }
        true
    }
}
