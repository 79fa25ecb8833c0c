//! Files that others make shorter while snapshots of them live.
//!
//! What is in memory of the bytes that went is copied for the snapshots first. The rest is in no memory and in no file:
//! it is gone for them, whatever comes to these places later.

use faultless_base::{PAGE, SLOT, SLOT_PAGES};

use super::chain::{AGE, CUT, CUT_AGE, Chain};
use super::pages::PageSet;

impl Chain {
    /// What no snapshot that there is has a copy of is gone from `at` on.
    pub fn cut(&self, at: usize) {
        let age = self.newest_age();
        self.each(|id, _| {
            if at < self.get(id, CUT) {
                self.set(id, CUT, at);
                self.set(id, CUT_AGE, self.get(id, CUT_AGE).min(age));
            }
        });
    }

    /// Where what it has no copy of ends.
    pub fn cut_at(&self, id: usize) -> usize {
        self.get(id, CUT)
    }

    /// Pages of a slot of which it gets no copy any more.
    pub(super) fn gone(&self, id: usize, slot: usize) -> PageSet {
        let cut = self.get(id, CUT);
        PageSet::of(if cut < slot + SLOT { cut.saturating_sub(slot).div_ceil(PAGE)..SLOT_PAGES } else { 0..0 })
    }

    /// Pages of a slot that it may not have from another one, which came after they were gone.
    pub(super) fn kept_from(&self, id: usize, other: usize, slot: usize) -> PageSet {
        let is_later = self.get(other, AGE) > self.get(id, CUT_AGE);
        if is_later { self.gone(id, slot) } else { PageSet::default() }
    }
}
