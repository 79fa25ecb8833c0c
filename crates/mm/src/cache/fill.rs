//! Pages of a file come: into a frame where a slot is empty, into small pages else.
//!
//! The bytes are read where they lie from then on. No other thread looks there, because no entry is present yet. A fill
//! has two ends, [`Cache::begin`] and [`Cache::end`], so that many of them may be under way ([`super::prefetch`]).

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::group::{Room, Size};
use crate::cache::index::{Change, Entry, Part, Pin, flag};
use crate::cache::resize::Zeroes;
use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;
use crate::frame::store::Frame;

/// A smaller file has small pages: a program may open many of them.
const LEAST_HUGE: usize = SLOT / 2;

/// Small pages that come at a time where a file grows; a divisor of the pages of a slot.
const GROWS_BY_PAGES: usize = 16;

/// Whether files have huge pages at all.
const HAS_HUGE: bool = cfg!(feature = "huge-files");

/// The first words of [`Knob::ThpPagecache`].
const ALWAYS: u64 = 0;
const ADVISE: u64 = 1;

/// What memory that is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Their own.
    Own,
    /// A frame that is not there yet.
    Frame,
    /// A place beside the file.
    Place,
}

/// Pages that are read.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) part: Part,
    /// Where they are in the file.
    pub(super) offset: u64,
    /// The memory that they are read into.
    pub(super) to: Span,
    pub(super) stage: Stage,
    /// The bytes of them that were in the file when the fill began.
    pub(super) expected: usize,
}

/// What became of pages that were to come.
enum Filled {
    /// All are present.
    All,
    /// These are to be read, without the lock.
    Reads(Run),
    /// Other threads have what it takes: the caller lets the lock go, and tries again.
    Later,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Has pages of a slot be present that are inside the file, and stay for as long as the pin.
    pub(super) fn bring(&self, slot: usize, part: Part) -> Result<Pin<'_>, Errno> {
        self.pin_with_room(slot, part, Size::Any, |room| self.bring_new(slot, part, Zeroes::NONE, room))
    }

    /// The same where the caller has a pin, and some of them may have come to the file just now, as zeroes.
    pub(super) fn bring_new(
        &self,
        slot: usize,
        part: Part,
        zeroes: Zeroes,
        room: &mut Room<'_>,
    ) -> Result<(), Errno> {
        if self.index.has(Entry::Present, slot, part) {
            return Ok(());
        }
        // What a mapping holds is the program's own.
        if self.holds[slot].load(Relaxed) == 0 && self.takes_room(slot, part) {
            self.make_room();
        }
        self.bring_beside(slot, part, zeroes, room)
    }

    /// The same, and nothing goes for it.
    pub(super) fn bring_beside(
        &self,
        slot: usize,
        part: Part,
        zeroes: Zeroes,
        room: &mut Room<'_>,
    ) -> Result<(), Errno> {
        let (mut turn, mut is_void) = (0, false);
        loop {
            let change = self.change(slot);
            if !self.fits(&change, slot, part, room) {
                return Err(Errno::ENOMEM);
            }
            let before = self.share(slot);
            // A slot that has nothing yet may get a frame.
            if change.is(flag::HUGE | flag::TABLE) && !change.is(flag::WATCHED) {
                let new = self.zeroes_in(zeroes, slot, part);
                while let run = self.index.run(Entry::Present, slot, new, false)
                    && run != Part::NONE
                {
                    self.populate_ahead(&change, slot, run);
                    self.add_hole(&change, slot, run);
                }
            }
            let filled = self.fill(&change, slot, part, is_void);
            let after = self.share(slot);
            self.tell(before, after);
            room.use_for(before, after);
            self.keep_promise(slot, after);
            match filled? {
                Filled::All => return Ok(()),
                Filled::Reads(run) => {
                    let apart = self.read_apart(change, slot, run);
                    let read = self.backing.read(run.offset, run.to);
                    apart.end(read, room)?;
                    if self.index.has(Entry::Present, slot, part) {
                        return Ok(());
                    }
                    is_void = !self.index.has(Entry::Present, slot, run.part);
                    turn = 0;
                }
                Filled::Later => {
                    drop(change);
                    self.memory.relax(turn);
                    turn += 1;
                }
            }
        }
    }

    /// Whether there is room for pages that are about to come to a slot. Where it is too little for a huge page, none
    /// comes.
    pub(super) fn fits(&self, change: &Change<'_>, slot: usize, part: Part, room: &mut Room<'_>) -> bool {
        let size = if room.is_huge() { Size::Any } else { Size::Small };
        if !room.has(self.need(slot, part, size)) {
            return false;
        }
        if size == Size::Small && !change.is(flag::FILLED | flag::HUGE) {
            change.set(flag::TABLE);
        }
        true
    }

    /// Small pages that a write is about to fill come by one call, and with them some of those behind: a file that grows
    /// by small records meets fewer faults.
    fn populate_ahead(&self, change: &Change<'_>, slot: usize, run: Part) {
        // More than there is room for in a group.
        if self.backing.group().is_some() {
            return;
        }
        if change.is(flag::HUGE) || run.count == 1 && (run.first == 0 || run.first % GROWS_BY_PAGES != 0) {
            return;
        }
        let end = run.first + run.count;
        // Of a file that is this small no more than it has.
        let end = if run.first == 0 { end } else { end.next_multiple_of(GROWS_BY_PAGES) };
        self.memory.populate_to_write(self.pages(slot, Part { count: end - run.first, ..run }));
    }

    /// Whether pages of a slot that are to come take more room than was counted.
    pub(super) fn takes_room(&self, slot: usize, part: Part) -> bool {
        let state = self.index.state(slot);
        state & flag::FILLED == 0 || state & flag::HUGE == 0 && self.is_account_full(part.count)
    }

    /// Brings pages with the lock of their slot: all of them, or as far as it takes that.
    fn fill(&self, change: &Change<'_>, slot: usize, part: Part, is_all: bool) -> Result<Filled, Errno> {
        loop {
            let run = match self.begin(change, slot, part) {
                Ok(Some(run)) if run.stage == Stage::Place && !is_all => return Ok(Filled::Reads(run)),
                Ok(Some(run)) => run,
                Ok(None) => return Ok(Filled::All),
                Err(Errno::EAGAIN | Errno::EBUSY) => return Ok(Filled::Later),
                Err(error) => return Err(error),
            };
            let is_frame = run.stage == Stage::Frame || Self::is_new_frame(change);
            let read = self.backing.read(run.offset, run.to);
            match self.end(change, slot, run, read) {
                // Small pages show which of them cannot be read.
                Err(_) if is_frame => {}
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
    }

    /// Begins to bring pages: they get memory. Those that have to be read, into that memory, before [`Cache::end`]; or
    /// `None` where all of them are present. A frame brings all pages of its slot that are in the file. EAGAIN and EBUSY
    /// pass, but not while the caller has the lock.
    pub(super) fn begin(&self, change: &Change<'_>, slot: usize, part: Part) -> Result<Option<Run>, Errno> {
        match change.is(flag::WATCHED) {
            true => self.begin_staged(change, slot, part),
            false => Ok(self.begin_here(change, slot, part)),
        }
    }

    fn begin_here(&self, change: &Change<'_>, slot: usize, part: Part) -> Option<Run> {
        if self.is_huge_at(slot) && !change.is(flag::FILLED | flag::TABLE | flag::HUGE) {
            let inside = self.inside(slot);
            let is_hole = self.is_hole(slot, inside);
            match self.move_frame_in(self.slot_span(slot).start, if is_hole { Need::Zero } else { Need::Any }) {
                Some(kind) => {
                    change.set(flag::HUGE);
                    if !is_hole || kind == Kind::Dirty {
                        return Some(self.to_read(slot, inside));
                    }
                    self.counters.add(Counter::FileAlloc, 1);
                    self.index.set(Entry::Hole, slot, inside);
                    self.add(change, slot, inside);
                }
                None => {
                    self.counters.add(Counter::FileFallback, 1);
                    // A table may be there by now.
                    change.set(flag::TABLE);
                }
            }
        }
        if !change.is(flag::HUGE) {
            change.set(flag::TABLE);
        }
        loop {
            let run = self.index.run(Entry::Present, slot, part, false);
            if run == Part::NONE {
                return None;
            }
            if !self.is_hole(slot, run) {
                return Some(self.to_read(slot, run));
            }
            self.add_hole(change, slot, run);
        }
    }

    /// Pages that the file has as zeroes are present: some of a slot that has memory.
    fn add_hole(&self, change: &Change<'_>, slot: usize, run: Part) {
        // Small pages that are not there are zero. A frame may have old bytes: they were behind the end.
        if change.is(flag::HUGE) {
            self.memory.zero(self.pages(slot, run));
        }
        self.index.set(Entry::Hole, slot, run);
        self.add(change, slot, run);
    }

    /// Whether its pages come by huge pages, where these are to be had.
    pub fn is_huge(&self) -> bool {
        match self.knobs.get(Knob::ThpPagecache) {
            _ if !HAS_HUGE => false,
            ALWAYS => self.length() > 0,
            ADVISE => self.length() >= LEAST_HUGE && self.backing.is_huge(),
            _ => false,
        }
    }

    /// The same of one slot: what was advised for it counts first.
    pub(super) fn is_huge_at(&self, slot: usize) -> bool {
        // A frame that moves cannot be protected in the same moment.
        if !HAS_HUGE || self.is_told(slot) {
            return false;
        }
        let advice = self.index.state(slot) & (flag::BY_HUGE | flag::BY_SMALL);
        match (advice, self.knobs.get(Knob::ThpPagecache)) {
            (flag::BY_SMALL, _) => false,
            (flag::BY_HUGE, ALWAYS | ADVISE) => true,
            _ => self.is_huge(),
        }
    }

    /// Whether a slot has the memory of a huge page, and none of its bytes yet.
    fn is_new_frame(change: &Change<'_>) -> bool {
        change.is(flag::HUGE) && !change.is(flag::FILLED)
    }

    /// Ends what [`Cache::begin`] has begun: the pages are present, if they could be read.
    pub(super) fn end(
        &self,
        change: &Change<'_>,
        slot: usize,
        run: Run,
        read: Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let is_frame = Self::is_new_frame(change);
        let checked = read.and_then(|read| self.check(run, read));
        if run.stage != Stage::Own {
            return self.end_staged(change, slot, run, checked);
        }
        match checked {
            Ok(()) => {
                self.counters.add(Counter::FileAlloc, is_frame as u64);
                self.add(change, slot, run.part);
            }
            // Only now is it known that the frame is of no use.
            Err(_) if is_frame => {
                self.empty(self.slot_span(slot));
                change.unset(flag::HUGE);
                change.set(flag::TABLE);
            }
            Err(_) if !change.is(flag::HUGE) => self.empty(run.to),
            Err(_) => {}
        }
        checked
    }

    /// Moves a frame to an empty slot; what is in it.
    fn move_frame_in(&self, to: usize, need: Need) -> Option<Kind> {
        let Frame { at, kind } = self.take_frame(need)?;
        let moved = self.memory.move_in(at, to);
        let is_left = !moved && self.memory.drop_unless_whole(at);
        self.store.give(at, if is_left { kind } else { Kind::Unbacked });
        moved.then_some(kind)
    }

    pub(super) fn to_read(&self, slot: usize, part: Part) -> Run {
        let offset = slot * SLOT + part.first * PAGE;
        let expected = self.length().saturating_sub(offset).min(part.count * PAGE);
        Run { part, offset: offset as u64, to: self.pages(slot, part), stage: Stage::Own, expected }
    }

    pub(super) fn is_hole(&self, slot: usize, part: Part) -> bool {
        let run = self.to_read(slot, part);
        self.backing.is_hole(run.offset, run.expected)
    }

    /// Whether that many bytes are all that pages have in the file. Zeroes what is behind the end in the last of them.
    fn check(&self, run: Run, read: usize) -> Result<(), Errno> {
        self.counters.add(Counter::FileFilled, read.min(run.expected) as u64);
        if read < run.expected {
            // Another process made the file shorter. Zeroes would be a lie.
            return Err(Errno::EIO);
        }
        if run.expected < run.to.bytes() {
            self.memory.zero(Span { start: run.to.start + run.expected, ..run.to });
        }
        Ok(())
    }
}
