//! Slots whose pages come when they are touched, and go while they are mapped.
//!
//! A slot is *watched* from its first such mapping on, until its file ends here. Then this holds:
//!
//! - A page that is not present in the index has no memory. So an access is a fault, and [`Cache::fault`] resolves it.
//! - Pages come and go each at one moment (`staged`, `Cache::take_out`).
//!
//! It is *tracked* from the first such mapping for writing on: its pages are protected as they come, and the kernel
//! notes which were written to since. Pages that are not protected count as written. A page that is noted is dirty,
//! unless the file has a hole there and the page is zero still. Where writes are told they wait until they are let
//! through, and nothing comes that is not protected: neither holes nor frames.
//!
//! A thread that has the lock of a watched slot touches only pages of it that are present.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};
use faultless_page::stats::Counter;

use crate::cache::backing::Backing;
use crate::cache::group::{Room, Size};
use crate::cache::index::{Change, Entry, Part, flag};
use crate::cache::resize::Zeroes;
use crate::cache::staging::{PLACE_PAGES, Staging};
use crate::cache::{Cache, Use};

const ALL: Part = Part { first: 0, count: SLOT_PAGES };

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// All addresses of the file.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Whether pages around an address come when they are touched.
    pub fn is_watched(&self, offset: usize) -> bool {
        self.index.state(offset / SLOT) & flag::WATCHED != 0
    }

    /// Has pages of a range of bytes inside the file come when they are touched, and has it known which of them are
    /// changed by that.
    pub fn watch(&self, offset: usize, bytes: usize, how: Use) -> Result<(), Errno> {
        if self.staging.get().is_none() {
            let staging = Staging::new(&self.memory, self.index.slots()).ok_or(Errno::ENOMEM)?;
            let span = staging.span();
            if !self.staging.set(staging) {
                self.memory.release(span);
                // Another thread is setting it.
                let mut turn = 0;
                while self.staging.get().is_none() {
                    self.memory.relax(turn);
                    turn += 1;
                }
            }
        }
        for (slot, ..) in self.parts(offset, bytes) {
            let change = self.change(slot);
            self.watch_slot(&change, slot)?;
            if how == Use::Write && !change.is(flag::TRACKED) {
                change.set(flag::TRACKED);
                // Until now only calls and other mappings have written, and have said so.
                let is_known =
                    !change.is(flag::FILLED) || self.memory.take_changes(self.slot_span(slot), &mut |_| {});
                if !is_known && self.memory.tells_writes() {
                    return Err(Errno::ENOSYS);
                }
            }
        }
        Ok(())
    }

    fn watch_slot(&self, change: &Change<'_>, slot: usize) -> Result<(), Errno> {
        if change.is(flag::WATCHED) {
            return Ok(());
        }
        let before = self.share(slot);
        let is_whole = self.index.has(Entry::Present, slot, ALL);
        if change.is(flag::HUGE | flag::TABLE | flag::FILLED) && !is_whole {
            let mut rest = ALL;
            while rest.count > 0 {
                let is_present = self.index.has(Entry::Present, slot, Part { count: 1, ..rest });
                let run = self.index.run(Entry::Present, slot, rest, is_present);
                let pages = self.pages(slot, run);
                // Pages of a hole have come to no access yet, and what is not present may have old bytes.
                let done = if is_present { self.memory.populate(pages) } else { self.memory.discard(pages) };
                if !done {
                    return Err(Errno::ENOMEM);
                }
                let next = run.first + run.count;
                rest = Part { first: next, count: SLOT_PAGES - next };
            }
            self.is_small_now(change);
        } else if is_whole && !change.is(flag::HUGE) && !self.memory.populate(self.slot_span(slot)) {
            return Err(Errno::ENOMEM);
        }
        let is_watched = self.memory.watch(self.slot_span(slot));
        if is_watched {
            change.set(flag::WATCHED);
        }
        self.count(before, self.share(slot));
        if is_watched { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Not all of a huge page is there any more.
    pub(super) fn is_small_now(&self, change: &Change<'_>) {
        if change.is(flag::HUGE) {
            change.unset(flag::HUGE);
            change.set(flag::TABLE);
            self.counters.add(Counter::FileSplit, 1);
        }
    }

    /// Brings the page of an access to a watched slot; `hint` tells threads apart. Threads that wait for it are not
    /// woken; where they may wait. EFAULT: it is behind the end.
    pub fn fault(&self, addr: usize, how: Use, hint: usize) -> Result<(), Errno> {
        let offset = (addr - self.span.start) / PAGE * PAGE;
        if offset >= self.length() {
            return Err(Errno::EFAULT);
        }
        let (slot, part) = (offset / SLOT, Part { first: offset % SLOT / PAGE, count: 1 });
        if self.index.has(Entry::Present, slot, part) {
            self.forget_dropped(slot, part);
        }
        if how == Use::Write && self.let_write_through(slot, part) {
            return Ok(());
        }
        self.counters.add(Counter::FileFault, 1);
        let again = self.staging.get().map(Staging::recent).filter(|recent| recent.is_again(offset / PAGE, hint));
        if let Some(recent) = again {
            // Before it comes: it is not to go at once.
            recent.note_needed(slot, self.store.now_ms());
        }
        let size = if again.is_some() { Size::Small } else { Size::Any };
        let bring = |room: &mut Room<'_>| {
            self.bring_for(slot, how, || match again {
                Some(_) => self.bring_beside(slot, part, Zeroes::NONE, room),
                None => self.bring_new(slot, part, Zeroes::NONE, room),
            })
        };
        let _pin = self.pin_with_room(slot, part, size, bring)?;
        if how == Use::Write {
            // It has come protected.
            self.let_write_through(slot, part);
        }
        Ok(())
    }

    /// The program may have dropped a page by a call of its own, with what was written there.
    fn forget_dropped(&self, slot: usize, part: Part) {
        let change = self.change(slot);
        if self.index.has(Entry::Present, slot, part) && !self.memory.is_there(self.pages(slot, part).start) {
            change.void_reads(part);
            let before = self.share(slot);
            self.is_small_now(&change);
            for entry in [Entry::Present, Entry::Hole, Entry::Dirty] {
                self.index.unset(entry, slot, part);
            }
            self.count(before, self.share(slot));
        }
    }

    /// Makes the page of an access that cannot be brought an error for each access, until a call brings or drops it.
    pub fn poison(&self, addr: usize) {
        let offset = (addr - self.span.start) / PAGE * PAGE;
        let (slot, part) = (offset / SLOT, Part { first: offset % SLOT / PAGE, count: 1 });
        let change = self.change(slot);
        if change.is(flag::WATCHED) && !self.index.has(Entry::Present, slot, part) {
            let _ = self.memory.poison(self.span.start + offset);
        }
    }

    /// Looks which pages of a range were written to where they are mapped: they are dirty.
    pub fn note_changes(&self, offset: usize, bytes: usize) {
        for (slot, ..) in self.parts(offset, bytes) {
            if self.is_tracked(slot) {
                let _change = self.change(slot);
                self.find_changes(slot, ALL);
            }
        }
    }

    /// Whether pages of a slot may have changed without a call.
    pub(super) fn is_tracked(&self, slot: usize) -> bool {
        const BOTH: usize = flag::TRACKED | flag::FILLED;
        self.index.state(slot) & BOTH == BOTH
    }

    /// The same of one slot, of which the caller has the lock. Whether some page is dirty for that.
    pub(super) fn find_changes(&self, slot: usize, part: Part) -> bool {
        let mut is_any = false;
        let mut soil = |run: Span| is_any |= self.soil_run(slot, run);
        let is_known = self.memory.take_changes(self.pages(slot, part), &mut soil);
        if !is_known {
            soil(self.pages(slot, part));
        }
        is_any
    }

    /// Pages of a slot were written to, or may have been.
    pub(super) fn soil_run(&self, slot: usize, run: Span) -> bool {
        let start = self.slot_span(slot).start;
        let (mut is_any, mut zeroes) = (false, Span::new(run.start, 0));
        for at in (run.start..run.end).step_by(PAGE) {
            let page = Part { first: (at - start) / PAGE, count: 1 };
            if !self.index.has(Entry::Present, slot, page) {
                continue;
            }
            if self.soil_page(slot, page) {
                is_any = true;
            } else if zeroes.end == at {
                zeroes.end += PAGE;
            } else {
                is_any |= self.note_zeroes(slot, zeroes);
                zeroes = Span::new(at, PAGE);
            }
        }
        self.note_zeroes(slot, zeroes) | is_any
    }

    /// Pages of a hole that are zero still, though something was to be written there: a device may be about to do that.
    /// So they are looked at again. Whether they are dirty.
    fn note_zeroes(&self, slot: usize, zeroes: Span) -> bool {
        if zeroes.is_empty() || !self.is_told(slot) && self.memory.note_again(zeroes) {
            return false;
        }
        let first = (zeroes.start - self.slot_span(slot).start) / PAGE;
        self.index.set(Entry::Dirty, slot, Part { first, count: zeroes.bytes() / PAGE });
        true
    }

    /// Lets all pages of a tracked slot go that is clean, as far as they stay so. Whether all went. No thread has a
    /// pin, but the program may write where it is mapped.
    ///
    /// A page is copied; then it must not have been noted as written, so the copy is what the file has; then it moves
    /// away. If it differs from the copy by then, it was written to in between, and moves back.
    pub(super) fn take_out(&self, change: &Change<'_>, slot: usize) -> bool {
        let Some(staging) = self.staging.get() else { return false };
        let Some(copy) = staging.take() else { return false };
        let aside = self.take_empty_place();
        let before = self.share(slot);
        let mut is_all = aside.is_some();
        if let Some(aside) = aside {
            self.is_small_now(change);
            let mut rest = ALL;
            loop {
                let run = self.index.run(Entry::Present, slot, rest, true);
                let run = Part { count: run.count.min(PLACE_PAGES), ..run };
                if !is_all || run.count == 0 {
                    break;
                }
                is_all = self.take_run(slot, run, copy, aside);
                let next = run.first + run.count;
                rest = Part { first: next, count: SLOT_PAGES - next };
            }
            staging.give(aside);
        }
        staging.give(copy);
        self.count(before, self.share(slot));
        is_all
    }

    fn take_run(&self, slot: usize, run: Part, copy: usize, aside: usize) -> bool {
        let pages = self.pages(slot, run);
        self.memory.copy(pages, copy);
        if self.find_changes(slot, run) {
            return false;
        }
        let moved = match self.memory.move_pages(pages, aside) {
            Ok(()) => pages.bytes(),
            Err(stopped) => stopped.done,
        };
        let gone = Part { count: moved / PAGE, ..run };
        if self.memory.is_same(Span::new(aside, moved), copy) {
            self.index.unset(Entry::Present, slot, gone);
            self.index.unset(Entry::Hole, slot, gone);
        } else {
            // It comes back unprotected.
            self.preserve(slot, gone, copy);
            self.move_back(Span::new(aside, moved), pages.start);
            self.index.set(Entry::Dirty, slot, gone);
        }
        let _ = self.memory.discard(Span::new(aside, PLACE_PAGES * PAGE));
        moved == pages.bytes() && self.index.run(Entry::Present, slot, gone, true) == Part::NONE
    }

    /// Moves pages back that are nowhere else: it does not give up.
    pub(super) fn move_back(&self, from: Span, to: usize) {
        let (mut done, mut turn) = (0, 0);
        while done < from.bytes() {
            match self.memory.move_pages(Span { start: from.start + done, ..from }, to + done) {
                Ok(()) => return,
                Err(stopped) => done += stopped.done,
            }
            self.memory.relax(turn);
            turn += 1;
        }
    }
}
