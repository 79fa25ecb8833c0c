//! Pages of tracked slots are clean only where no device writes to them.
//!
//! The kernel notes a write by a device (`read(2)` of a file that is open with `O_DIRECT`) when the device begins: it
//! pins the page. It does not note what the device writes later. So before a sync makes a page clean, the page leaves
//! its address, and comes again as a protected copy. The kernel refuses that while the page is pinned. Afterwards the
//! kernel notes each write to the copy, and each new pin. A page that is pinned stays dirty, and so does one that
//! another thread of the library uses just then.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::sys::uffd::Stopped;
use faultless_base::sys::watch::Writes;
use faultless_base::{Errno, PAGE, SLOT_PAGES, Span};

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Change, Entry, Part, flag};
use crate::cache::staging::PLACE_PAGES;

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Has dirty pages of a slot be in writeback, before they are written. Those that a device may go on writing to are
    /// dirty as well.
    pub(super) fn begin_writeback(&self, change: &Change<'_>, slot: usize) {
        self.index.turn(Entry::Dirty, Entry::Writeback, slot);
        change.unset(flag::STREAMED);
        if !self.is_tracked(slot) {
            return;
        }
        let before = self.share(slot);
        let place = self.take_empty_place();
        let has_left = place.is_some() && change.leave();
        let mut rest = Part { first: 0, count: SLOT_PAGES };
        loop {
            let run = self.index.run(Entry::Writeback, slot, rest, true);
            let run = Part { count: run.count.min(PLACE_PAGES), ..run };
            if run == Part::NONE {
                break;
            }
            let settled = match place.filter(|_| has_left) {
                Some(place) => self.settle(change, slot, run, place),
                None => 0,
            };
            // The first that did not move, and then those behind it.
            let settled = Part { count: settled, ..run };
            let left = Part { first: run.first + settled.count, count: (run.count - settled.count).min(1) };
            self.index.set(Entry::Dirty, slot, left);
            let next = left.first + left.count;
            rest = Part { first: next, count: SLOT_PAGES - next };
        }
        if has_left {
            change.stay();
        }
        if let (Some(staging), Some(place)) = (self.staging.get(), place) {
            staging.give(place);
        }
        self.count(before, self.share(slot));
    }

    /// Takes pages away and has them come again, protected; how many, up to the first that is pinned.
    fn settle(&self, change: &Change<'_>, slot: usize, run: Part, place: usize) -> usize {
        let pages = self.pages(slot, run);
        self.is_small_now(change);
        let moved = match self.memory.move_pages(pages, place) {
            Ok(()) => pages.bytes(),
            Err(stopped) => stopped.done,
        };
        let (mut done, mut turn) = (0, 0);
        while done < moved {
            let (from, to) = (place + done, Span { start: pages.start + done, end: pages.start + moved });
            match self.memory.install(from, to, Writes::Noted) {
                Ok(()) => done = moved,
                // Without memory for a copy the page itself goes back, which is written to for all the kernel knows.
                Err(Stopped { done: came, error: Errno::ENOMEM }) => {
                    let left = (done + came) / PAGE;
                    let rest = Part { first: run.first + left, count: moved / PAGE - left };
                    self.preserve(slot, rest, place + done + came);
                    self.move_back(Span { start: from + came, end: place + moved }, pages.start + done + came);
                    done += came;
                    break;
                }
                Err(stopped) => done += stopped.done,
            }
            self.memory.relax(turn);
            turn += 1;
        }
        let _ = self.memory.discard(Span::new(place, PLACE_PAGES * PAGE));
        done / PAGE
    }
}
