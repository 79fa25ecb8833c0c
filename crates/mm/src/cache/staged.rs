//! Pages of a watched slot come: made ready beside it, and each present from one moment on.
//!
//! The program may access the slot at any time. So its bytes are read into a frame, or into a place of
//! [`super::staging`]. A whole frame moves to where it is needed. Of a slot in which writes are noted the pages are
//! copied instead: a frame that moves cannot be protected in the same moment.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::sys::uffd::Stopped;
use faultless_base::sys::watch::Writes;
use faultless_base::{Errno, PAGE, SLOT_PAGES, Span};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::fill::{Run, Stage};
use crate::cache::index::{Change, Entry, Part, flag};
use crate::cache::staging::PLACE_PAGES;
use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;
use crate::frame::store::Frame;

/// How often the kernel may ask to try again, or an error be in the way, before it counts.
const MOST_AGAIN: u32 = 1000;

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// As [`Cache::begin`]. Passes: there is no place to read into (EAGAIN), or other threads read these pages (EBUSY).
    pub(super) fn begin_staged(&self, change: &Change<'_>, slot: usize, part: Part) -> Result<Option<Run>, Errno> {
        if self.is_huge_at(slot)
            && !change.is(flag::FILLED | flag::TABLE)
            && let Some(run) = self.begin_frame(change, slot)
        {
            return Ok(Some(run));
        }
        // A fault may come late: pages behind the end do not come.
        let end = (part.first + part.count).min(self.inside(slot).count);
        let part = Part { count: end.saturating_sub(part.first), ..part };
        loop {
            let run = self.index.run(Entry::Present, slot, part, false);
            if run == Part::NONE {
                return Ok(None);
            }
            let run = self.index.run(Entry::Coming, slot, run, false);
            if run == Part::NONE {
                return Err(Errno::EBUSY);
            }
            let run = Part { count: run.count.min(PLACE_PAGES), ..run };
            change.set(flag::TABLE);
            // Zeroes cannot be protected.
            if self.is_told(slot) || !self.is_hole(slot, run) {
                let place = self.staging.get().and_then(|staging| staging.take()).ok_or(Errno::EAGAIN)?;
                let to = Span::new(place, run.count * PAGE);
                return Ok(Some(Run { to, stage: Stage::Place, ..self.to_read(slot, run) }));
            }
            self.index.set(Entry::Hole, slot, run);
            self.put(change, slot, run, |_, rest| self.memory.install_zeroes(rest))?;
        }
    }

    /// Begins to bring a whole slot by a frame. `None`: there is nothing to read, or it comes by small pages.
    fn begin_frame(&self, change: &Change<'_>, slot: usize) -> Option<Run> {
        let inside = self.inside(slot);
        let is_hole = self.is_hole(slot, inside);
        // Behind the end no memory may be.
        if is_hole && inside.count < SLOT_PAGES {
            return None;
        }
        let Some(frame) = self.take_frame(if is_hole { Need::Zero } else { Need::Any }) else {
            self.counters.add(Counter::FileFallback, 1);
            change.set(flag::TABLE);
            return None;
        };
        if !is_hole {
            let to = Span::new(frame.at, inside.count * PAGE);
            return Some(Run { to, stage: Stage::Frame, ..self.to_read(slot, inside) });
        }
        // What is written to it is found by its bytes: of a hole, pages that are not zero any more.
        let moved = frame.kind == Kind::Zeroed && self.move_to_watched(slot, frame.at);
        if moved {
            self.index.set(Entry::Hole, slot, inside);
            self.is_frame_now(change, slot, inside);
        } else {
            self.return_frame(frame.at);
            change.set(flag::TABLE);
        }
        None
    }

    fn is_frame_now(&self, change: &Change<'_>, slot: usize, inside: Part) {
        self.counters.add(Counter::FileAlloc, 1);
        change.set(flag::HUGE);
        self.add(change, slot, inside);
    }

    /// A frame at a place of the owner's; the caller gives it back.
    pub(super) fn take_frame(&self, need: Need) -> Option<Frame> {
        self.store.take(need).or_else(|| {
            let at = self.store.place()?;
            if self.memory.make_huge(at) {
                return Some(Frame { at, kind: Kind::Zeroed });
            }
            self.store.give(at, Kind::Unbacked);
            None
        })
    }

    /// Gives a frame back that did not move.
    pub(super) fn return_frame(&self, at: usize) {
        let is_kept = self.memory.drop_unless_whole(at) && self.store.room() > 0;
        if !is_kept {
            self.memory.drop_frame(at);
        }
        self.store.give(at, if is_kept { Kind::Dirty } else { Kind::Unbacked });
    }

    /// A place to which pages can move: nothing is there.
    pub(super) fn take_empty_place(&self) -> Option<usize> {
        let staging = self.staging.get()?;
        let place = staging.take()?;
        // Bytes that were read for others may be there.
        if self.memory.discard(Span::new(place, PLACE_PAGES * PAGE)) {
            return Some(place);
        }
        staging.give(place);
        None
    }

    /// Gives a place back of which `pages` were read into. Few places keep more than a page; in a group none keeps any.
    pub(super) fn return_place(&self, at: usize, pages: usize) {
        let Some(staging) = self.staging.get() else { return };
        if self.backing.group().is_some() || pages > 1 && !staging.keeps(at) {
            let _ = self.memory.discard(Span::new(at, PLACE_PAGES * PAGE));
        }
        staging.give(at);
    }

    /// Moves a frame to a slot of which nothing is there; whether it did. Then its place is the owner's.
    fn move_to_watched(&self, slot: usize, frame: usize) -> bool {
        let to = self.slot_span(slot);
        // The access has left a page table there, which goes along: nothing but a fault comes to this slot meanwhile.
        let moved =
            self.memory.frees_tables() && self.memory.discard(to) && self.memory.move_in_watched(frame, to.start);
        if moved {
            self.counters.add(Counter::FileMapped, 1);
            self.store.give(frame, Kind::Unbacked);
        }
        moved
    }

    /// As [`Cache::end`], for what [`Cache::begin_staged`] has begun.
    pub(super) fn end_staged(
        &self,
        change: &Change<'_>,
        slot: usize,
        run: Run,
        checked: Result<(), Errno>,
    ) -> Result<(), Errno> {
        let is_noted = change.is(flag::TRACKED);
        if run.stage == Stage::Frame {
            if checked.is_ok()
                && !is_noted
                && run.part.count == SLOT_PAGES
                && self.move_to_watched(slot, run.to.start)
            {
                self.is_frame_now(change, slot, run.part);
                return Ok(());
            }
            change.set(flag::TABLE);
        }
        let writes = if is_noted { Writes::Noted } else { Writes::Unnoted };
        // A move that failed half way has left nothing of the frame.
        let is_there = run.stage != Stage::Frame || self.memory.drop_unless_whole(run.to.start);
        let put = checked
            .and(if is_there { Ok(()) } else { Err(Errno::ENOMEM) })
            .and_then(|()| self.put_missing(change, slot, run, writes));
        match run.stage {
            Stage::Frame => self.return_frame(run.to.start),
            _ => self.return_place(run.to.start, run.part.count),
        }
        put
    }

    /// Has pages be present that were read beside the slot, but for those that have come meanwhile.
    fn put_missing(&self, change: &Change<'_>, slot: usize, run: Run, writes: Writes) -> Result<(), Errno> {
        let mut rest = run.part;
        loop {
            let part = self.index.run(Entry::Present, slot, rest, false);
            if part == Part::NONE {
                return Ok(());
            }
            let from = run.to.start + (part.first - run.part.first) * PAGE;
            self.put(change, slot, part, |done, rest| self.memory.install(from + done, rest, writes))?;
            rest = rest.from(part.first + part.count);
        }
    }

    /// Has pages be present by `install`, which is given what was done before and the rest. After an error some are.
    fn put(
        &self,
        change: &Change<'_>,
        slot: usize,
        part: Part,
        mut install: impl FnMut(usize, Span) -> Result<(), Stopped>,
    ) -> Result<(), Errno> {
        let to = self.pages(slot, part);
        let (mut done, mut again, mut result) = (0, 0, Ok(()));
        while done < to.bytes() {
            let Err(stopped) = install(done, Span { start: to.start + done, ..to }) else {
                done = to.bytes();
                break;
            };
            done += stopped.done;
            again = if stopped.done > 0 { 0 } else { again + 1 };
            match stopped.error {
                // A page there is left from an error before.
                Errno::EEXIST if again < MOST_AGAIN => _ = self.memory.discard(Span::new(to.start + done, PAGE)),
                Errno::EAGAIN if again < MOST_AGAIN => self.memory.relax(again),
                error => {
                    result = Err(if error == Errno::EAGAIN { Errno::ENOMEM } else { error });
                    break;
                }
            }
        }
        // The program may have written to those by now.
        if done > 0 {
            self.add(change, slot, Part { count: done / PAGE, ..part });
        }
        let missing = Part { first: part.first + done / PAGE, count: part.count - done / PAGE };
        self.index.unset(Entry::Hole, slot, missing);
        result
    }
}
