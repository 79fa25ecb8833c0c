//! Pages of a file come: into a frame where a slot is empty, into small pages else.
//!
//! The bytes are read where they lie from then on. No other thread looks there, because no entry is present yet.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Change, Entry, Part, flag};
use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;
use crate::frame::store::Frame;

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Has pages of a slot be present that are inside the file. The caller has a pin.
    pub(super) fn bring(&self, slot: usize, part: Part) -> Result<(), Errno> {
        if self.index.has(Entry::Present, slot, part) {
            return Ok(());
        }
        if self.index.state(slot) & flag::FILLED == 0 {
            self.make_room();
        }
        let change = self.change(slot);
        let before = self.returnable(slot);
        let filled = self.fill(&change, slot, part);
        self.count(before, self.returnable(slot));
        filled
    }

    fn fill(&self, change: &Change<'_>, slot: usize, part: Part) -> Result<(), Errno> {
        let inside = self.inside(slot);
        let is_new = !change.is(flag::FILLED | flag::TABLE | flag::HUGE) && self.backing.is_huge();
        if is_new && self.fill_frame(change, slot, inside) {
            return Ok(());
        }
        loop {
            let run = self.index.run(Entry::Present, slot, part, false);
            if run == Part::NONE {
                return Ok(());
            }
            self.fill_run(change, slot, run)?;
            change.add(run);
        }
    }

    /// A frame with the pages of the slot that are in the file; whether they are there. If they cannot be read, small
    /// pages show which of them.
    fn fill_frame(&self, change: &Change<'_>, slot: usize, inside: Part) -> bool {
        let at = self.slot_span(slot);
        let is_hole = self.is_hole(slot, inside);
        let Some(kind) = self.move_frame_in(at.start, if is_hole { Need::Zero } else { Need::Any }) else {
            self.counters.add(Counter::FileFallback, 1);
            // A table may be there by now.
            change.set(flag::TABLE);
            return false;
        };
        change.set(flag::HUGE);
        let is_zero = is_hole && kind != Kind::Dirty;
        if !is_zero && self.read(slot, inside).is_err() {
            // Only now is it known that the frame is of no use.
            let _ = self.memory.discard(at);
            change.unset(flag::HUGE);
            change.set(flag::TABLE);
            return false;
        }
        self.counters.add(Counter::FileAlloc, 1);
        change.add(inside);
        true
    }

    /// Moves a frame to an empty slot; what is in it.
    fn move_frame_in(&self, to: usize, need: Need) -> Option<Kind> {
        let place = || Some(Frame { at: self.store.place()?, kind: Kind::Unbacked });
        let frame = self.store.take(need).or_else(place)?;
        let is_there = frame.kind != Kind::Unbacked || self.memory.make_huge(frame.at);
        let moved = is_there && self.memory.move_in(frame.at, to);
        let kind = if frame.kind == Kind::Unbacked { Kind::Zeroed } else { frame.kind };
        let is_left = is_there && !moved && self.memory.drop_unless_whole(frame.at);
        self.store.give(frame.at, if is_left { kind } else { Kind::Unbacked });
        moved.then_some(kind)
    }

    /// Pages that are not present get their bytes. Pages of a frame may have old ones: they were behind the end.
    fn fill_run(&self, change: &Change<'_>, slot: usize, run: Part) -> Result<(), Errno> {
        let is_huge = change.is(flag::HUGE);
        let pages = self.pages(slot, run);
        if self.is_hole(slot, run) {
            // Small pages that are not there are zero.
            if is_huge {
                self.memory.zero(pages);
            }
            return Ok(());
        }
        self.read(slot, run).inspect_err(|_| {
            if !is_huge {
                let _ = self.memory.discard(pages);
            }
        })
    }

    /// How many bytes of pages are in the file.
    fn expected(&self, slot: usize, part: Part) -> usize {
        let offset = slot * SLOT + part.first * PAGE;
        self.length().saturating_sub(offset).min(part.count * PAGE)
    }

    fn is_hole(&self, slot: usize, part: Part) -> bool {
        self.backing.is_hole((slot * SLOT + part.first * PAGE) as u64, self.expected(slot, part))
    }

    /// Reads pages into memory, and zeroes what is behind the end in the last of them.
    fn read(&self, slot: usize, part: Part) -> Result<(), Errno> {
        let pages = self.pages(slot, part);
        let offset = slot * SLOT + part.first * PAGE;
        let expected = self.expected(slot, part);
        let read = self.backing.read(offset as u64, pages)?;
        self.counters.add(Counter::FileFilled, read.min(expected) as u64);
        if read < expected {
            // Another process made the file shorter. Zeroes would be a lie.
            return Err(Errno::EIO);
        }
        if expected < pages.bytes() {
            self.memory.zero(Span { start: pages.start + expected, ..pages });
        }
        Ok(())
    }
}
