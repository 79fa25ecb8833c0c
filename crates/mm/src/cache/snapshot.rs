//! Snapshots of a file: what a part of it held at one moment, while it goes on changing.
//!
//! A page that no snapshot has a copy of is what the file has: in memory, or where its bytes come from. This holds
//! because a page is copied before it is first written to, and only what is in memory is ever written back. So taking a
//! snapshot touches no page that no mapping can write to. Whose a page is, is computed ([`Chain`]).
//!
//! | who writes | the copy is made |
//! |---|---|
//! | calls | by them, before they write |
//! | lazy mappings | for the message of the write: it waits ([`FileMemory::tells_writes`]) |
//! | mappings that hold their pages | when they begin; the caller takes no snapshot while there are any |
//! | calls that take bytes away | by them, of all that goes |
//!
//! What protects it: the copies of a slot, and their bits, change and are read with the slot's lock. A snapshot is taken
//! while no call uses the file. Writes through mappings meanwhile wait in `let_write_through`, once their page
//! is protected: that is the moment.

use core::sync::atomic::Ordering::{Acquire, Release};

use faultless_base::sync::atomic::AtomicBool;
use faultless_base::sync::{Late, Lock};
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::stats::Counter;

use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, flag};
use crate::cache::{Cache, Use};
use crate::owner::Walks;
use crate::owner::chain::{Chain, Need};
use crate::owner::pages::PageSet;
use crate::region::change::Refused;

/// The snapshots of a file.
pub(super) struct Moments {
    /// Comes with the first.
    chain: Late<Chain>,
    /// Held while one is taken, when `is_taking` says so, too.
    taking: Lock<()>,
    is_taking: AtomicBool,
}

impl Moments {
    pub(super) fn new() -> Self {
        Self { chain: Late::new(), taking: Lock::new(()), is_taking: AtomicBool::new(false) }
    }
}

fn part_of(run: core::ops::Range<usize>) -> Part {
    Part { first: run.start, count: run.len() }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The snapshots, if there are any.
    fn chain(&self) -> Option<&Chain> {
        self.moments.chain.get().filter(|chain| !chain.is_empty())
    }

    /// Whether there are any.
    pub fn has_snapshots(&self) -> bool {
        self.chain().is_some()
    }

    /// Whether writes to pages of a slot wait until they are let through.
    pub(super) fn is_told(&self, slot: usize) -> bool {
        self.index.state(slot) & flag::TRACKED != 0 && self.memory.tells_writes()
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Walks) -> T) -> T {
        let mut walks = Walks::default();
        let answer = question(&mut walks);
        walks.counts().into_iter().for_each(|(counter, n)| self.counters.add(counter, n));
        answer
    }

    /// What a write to a slot needs. The caller has its lock.
    fn needed(&self, chain: &Chain, slot: usize) -> Option<Need> {
        self.ask(|walks| chain.need(self.slot_span(slot).start, walks))
    }

    /// Takes a snapshot of a range of bytes inside the file. No call uses the file meanwhile. All mappings that can write
    /// there are lazy, and their writes are told.
    pub fn snapshot(&self, offset: usize, bytes: usize) -> Result<usize, Refused> {
        let start = self.span.start;
        let span =
            Span { start: start + offset / SLOT * SLOT, end: start + (offset + bytes).next_multiple_of(SLOT) };
        if bytes == 0 || span.clip(self.span) != span {
            return Err(Refused::Outside);
        }
        if self.moments.chain.get().is_none() {
            self.moments.chain.set(Chain::new(self.span).ok_or(Refused::NoMemory)?);
        }
        let chain = self.moments.chain.get().ok_or(Refused::NoMemory)?;
        let id = chain.number().ok_or(Refused::TooManySnapshots)?;
        let taken = match self.memory.reserve(span.bytes()) {
            None => Err(Refused::NoMemory),
            Some(copies) if !self.memory.open(copies) => {
                self.memory.release(copies);
                Err(Refused::NoMemory)
            }
            Some(copies) => self.take(chain, id, span, copies.start).inspect_err(|_| self.memory.release(copies)),
        };
        self.counters.add(Counter::SnapshotTaken, taken.is_ok() as u64);
        taken.map(|()| id).inspect_err(|_| chain.free(id))
    }

    fn take(&self, chain: &Chain, id: usize, span: Span, copies: usize) -> Result<(), Refused> {
        // A sync may have pages come back unprotected, after copies for the snapshots that there are.
        let _syncing = self.syncing.lock();
        let _taking = self.moments.taking.lock();
        self.moments.is_taking.store(true, Release);
        let protect = || {
            for (slot, ..) in self.parts(span.start - self.span.start, span.bytes()) {
                if self.is_tracked(slot) {
                    let _change = self.change(slot);
                    let whole = self.slot_span(slot);
                    if !self.memory.take_changes(whole, &mut |run| _ = self.soil_run(slot, run)) {
                        // What was written to is not known.
                        self.soil_run(slot, whole);
                        return Err(Refused::Kernel(Errno::ENOSYS));
                    }
                }
            }
            Ok(())
        };
        let protected = protect().map(|()| chain.push(id, span, copies));
        self.moments.is_taking.store(false, Release);
        protected
    }

    /// Lets a write of the program to a page go through, after a copy if a snapshot needs one. False: it waits for
    /// something else.
    pub(super) fn let_write_through(&self, slot: usize, page: Part) -> bool {
        if !self.is_told(slot) {
            return false;
        }
        loop {
            let change = self.change(slot);
            // Who takes a snapshot says so before it locks the first slot.
            if !self.moments.is_taking.load(Acquire) {
                let is_there = self.index.has(Entry::Present, slot, page);
                if is_there {
                    self.let_write(slot, page);
                    self.counters.add(Counter::SnapshotFault, 1);
                }
                return is_there;
            }
            drop(change);
            drop(self.moments.taking.lock());
        }
    }

    /// A thread of the library is about to write to pages that are present. The caller has a pin.
    pub(super) fn before_write(&self, slot: usize, part: Part) {
        if self.has_snapshots() || self.is_told(slot) {
            let _change = self.change(slot);
            self.let_write(slot, part);
        }
    }

    /// The same. The caller has the slot's lock, with which it must not wait for a message.
    pub(super) fn let_write(&self, slot: usize, part: Part) {
        self.preserve(slot, part, self.pages(slot, part).start);
        self.open_to_writes(slot, part);
    }

    /// Lets writes to pages of a slot through. Snapshots need nothing of them.
    pub(super) fn open_to_writes(&self, slot: usize, part: Part) {
        if part.count > 0 && self.is_told(slot) {
            // Where it fails the write asks again.
            let _ = self.memory.note_again(self.pages(slot, part));
        }
    }

    /// Copies what snapshots need of pages, of which the bytes are at `from`. The caller has the slot's lock.
    pub(super) fn preserve(&self, slot: usize, part: Part, from: usize) {
        let Some(chain) = self.chain() else { return };
        let Some(need) = self.needed(chain, slot) else { return };
        let at = self.slot_span(slot).start;
        let wanted = PageSet::of(part.first..part.first + part.count) - need.settled;
        for run in wanted.runs() {
            let bytes = run.len() * PAGE;
            let from = Span::new(from + (run.start - part.first) * PAGE, bytes);
            self.memory.copy(from, need.at + run.start * PAGE);
            chain.take(need.id, at, PageSet::of(run));
            self.counters.add(Counter::SnapshotCopied, bytes as u64);
            self.counters.add(Counter::snapshot_copies(bytes), 1);
        }
    }

    /// Copies all that snapshots need of a range of bytes inside the file, which comes for that. It may be written to
    /// afterwards, or go.
    pub fn preserve_range(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let Some(chain) = self.chain() else { return Ok(()) };
        for (slot, _, part) in self.parts_by(offset, bytes, self.step()) {
            let wanted = {
                let _change = self.change(slot);
                let pages = PageSet::of(part.first..part.first + part.count);
                self.needed(chain, slot).map_or(PageSet::default(), |need| pages - need.settled)
            };
            for run in wanted.runs().map(part_of) {
                if !self.note_hole(chain, slot, run) {
                    let _pin = self.bring(slot, run)?;
                    let _change = self.change(slot);
                    self.preserve(slot, run, self.pages(slot, run).start);
                }
            }
        }
        Ok(())
    }

    /// The same of what is in memory, from a page on.
    pub fn preserve_present(&self, offset: usize) {
        if !self.has_snapshots() {
            return;
        }
        let bytes = self.length().saturating_sub(offset);
        for (slot, _, part) in self.parts(offset, bytes) {
            let _change = self.change(slot);
            let mut rest = part;
            loop {
                let run = self.index.run(Entry::Present, slot, rest, true);
                if run == Part::NONE {
                    break;
                }
                self.preserve(slot, run, self.pages(slot, run).start);
                let next = run.first + run.count;
                rest = Part { first: next, count: part.first + part.count - next };
            }
        }
    }

    /// The same where the file ends at `length` by others: what was in no memory is gone for the snapshots.
    pub(super) fn preserve_cut(&self, length: usize) {
        let Some(chain) = self.chain() else { return };
        let page = length / PAGE * PAGE;
        let tail = Part { first: page % SLOT / PAGE, count: 1 };
        let has_tail = self.index.has(Entry::Present, page / SLOT, tail);
        self.preserve_present(page);
        chain.cut(self.span.start + if has_tail { page } else { length });
    }

    /// Notes that snapshots have zeroes in pages that are not in memory, if these are a hole of the file.
    fn note_hole(&self, chain: &Chain, slot: usize, run: Part) -> bool {
        let _change = self.change(slot);
        let is_missing = self.index.run(Entry::Present, slot, run, true) == Part::NONE;
        let is_hole = is_missing && self.is_hole(slot, run);
        if is_hole && let Some(need) = self.needed(chain, slot) {
            let pages = PageSet::of(run.first..run.first + run.count) - need.settled;
            chain.take(need.id, self.slot_span(slot).start, pages);
        }
        is_hole
    }

    /// Reads what a snapshot has, from a byte of the file on, inside its range. The buffer is no memory of the file. No
    /// call takes bytes of the file away meanwhile.
    pub fn read_snapshot(&self, id: usize, offset: usize, buffer: &mut [u8]) -> Result<(), Errno> {
        let Some(chain) = self.moments.chain.get() else { return Ok(()) };
        let cut = chain.cut_at(id).saturating_sub(self.span.start);
        // Of a page that was cut, and was not in memory, a later copy has zeroes there.
        if offset + buffer.len() > cut && !cut.is_multiple_of(PAGE) && offset < cut.next_multiple_of(PAGE) {
            return Err(Errno::EIO);
        }
        let mut rest = buffer;
        for (slot, bytes, part) in self.parts(offset, rest.len()) {
            let (to, behind) = core::mem::take(&mut rest).split_at_mut(bytes.bytes());
            rest = behind;
            let all = PageSet::of(part.first..part.first + part.count);
            let live = self.read_copies(chain, id, slot, all, bytes, to);
            for run in live.runs() {
                let run = self.pages(slot, part_of(run)).clip(bytes);
                self.read_live(
                    run.start - self.span.start,
                    cut,
                    &mut to[run.start - bytes.start..run.end - bytes.start],
                )?;
            }
            if !live.is_empty() {
                // A write that came meanwhile has left a copy before.
                self.read_copies(chain, id, slot, live, bytes, to);
            }
        }
        Ok(())
    }

    /// Reads what snapshots have of some pages; which they do not have. With the lock of the slot: no copy goes.
    fn read_copies(
        &self,
        chain: &Chain,
        id: usize,
        slot: usize,
        mut wanted: PageSet,
        bytes: Span,
        to: &mut [u8],
    ) -> PageSet {
        let _change = self.change(slot);
        let at = self.slot_span(slot).start;
        while !wanted.is_empty()
            && let Some((copies, has)) = self.ask(|walks| chain.owner(id, at, wanted, walks))
        {
            for run in has.runs() {
                let run = self.pages(slot, part_of(run)).clip(bytes);
                let to = &mut to[run.start - bytes.start..run.end - bytes.start];
                self.memory.copy(Span::new(copies + (run.start - at), run.bytes()), to.as_mut_ptr() as usize);
            }
            wanted = wanted - has;
        }
        wanted
    }

    /// Reads bytes of the file as it is, before `cut`.
    fn read_live(&self, offset: usize, cut: usize, to: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < to.len() {
            // Others have made it shorter.
            if offset + to.len() > self.length().min(cut) {
                return Err(Errno::EIO);
            }
            done += self.with(offset + done, to.len() - done, Use::Read, |from| {
                let at = from.start - self.span.start - offset;
                self.memory.copy(from, to[at..at + from.bytes()].as_mut_ptr() as usize);
            })?;
        }
        Ok(())
    }

    /// Drops a snapshot, which no thread uses any more. What only it had is gone; the rest goes to who needs it.
    pub fn drop_snapshot(&self, id: usize) {
        let Some(chain) = self.moments.chain.get() else { return };
        chain.begin_to_drop(id);
        let span = chain.span(id);
        for (slot, ..) in self.parts(span.start - self.span.start, span.bytes()) {
            let _change = self.change(slot);
            let at = self.slot_span(slot).start;
            if chain.own(id, at).is_empty() {
                continue;
            }
            if let Some((heir, needed)) = self.ask(|walks| chain.heir(id, at, walks)) {
                let (from, to) = (chain.copies(id, at), chain.copies(heir, at));
                for run in needed.runs() {
                    let bytes = run.len() * PAGE;
                    self.memory.copy(Span::new(from + run.start * PAGE, bytes), to + run.start * PAGE);
                    self.counters.add(Counter::SnapshotPassed, bytes as u64);
                }
                chain.take(heir, at, needed);
            }
            chain.leave(id, at);
        }
        self.memory.release(chain.remove(id));
    }

    /// How many bytes of its own a snapshot has.
    pub fn snapshot_held(&self, id: usize) -> usize {
        self.moments.chain.get().map_or(0, |chain| chain.held(id) * PAGE)
    }

    /// Gives the memory of all snapshots back.
    pub(super) fn release_snapshots(&self) {
        if let Some(chain) = self.moments.chain.get() {
            chain.each(|_, copies| self.memory.release(copies));
        }
    }
}
