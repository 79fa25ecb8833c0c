//! What a program says about parts of a file beforehand. It changes no byte.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{PAGE, SLOT};

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, flag};

/// Bytes that a fault brings ahead at most.
const AHEAD: usize = 8 << 20;

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Has pages of each slot that a range touches come by huge pages, or by small ones. Those that are there stay.
    pub fn advise_huge(&self, offset: usize, bytes: usize, is_huge: bool) {
        let (set, unset) = if is_huge { (flag::BY_HUGE, flag::BY_SMALL) } else { (flag::BY_SMALL, flag::BY_HUGE) };
        for (slot, ..) in self.parts(offset, bytes) {
            let change = self.change(slot);
            change.unset(unset);
            change.set(set);
        }
    }

    /// Whether a fault in a range brings what comes behind it.
    pub fn advise_ahead(&self, offset: usize, bytes: usize, is_ahead: bool) {
        for (slot, ..) in self.parts(offset, bytes) {
            let change = self.change(slot);
            if is_ahead { change.set(flag::AHEAD) } else { change.unset(flag::AHEAD) }
        }
    }

    /// Brings what comes behind a fault, where that was advised. What cannot be had comes when it is touched.
    pub fn bring_ahead(&self, addr: usize) {
        let next = (addr - self.span().start) / PAGE * PAGE + PAGE;
        if next >= self.length() || self.index.state((next - 1) / SLOT) & flag::AHEAD == 0 {
            return;
        }
        let is_there =
            |at: usize| self.index.has(Entry::Present, at / SLOT, Part { first: at % SLOT / PAGE, count: 1 });
        // The fault may have brought all of its 2 MiB.
        let from = if is_there(next) { next.next_multiple_of(SLOT) } else { next };
        let most = (self.capacity() / 2).min(AHEAD);
        let end = next.saturating_add(most).min(self.length());
        if from < end && !is_there(from) {
            self.bring_many(&mut self.parts(from, end - from), most / PAGE);
        }
    }
}
