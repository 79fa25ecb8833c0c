//! Dirty pages are written, and durable then; or the error is kept.
//!
//! | a page is | until |
//! |---|---|
//! | dirty | it is about to be written: in writeback. A thread that changes it meanwhile makes it dirty again |
//! | in writeback | the backing says that all is durable: clean. After any error: dirty again, so no byte is lost |

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, SLOT_PAGES, Span};
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

/// Bytes that are written by one call: a file system allocates them together.
const MOST_AT_ONCE: usize = 32 << 20;

/// Pages that follow each other and are about to be written, and what became of those before.
struct Batch {
    run: Span,
    result: Result<(), Errno>,
    /// Bytes.
    written: usize,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The errors of writing so far. A handle that has seen fewer has not been told of the last one.
    pub fn failures(&self) -> Failures {
        *self.failures.lock()
    }

    /// Whether some page has bytes that the file does not have and should, as far as that was said.
    pub fn is_dirty(&self) -> bool {
        self.backing.is_written_back()
            && (0..self.index.slots())
                .any(|slot| self.index.state(slot) & flag::FILLED != 0 && self.index.has_any(Entry::Dirty, slot))
    }

    /// Writes the dirty pages of a range of bytes, and has all that was written be durable. After an error its pages
    /// are dirty as before.
    pub fn sync(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        if !self.backing.is_written_back() {
            return Ok(());
        }
        let _syncing = self.syncing.lock();
        let is_filled = |slot: &usize| self.index.state(*slot) & flag::FILLED != 0;
        self.write_slots(|| self.parts(offset, bytes).map(|(slot, ..)| slot).filter(is_filled)).1
    }

    /// The same for the dirty pages of slots, which the caller names in the same order each time. How many bytes were
    /// written. The caller has `syncing`.
    pub(super) fn write_slots<I: Iterator<Item = usize>>(
        &self,
        slots: impl Fn() -> I,
    ) -> (usize, Result<(), Errno>) {
        let mut batch = Batch { run: Span::new(0, 0), result: Ok(()), written: 0 };
        for slot in slots() {
            if self.is_tracked(slot) {
                let _change = self.change(slot);
                self.find_changes(slot, Part { first: 0, count: SLOT_PAGES });
            }
            if self.index.has_any(Entry::Dirty, slot) {
                // With its lock: who looks whether it is clean must not miss a page that is turned to and fro. A page in
                // writeback stays, so it needs no pin.
                let change = self.change(slot);
                self.begin_writeback(&change, slot);
                drop(change);
                self.write_slot(slot, &mut batch);
            }
        }
        self.write(&mut batch);
        let result = batch.result.and_then(|()| self.backing.sync());
        for slot in slots() {
            match result {
                Ok(()) => {
                    self.index.clear(Entry::Writeback, slot);
                    self.collapse(slot);
                }
                Err(_) => self.index.turn(Entry::Writeback, Entry::Dirty, slot),
            }
        }
        if let Err(error) = result {
            let mut failures = self.failures.lock();
            *failures = Failures { count: failures.count + 1, last: Some(error) };
        }
        (batch.written, result)
    }

    /// Adds the pages in writeback of a slot to a batch.
    fn write_slot(&self, slot: usize, batch: &mut Batch) {
        let mut rest = Part { first: 0, count: SLOT_PAGES };
        loop {
            let part = self.index.run(Entry::Writeback, slot, rest, true);
            if part == Part::NONE {
                return;
            }
            // The file has bytes there from now on, or an error makes the page dirty again.
            self.index.unset(Entry::Hole, slot, part);
            let run = self.pages(slot, part);
            if run.start == batch.run.end && batch.run.bytes() + run.bytes() <= MOST_AT_ONCE {
                batch.run.end = run.end;
            } else {
                self.write(batch);
                batch.run = run;
            }
            let next = part.first + part.count;
            rest = Part { first: next, count: SLOT_PAGES - next };
        }
    }

    /// Writes a batch, as far as it is inside the file. After an error the next ones are written all the same: less is
    /// lost.
    fn write(&self, batch: &mut Batch) {
        let offset = batch.run.start.saturating_sub(self.span.start);
        let bytes = self.length().saturating_sub(offset).min(batch.run.bytes());
        if bytes > 0 {
            let written = self.backing.write(offset as u64, Span::new(batch.run.start, bytes));
            if written.is_ok() {
                batch.written += bytes;
                self.counters.add(Counter::FileWritten, bytes as u64);
            }
            batch.result = batch.result.and(written);
        }
        batch.run = Span::new(0, 0);
    }
}
