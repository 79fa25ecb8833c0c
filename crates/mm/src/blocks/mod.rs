//! Large blocks for malloc and its family: runs inside a carved slot up to 2 MiB, whole slots above.
//!
//! No call waits for another thread. Where a lock is taken, another shard serves, or the C library. A block that
//! comes back meanwhile is noted, and a later call takes it in (`later.rs`). Bytes lost by rounding up are charged to
//! the budget, so that a program with many odd-sized blocks does not grow by it.

pub mod attributes;
mod examine;
pub mod resize;

use faultless_base::sync::TryGuard;
use faultless_base::sys::Sys;
use faultless_base::{Pages, SLOT, Slot, Span, UNIT};

use crate::frame::arena::Arena;
use crate::frame::carver::{Given, Piece};
use crate::frame::extent::Extent;
use crate::frame::purpose::{Need, Purpose};
use crate::frame::runs::{Content, Run};
use crate::frame::sizes::Sizes;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// The largest blocks that the C library may keep in its heap (`DEFAULT_MMAP_THRESHOLD_MAX` of glibc).
pub const LARGEST_OF_HEAP: usize = 32 << 20;

/// Memory for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Its address.
    pub addr: usize,
    /// Whether it is known to be zero.
    pub zero: bool,
}

/// How many blocks the program has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Their number.
    pub blocks: usize,
    /// Their bytes together.
    pub bytes: usize,
}

impl InUse {
    fn add(&mut self, bytes: usize) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}

impl<S: Sys> Space<S> {
    /// A block of at least `bytes` bytes at a multiple of `align` bytes (a power of two). `None`: ask the C
    /// library. With [`Need::Any`], or inside a slot, the memory may hold old bytes: see [`Allocated::zero`].
    pub fn allocate(&self, cpu: usize, bytes: usize, align: usize, need: Need) -> Option<Allocated> {
        let shard = self.shard(cpu);
        if !shard.later.is_empty() {
            self.take_in(shard);
        }
        if bytes <= LARGEST_OF_HEAP && self.budget.leaves_blocks() {
            return None;
        }
        if bytes <= SLOT && align <= UNIT {
            return self.allocate_run(shard, bytes);
        }
        self.worker.cpus.note_program(cpu);
        self.allocate_slots(shard, bytes, align.div_ceil(SLOT), need)
    }

    fn allocate_run(&self, shard: &Shard, bytes: usize) -> Option<Allocated> {
        let pages = Pages::holding(bytes.max(1));
        let carved = |shard: &Shard| {
            let mut arena = shard.lock_soon()?;
            let run = arena.carver.take_run(pages);
            if run.is_some() {
                self.note_unused_units(shard, &arena);
                shard.count_block(Some(&arena), bytes);
            }
            Some(run.map(|run| Allocated { addr: run.slot.addr(shard.base) + run.unit * UNIT, zero: run.zero }))
        };
        // Other shards are asked only where this one's lock is taken.
        let found = carved(shard).unwrap_or_else(|| self.shards_from(shard).skip(1).find_map(carved)?);
        if found.is_some() {
            return found;
        }
        if !self.may_begin(shard, bytes) {
            return None;
        }
        let (shard, e) = self.take(shard, 1, 1, Purpose::Malloc)?;
        let was = shard.slots.was(e.first);
        self.prepare(shard, e, Purpose::Malloc, State::InTransit);
        let content = match was {
            State::Dirty => Content::Old,
            _ if self.check => Content::Old,
            State::Unbacked if !shard.slots.has(e.first, flag::ADVISED) => Content::Nothing,
            _ => Content::Zero,
        };
        let Some(mut arena) = shard.lock_soon() else {
            self.take_block_back(shard, e);
            return None;
        };
        let zero = arena.carver.carve_slot(e.first, pages, content);
        self.note_unused_units(shard, &arena);
        shard.count_block(Some(&arena), bytes);
        Some(Allocated { addr: shard.span(e).start, zero })
    }

    fn allocate_slots(&self, shard: &Shard, bytes: usize, align: usize, need: Need) -> Option<Allocated> {
        let n = bytes.div_ceil(SLOT);
        let pages = Pages::holding(bytes);
        let waste = Pages::of_slots(n) - pages;
        if !self.may_lose(shard, waste.slots_around(), bytes) {
            return None;
        }
        if !self.is_aligned(align) {
            shard.count(Counter::KernelNoSpace, 1);
            return None;
        }
        if !Sizes::may_be(pages) {
            return None;
        }
        if bytes <= LARGEST_OF_HEAP && self.comes_in_vain(n) {
            self.leave_block(shard, bytes);
            return None;
        }
        let (shard, e) = self.take(shard, n, align, Purpose::of_block(need))?;
        shard.sizes.set_pages(e.first, pages);
        self.prepare(shard, e, Purpose::of_block(need), State::Block);
        shard.count_block(shard.lock_soon().as_ref(), bytes);
        self.lose(shard, e, waste);
        self.note_growth(shard, e, shard.span(e));
        Some(Allocated { addr: shard.span(e).start, zero: need == Need::Zero })
    }

    /// A block of whole slots has `waste` more than was asked for, and it counts.
    fn lose(&self, shard: &Shard, e: Extent, waste: Pages) {
        if waste > Pages::NONE {
            shard.slots.mark(e.first, flag::LOSES);
            self.budget.lose(waste);
        }
    }

    /// What counts so of a block of `pages` pages.
    pub(crate) fn lost(&self, shard: &Shard, e: Extent, pages: Pages) -> Pages {
        if shard.slots.has(e.first, flag::LOSES) { Pages::of_slots(e.n) - pages } else { Pages::NONE }
    }

    /// The block in `e` has another length now, `pages` pages. What is left of its last slot counts, or has no memory,
    /// or is charged.
    pub(crate) fn lose_end(&self, shard: &Shard, e: Extent, pages: Pages) {
        let waste = Pages::of_slots(e.n) - pages;
        shard.slots.withdraw(e.first, flag::LOSES);
        if waste.slots_around() <= self.budget.trust() || shard.slots.has(e.last(), flag::TAINTED) {
            return self.lose(shard, e, waste);
        }
        let block = shard.span(e);
        self.strip_slot(shard, e.last(), Span { start: block.start + pages.bytes(), end: block.end });
    }

    /// Gives memory inside slot `i`, which no block uses, back to the kernel. How much the slot still has is not known
    /// then. Whether it is gone.
    fn strip_slot(&self, shard: &Shard, i: Slot, span: Span) -> bool {
        let before = shard.slots.mark(i, flag::FRESH);
        let done = span.is_empty() || self.sys.discard(span);
        let is_empty = done && self.sys.present_pages(shard.slot(i)) == 0;
        if is_empty && before & flag::CHARGED != 0 && shard.slots.has(i, flag::ADVISED) {
            // The next touch brings a huge page all the same.
            return true;
        }
        self.budget.discharge(shard.slots.withdraw(i, flag::CHARGED) as usize);
        if !done {
            // Nothing is sure of what is there: the slot is used no more.
            shard.slots.mark(i, flag::TAINTED);
        }
        let gone = if done { Pages::filled_by(span.bytes()) } else { Pages::NONE };
        self.budget.strip(gone, before & (flag::FRESH | flag::CHARGED) == 0);
        done
    }

    /// Brings the account up to date after a change of carved slots.
    #[inline]
    pub(crate) fn note_unused_units(&self, shard: &Shard, held: &TryGuard<'_, Arena>) {
        self.budget.set_unused(shard.number, held.carver.unused_units());
    }

    /// Whether a block of `bytes` bytes may begin a slot. If not, the C library may have room for it in its own free
    /// memory, which is not known here.
    fn may_begin(&self, shard: &Shard, bytes: usize) -> bool {
        self.make_way(Pages::of_slots(1));
        if self.budget.room() == 0 {
            self.make_room(1);
        }
        let may = self.budget.room() > 0 || self.serves_all();
        if !may {
            self.leave_block(shard, bytes);
        }
        may
    }

    /// Whether no C library serves what is left: then the budget says what is kept, and no block is refused for it.
    fn serves_all(&self) -> bool {
        self.budget.is_strict()
    }

    /// The C library gets a block for want of room.
    fn leave_block(&self, shard: &Shard, bytes: usize) {
        self.budget.leave_block();
        shard.count(Counter::KernelWaste, 1);
        self.promise(Pages::holding(bytes));
    }

    /// Whether a block of `bytes` bytes may take `slots` slots in part. If not, the C library gets it from the kernel.
    fn may_lose(&self, shard: &Shard, slots: usize, bytes: usize) -> bool {
        if slots > 0 && self.budget.trust() < slots {
            self.make_room(slots);
        }
        let may = self.budget.trust() >= slots || self.serves_all();
        if !may {
            self.leave_block(shard, bytes);
        }
        may
    }

    /// Whether blocks like this one, of `n` slots, come and go, and are new memory each time. A small budget keeps what
    /// they leave, but may not trust the program with all of it at once. The C library keeps such blocks itself.
    fn comes_in_vain(&self, n: usize) -> bool {
        const MANY: usize = 64;
        let idle = self.budget.idle();
        let in_vain = idle > 0 && self.budget.is_small() && !self.serves_all() && !self.is_trusted_with(n);
        in_vain && self.budget.note_in_vain(idle) > MANY
    }

    /// Whether `addr` lies in the arena.
    #[inline]
    pub fn owns(&self, addr: usize) -> bool {
        self.span().contains(addr)
    }

    /// Whether `addr`, where some allocator's block starts in the arena, is in memory for blocks of ours. If not, it
    /// is in a mapping of another allocator. That lies in place of the arena's memory, or in a hole that the program
    /// made in a block.
    pub fn holds_block(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        match shard.slots.state(slot) {
            State::Mapped => false,
            State::Block => self.usable(addr) > 0,
            // Small blocks lie close together: where no attribute was changed, the caller is wrong.
            State::Runs => !shard.slots.has(slot, flag::TAINTED) || self.usable(addr) > 0,
            State::Unbacked | State::Dirty | State::Zeroed | State::InTransit => true,
        }
    }

    /// Bytes that the block at `addr`, which is the caller's, may use; 0 when no block starts there. Takes no lock.
    pub fn usable(&self, addr: usize) -> usize {
        let (shard, slot) = self.locate(addr);
        match shard.slots.state(slot) {
            State::Runs if addr % UNIT == 0 => shard.sizes.run_pages(slot, addr % SLOT / UNIT).bytes(),
            State::Block if addr % SLOT == 0 => shard.sizes.pages(slot).bytes(),
            _ => 0,
        }
    }

    /// What blocks the program has. Looks at every slot that was ever used, without a
    /// lock: a change meanwhile may be counted or not.
    pub fn blocks_in_use(&self) -> InUse {
        let mut all = InUse::default();
        for shard in self.all_shards() {
            let mut slot = Slot::new(0);
            while slot < shard.slots.tail() {
                let mut slots = 1;
                match shard.slots.state(slot) {
                    State::Block => {
                        let pages = shard.sizes.pages(slot);
                        slots = pages.slots_around().max(1);
                        all.add(pages.bytes());
                    }
                    State::Runs => shard.sizes.runs(slot).for_each(|run| all.add(run.n * UNIT)),
                    _ => {}
                }
                slot += slots;
            }
        }
        all
    }

    /// Takes the block at `addr` back. False when no block starts there.
    pub fn free(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        let done = addr % UNIT == 0 && self.free_now(shard, slot, addr % SLOT / UNIT);
        if !shard.later.is_empty() {
            self.take_in(shard);
        }
        if self.budget.leaves_blocks() {
            // No block comes here again, and the C library's next one is about to come.
            self.make_way(Pages::NONE);
        }
        done
    }

    /// The same by a note for a later call: for a thread that must not do more now. Takes no lock.
    pub fn free_later(&self, addr: usize) -> bool {
        let starts = self.usable(addr) > 0;
        if starts {
            let (shard, slot) = self.locate(addr);
            self.free_block_later(shard, slot, addr % SLOT / UNIT);
        }
        starts
    }

    /// Frees the block that starts at unit `unit` of a slot, or notes that it is free. False when no block starts
    /// there.
    pub(crate) fn free_now(&self, shard: &Shard, slot: Slot, unit: usize) -> bool {
        match shard.slots.state(slot) {
            State::Runs => self.free_run(shard, slot, unit),
            State::Block if unit == 0 => {
                let pages = shard.sizes.pages(slot);
                let e = Extent { first: slot, n: pages.slots_around() };
                self.budget.regain(self.lost(shard, e, pages));
                if shard.slots.has(e.last(), flag::GIVEN_UP) {
                    // What lies behind it stays.
                    let own = Span { start: shard.slot(e.last()).start, end: shard.span(e).start + pages.bytes() };
                    let _ = self.sys.discard(own);
                }
                self.take_slots_back(shard, e);
                true
            }
            _ => false,
        }
    }

    fn free_run(&self, shard: &Shard, slot: Slot, unit: usize) -> bool {
        let bare = shard.slots.has(slot, flag::TAINTED) && self.reset_run(shard, slot, unit);
        self.give_run(shard, slot, unit, bare)
    }

    /// Gives a run back, `bare`: without its memory. False when none starts there.
    fn give_run(&self, shard: &Shard, slot: Slot, unit: usize, bare: bool) -> bool {
        let Some(mut arena) = shard.lock_soon() else {
            let starts = shard.sizes.run(slot, unit).is_some();
            if starts {
                self.free_block_later(shard, slot, unit);
            }
            return starts;
        };
        let given = arena.carver.give_run(slot, unit, bare);
        self.note_unused_units(shard, &arena);
        drop(arena);
        if given == Some(Given::Emptied) {
            self.take_block_back(shard, Extent::one(slot));
        } else if self.budget.wastes(shard.number, self.shards_in_use()) {
            self.want_worker();
        }
        given.is_some()
    }

    /// Whether memory between small blocks may go back, as far as that is known without waiting.
    pub(crate) fn may_strip(&self) -> bool {
        self.all_shards().any(|shard| shard.lock_soon().is_none_or(|arena| arena.carver.may_strip()))
    }

    /// Gives memory between small blocks back to the kernel, `n` slots' worth or all there is: the bytes given back.
    pub(crate) fn strip_runs(&self, n: usize, counter: Counter) -> usize {
        let mut bytes = 0;
        for shard in self.all_shards() {
            while bytes / SLOT < n {
                let Some(mut arena) = shard.lock_soon() else { break };
                let Some(Piece { slot, run }) = arena.carver.take_wasted() else { break };
                self.note_unused_units(shard, &arena);
                drop(arena);
                let span = shard.run(slot, run);
                let done = self.strip_slot(shard, slot, span);
                let gone = if done { span.bytes() } else { 0 };
                shard.count(counter, gone);
                self.give_run(shard, slot, run.unit, done);
                bytes += gone;
            }
        }
        bytes
    }

    /// A slot whose attributes were changed goes back to the kernel with its last run. Its other runs may live for
    /// long, so the memory of this one goes now, with its attributes: it may be locked. Its place is not used again
    /// before the slot is empty. Whether it is gone.
    fn reset_run(&self, shard: &Shard, slot: Slot, unit: usize) -> bool {
        let Some(n) = shard.sizes.run(slot, unit) else { return false };
        let span = shard.run(slot, Run { unit, n });
        if shard.slots.has(slot, flag::GIVEN_UP) {
            // What lies behind it stays.
            return self.sys.discard(Span::new(span.start, self.usable(span.start)));
        }
        self.sys.reset(span) || self.sys.discard(span)
    }

    pub(crate) fn take_slots_back(&self, shard: &Shard, e: Extent) {
        e.slots().for_each(|i| shard.slots.set(i, State::InTransit));
        shard.sizes.set_pages(e.first, Pages::NONE);
        self.take_block_back(shard, e);
    }
}
