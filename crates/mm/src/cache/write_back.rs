//! Dirty pages are written, and durable then; or the error is kept.
//!
//! | a page is | until |
//! |---|---|
//! | dirty | it is about to be written: in writeback. A thread that changes it meanwhile makes it dirty again |
//! | in writeback | the backing says that all is durable: clean. After any error: dirty again, so no byte is lost |

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, flag};

/// Errors of writing, in the order in which they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many there were.
    pub count: usize,
    /// The last one.
    pub last: Option<Errno>,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The errors of writing so far. Who has seen fewer has not been told of the last one.
    pub fn failures(&self) -> Failures {
        *self.failures.lock()
    }

    /// Whether some page has bytes that the file does not have, as far as that was said.
    pub fn is_dirty(&self) -> bool {
        (0..self.index.slots())
            .any(|slot| self.index.state(slot) & flag::FILLED != 0 && self.index.has_any(Entry::Dirty, slot))
    }

    /// Writes the dirty pages of a range of bytes, and has all that was written be durable. After an error its pages
    /// are dirty as before.
    pub fn sync(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let _syncing = self.syncing.lock();
        let all = Part { first: 0, count: SLOT_PAGES };
        let slots = || self.parts(offset, bytes).filter(|(slot, ..)| self.index.state(*slot) & flag::FILLED != 0);
        let mut result = Ok(());
        for (slot, ..) in slots() {
            if self.index.has_any(Entry::Dirty, slot) {
                // A page in writeback stays, so it needs no pin.
                self.index.turn(Entry::Dirty, Entry::Writeback, slot);
                result = result.and(self.write_slot(slot, all));
            }
        }
        let result = result.and_then(|()| self.backing.sync());
        for (slot, ..) in slots() {
            match result {
                Ok(()) => self.index.clear(Entry::Writeback, slot),
                Err(_) => self.index.turn(Entry::Writeback, Entry::Dirty, slot),
            }
        }
        if let Err(error) = result {
            let mut failures = self.failures.lock();
            *failures = Failures { count: failures.count + 1, last: Some(error) };
        }
        result
    }

    fn write_slot(&self, slot: usize, part: Part) -> Result<(), Errno> {
        let (mut rest, end) = (part, part.first + part.count);
        let mut result = Ok(());
        loop {
            let run = self.index.run(Entry::Writeback, slot, rest, true);
            if run == Part::NONE {
                return result;
            }
            let offset = slot * SLOT + run.first * PAGE;
            let bytes = self.length().saturating_sub(offset).min(run.count * PAGE);
            let from = Span::new(self.address(offset), bytes);
            let written = self.backing.write(offset as u64, from);
            if written.is_ok() {
                self.counters.add(Counter::FileWritten, bytes as u64);
            }
            // The others are written all the same: less is lost.
            result = result.and(written);
            let next = run.first + run.count;
            rest = Part { first: next, count: end - next };
        }
    }
}
