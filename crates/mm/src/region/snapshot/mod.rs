//! Snapshots: what a part of a region held at one moment, while the region goes on changing.
//!
//! Taking one costs no work of ours for any page: the kernel protects the part against writing, in few calls. While it
//! does, the areas there are changing, so no write is let through before all is protected: that is the moment. A write
//! that meets a protected page copies it first (`copy.rs`). A page that is dropped moves to the snapshot
//! (`hand_over.rs`). Who has the bytes of a page is computed ([`chain`](crate::owner::chain)).
//!
//! What protects it: a snapshot comes under an exclusive range, as any change. Reading shares the range of one slot,
//! and takes the entry of this slot to see that what it read was not written to meanwhile. Dropping has the range of
//! one slot after the other alone. A write takes the entry alone, and so waits for no other thread that waits.

mod copy;
mod hand_over;

use faultless_base::sync::Access;
use faultless_base::sys::mmu::{Mmu, Protect, Rights};
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::owner::Walks;
use crate::owner::chain::{Chain, Need};
use crate::owner::pages::PageSet;
use crate::region::area::Attributes;
use crate::region::fault_stats::FaultStats;
use crate::region::{Refused, Region};
pub(crate) use copy::Needed;
use faultless_page::stats::Counter;

impl<M: Mmu> Region<M> {
    /// The snapshots, once there was one.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.snapshots.get().filter(|chain| !chain.is_empty())
    }

    /// Takes a snapshot of a part in whole slots, none of which comes from a backing, and all of which may be read as
    /// far as it is mapped. What is not mapped there, or missing, is zero in it.
    pub fn snapshot(&self, span: Span) -> Result<usize, Refused> {
        let inside = !span.is_empty() && self.span.clip(span) == span;
        if !inside || span.aligned_inside(SLOT) != span {
            return Err(Refused::Outside);
        }
        if self.has_swap() {
            return Err(Refused::Swapped);
        }
        if self.snapshots.get().is_none() {
            self.snapshots.set(Chain::new(self.span).ok_or(Refused::NoMemory)?);
        }
        let mut turn = 0;
        let chain = loop {
            match self.snapshots.get() {
                Some(chain) => break chain,
                // Another thread is putting it there.
                None => self.mmu.relax(turn),
            }
            turn += 1;
        };
        let id = chain.number().ok_or(Refused::TooManySnapshots)?;
        let taken = match self.mmu.reserve(span.bytes()) {
            None => Err(Refused::NoMemory),
            Some(at) => {
                self.take(chain, id, span, at).inspect_err(|_| self.mmu.release(Span::new(at, span.bytes())))
            }
        };
        self.count(Counter::SnapshotTaken, taken.is_ok() as usize, 0);
        taken.map(|()| id).inspect_err(|_| chain.free(id))
    }

    fn take(&self, chain: &Chain, id: usize, span: Span, at: usize) -> Result<(), Refused> {
        let _range = self.ranges.lock(span, Access::Exclusive);
        let (mut suits, mut areas) = (true, 0);
        self.areas.each(span, |view| {
            suits &= view.attributes.rights != Rights::None && !view.attributes.backed;
            areas += 1;
        });
        if !suits {
            return Err(Refused::Rights);
        }
        let kernel = || {
            self.take_from_kernel(span)?;
            // Where the kernel does not say which pages are there, nothing could be read.
            self.mmu.first_there(Span::new(span.start, PAGE)).ok_or(Errno::ENOSYS)?;
            self.protect_from_writes(chain, span)?;
            chain.push(id, span, at);
            Ok(())
        };
        self.change(span, kernel, |view| Some(Attributes { kernel: false, ..view.attributes }))?;
        self.count(Counter::SnapshotAreas, areas, 0);
        Ok(())
    }

    /// Protects all pages of whole slots, which are changing.
    fn protect_from_writes(&self, chain: &Chain, span: Span) -> Result<(), Errno> {
        let mut at = span.start;
        while at < span.end {
            let open = chain.open.first(Span { start: at, ..span });
            for (part, protect) in [(Span { start: at, end: open.start }, Protect::Rest), (open, Protect::All)] {
                if !part.is_empty() {
                    self.mmu.protect_writes(part, protect)?;
                }
            }
            at = open.end;
        }
        chain.open.close(span);
        Ok(())
    }

    /// Drops a snapshot, which no thread uses any more. What only it had is gone; the rest goes to who needs it.
    pub fn drop_snapshot(&self, id: usize) {
        let Some(chain) = self.snapshots.get() else { return };
        chain.begin_to_drop(id);
        let span = chain.span(id);
        for slot in (span.start..span.end).step_by(SLOT) {
            let _range = self.ranges.lock(Span::new(slot, SLOT), Access::Exclusive);
            let _entry = self.entries.lock(slot, |turn| self.mmu.relax(turn));
            if let Some((heir, needed)) = self.ask(|walks| chain.heir(id, slot, walks)) {
                let (from, to) = (chain.copies(id, slot), chain.copies(heir, slot));
                for run in needed.runs() {
                    let run = Span::new(from + run.start * PAGE, run.len() * PAGE);
                    self.each_there(run, |there| {
                        let passed = self.keep(chain, heir, slot, there, to + (there.start - from));
                        self.count(Counter::SnapshotPassed, passed, 0);
                    });
                }
                chain.take(heir, slot, needed);
            }
            chain.leave(id, slot);
        }
        self.mmu.release(chain.remove(id));
    }

    /// How many bytes of its own a snapshot has.
    pub fn snapshot_held(&self, id: usize) -> usize {
        self.snapshots.get().map_or(0, |chain| chain.held(id) * PAGE)
    }

    /// Asks who has, or needs, pages of snapshots; what that took is counted.
    fn ask<T>(&self, question: impl FnOnce(&mut Walks) -> T) -> T {
        let mut walks = Walks::default();
        let answer = question(&mut walks);
        let mut stats = FaultStats::new(0);
        walks.counts().into_iter().for_each(|(counter, n)| stats.add(counter, n as usize));
        self.count_all(&stats);
        answer
    }

    /// What a write to a slot needs. The caller has the entry of the slot.
    fn need(&self, chain: &Chain, slot: usize) -> Option<Need> {
        self.ask(|walks| chain.need(slot, walks))
    }

    /// Reads what a snapshot has at an address of the region, inside its span. The buffer is no memory of the region. An
    /// error where the program itself has closed a part of the region that the snapshot needs, and anywhere in a
    /// snapshot that lacks a copy for want of memory.
    pub fn read_snapshot(&self, id: usize, at: usize, buffer: &mut [u8]) -> Result<(), Refused> {
        let Some(chain) = self.snapshots.get() else { return Ok(()) };
        let (mut at, mut rest) = (at, buffer);
        while !rest.is_empty() {
            let slot = at & !(SLOT - 1);
            let (part, behind) = rest.split_at_mut(rest.len().min(slot + SLOT - at));
            let bytes = part.len();
            if !self.read_slot(chain, id, slot, at - slot, part) {
                return Err(Refused::Rights);
            }
            (at, rest) = (at + bytes, behind);
        }
        match chain.is_incomplete(id) {
            true => Err(Refused::Incomplete),
            false => Ok(()),
        }
    }

    /// The same inside one slot, from a place in it on; whether all could be read.
    fn read_slot(&self, chain: &Chain, id: usize, slot: usize, from: usize, buffer: &mut [u8]) -> bool {
        let _range = self.ranges.lock(Span::new(slot, SLOT), Access::Shared);
        let all = PageSet::of(from / PAGE..(from + buffer.len()).div_ceil(PAGE));
        let live = self.read_copies(chain, id, slot, all, from, buffer);
        let mut closed = PageSet::default();
        for run in live.runs() {
            let pages = Span::new(slot + run.start * PAGE, run.len() * PAGE);
            if !self.read_live(pages, slot, from, buffer) {
                closed = closed | PageSet::of_span(pages);
            }
        }
        if live.is_empty() {
            return true;
        }
        // A write that was let through meanwhile has left a copy before; it did both with this lock.
        drop(self.entries.lock(slot, |turn| self.mmu.relax(turn)));
        let live = self.read_copies(chain, id, slot, live, from, buffer);
        (closed & live).is_empty()
    }

    /// Reads what snapshots have of some pages; which pages they do not have.
    fn read_copies(
        &self,
        chain: &Chain,
        id: usize,
        slot: usize,
        mut wanted: PageSet,
        from: usize,
        buffer: &mut [u8],
    ) -> PageSet {
        while !wanted.is_empty()
            && let Some((copies, has)) = self.ask(|walks| chain.owner(id, slot, wanted, walks))
        {
            for run in has.runs() {
                self.read_run(copies, run.start * PAGE..run.end * PAGE, from, buffer);
            }
            wanted = wanted - has;
        }
        wanted
    }

    /// Reads pages as the region has them; missing ones are zero. Whether all may be read.
    fn read_live(&self, pages: Span, slot: usize, from: usize, buffer: &mut [u8]) -> bool {
        clip(pages.start - slot..pages.end - slot, from, buffer, |_, part| part.fill(0));
        let mut is_open = true;
        self.each_there(pages, |there| {
            is_open &= self.read_run(slot, there.start - slot..there.end - slot, from, buffer);
        });
        is_open
    }

    /// Calls `f` for each run of pages that are there.
    pub(crate) fn each_there(&self, pages: Span, mut f: impl FnMut(Span)) {
        let mut at = pages.start;
        while at < pages.end
            && let Some(there) =
                self.mmu.first_there(Span { start: at, ..pages }).filter(|there| !there.is_empty())
        {
            f(there);
            at = there.end;
        }
    }

    /// Reads a part of a slot's worth of memory at `base`; whether it may be read.
    fn read_run(&self, base: usize, run: core::ops::Range<usize>, from: usize, buffer: &mut [u8]) -> bool {
        let mut is_open = true;
        clip(run, from, buffer, |at, part| is_open = self.mmu.read_bytes(base + at, part));
        is_open
    }

    /// Gives the memory of all snapshots back. No thread uses any of it.
    pub(crate) fn release_snapshots(&self) {
        if let Some(chain) = self.snapshots.get() {
            chain.each(|_, copies| self.mmu.release(copies));
        }
    }
}

/// Gives `f` the part of a buffer that begins at `from` which a range meets, and where that part begins.
fn clip(range: core::ops::Range<usize>, from: usize, buffer: &mut [u8], f: impl FnOnce(usize, &mut [u8])) {
    let (start, end) = (range.start.max(from), range.end.min(from + buffer.len()));
    if start < end {
        f(start, &mut buffer[start - from..end - from]);
    }
}
