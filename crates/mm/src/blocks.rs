//! Large blocks for malloc and its family: runs inside a carved slot up to 2 MiB, whole slots above.
//!
//! A block of whole slots keeps its size in pages with its first slot. What rounding up costs is charged to the
//! budget's room, so that a program with many odd-sized blocks does not grow by it.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, UNIT};

use crate::arena::Extent;
use crate::purpose::{Need, Purpose};
use crate::runs::UNITS;
use crate::slot::State;
use crate::space::{Shard, Space, Unmap};
use crate::stats::Counter;

/// Memory for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Its address.
    pub addr: usize,
    /// Whether it is known to be zero.
    pub zero: bool,
}

impl<S: Sys> Space<S> {
    /// A block of at least `bytes` bytes at a multiple of `align` bytes (a power of two). `None`: ask the C
    /// library. With [`Need::Any`], or inside a slot, the memory may hold old bytes: see [`Allocated::zero`].
    pub fn allocate(&self, cpu: usize, bytes: usize, align: usize, need: Need) -> Option<Allocated> {
        let shard = self.shard(cpu);
        if bytes <= SLOT && align <= UNIT {
            return self.allocate_run(shard, bytes);
        }
        self.program_cpu.store(cpu + 1, Relaxed);
        self.allocate_slots(shard, bytes, align.div_ceil(SLOT), need)
    }

    fn allocate_run(&self, shard: &Shard, bytes: usize) -> Option<Allocated> {
        let units = bytes.div_ceil(UNIT).max(1);
        let at = |shard: &Shard, slot: usize, unit: usize| shard.base + slot * SLOT + unit * UNIT;
        let mut arena = shard.lock();
        if let Some((slot, unit, zero)) = arena.take_run(units) {
            shard.count_block(&arena, bytes);
            return Some(Allocated { addr: at(shard, slot, unit), zero });
        }
        drop(arena);
        if self.budget.room() == 0 {
            shard.count(Counter::KernelWaste, 1);
            return None;
        }
        let (shard, e) = self.take(shard, 1, 1, Purpose::Malloc)?;
        let zero = shard.slots.was(e.first) != State::Dirty && !self.check;
        if !self.prepare(shard, e, Purpose::Malloc, State::Passage) {
            return None;
        }
        let mut arena = shard.lock();
        arena.carve_slot(e.first, zero);
        let (unit, zero) = arena.carved(e.first).take(units)?;
        shard.count_block(&arena, bytes);
        Some(Allocated { addr: at(shard, e.first, unit), zero })
    }

    fn allocate_slots(&self, shard: &Shard, bytes: usize, align: usize, need: Need) -> Option<Allocated> {
        let n = bytes.div_ceil(SLOT);
        let pages = bytes.div_ceil(PAGE);
        let waste = n * SLOT - pages * PAGE;
        if (self.waste.load(Relaxed) + waste) / SLOT > self.budget.room() / 2 {
            shard.count(Counter::KernelWaste, 1);
            return None;
        }
        let pages = u32::try_from(pages).ok()?;
        let (shard, e) = self.take(shard, n, align, Purpose::of_block(need))?;
        shard.lock().set_value(e.first, pages);
        if !self.prepare(shard, e, Purpose::of_block(need), State::Block) {
            return None;
        }
        shard.count_block(&shard.lock(), bytes);
        self.waste.fetch_add(waste, Relaxed);
        self.note_growth(shard, e);
        Some(Allocated { addr: shard.span(e).start, zero: need == Need::Zero })
    }

    /// Whether `addr` lies in the arena.
    #[inline]
    pub fn owns(&self, addr: usize) -> bool {
        self.span().contains(addr)
    }

    /// Whether `addr`, an address of the arena, lies in memory for blocks. If not it is the program's own mapping, as
    /// of an allocator that gets its memory here.
    pub fn holds_block(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        !shard.slots.state(slot).is_mapped()
    }

    /// Bytes that the block at `addr` may use; 0 when no block starts there.
    pub fn usable(&self, addr: usize) -> usize {
        let (shard, slot) = self.locate(addr);
        match shard.slots.state(slot) {
            State::Runs => shard.lock().carved(slot).len(addr % SLOT / UNIT).unwrap_or(0) * UNIT,
            State::Block if addr % SLOT == 0 => shard.lock().value(slot) as usize * PAGE,
            _ => 0,
        }
    }

    /// Takes the block at `addr` back. False when no block starts there.
    pub fn free(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        match shard.slots.state(slot) {
            State::Runs if addr % UNIT == 0 => {
                let given = shard.lock().give_run(slot, addr % SLOT / UNIT);
                if given == Some(true) {
                    self.take_back(shard, Extent { first: slot, n: 1 }, Unmap::Relaxed);
                }
                given.is_some()
            }
            State::Block if addr % SLOT == 0 => {
                let pages = shard.lock().value(slot) as usize;
                let e = Extent { first: slot, n: (pages * PAGE).div_ceil(SLOT) };
                self.waste.fetch_sub(e.n * SLOT - pages * PAGE, Relaxed);
                self.take_slots_back(shard, e);
                true
            }
            _ => false,
        }
    }

    fn take_slots_back(&self, shard: &Shard, e: Extent) {
        e.slots().for_each(|i| shard.slots.set(i, State::Passage));
        self.take_back(shard, e, Unmap::Relaxed);
    }

    /// Makes the block at `addr` `bytes` bytes long, where it stands or by moving page tables: its address.
    /// `None`: nothing changed; allocate, copy and free.
    pub fn resize(&self, cpu: usize, addr: usize, bytes: usize) -> Option<usize> {
        let (shard, slot) = self.locate(addr);
        if shard.slots.state(slot) == State::Runs {
            let units = bytes.div_ceil(UNIT);
            let fits = (1..=UNITS).contains(&units) && shard.lock().carved(slot).resize(addr % SLOT / UNIT, units);
            shard.count(Counter::ReallocInPlace, fits as usize);
            return fits.then_some(addr);
        }
        let pages = u32::try_from(bytes.div_ceil(PAGE)).ok()?;
        let old_pages = shard.lock().value(slot);
        let old = (old_pages as usize * PAGE).div_ceil(SLOT);
        let n = bytes.div_ceil(SLOT);
        if n == 0 || bytes <= SLOT {
            return None;
        }
        let mut new = (shard, Extent { first: slot, n });
        if n < old {
            self.take_slots_back(shard, Extent { first: slot + n, n: old - n });
        } else if n > old {
            let more = Extent { first: slot + old, n: n - old };
            if shard.lock().take_at(more) {
                if !self.prepare(shard, more, Purpose::Malloc, State::Block) {
                    return None;
                }
                self.note_growth(shard, more);
            } else {
                new.0 = self.shard(cpu);
                let old = Extent { first: slot, n: old };
                if !self.is_plain(shard, old, State::Block) {
                    return None;
                }
                new.1 = self.relocate(shard, old, new.0, n, State::Block)?;
                self.note_growth(new.0, Extent { first: new.1.first + old.n, n: n - old.n });
            }
        }
        if new.1.first == slot {
            shard.count(Counter::ReallocInPlace, 1);
        }
        let waste = |n: usize, pages: u32| n * SLOT - pages as usize * PAGE;
        self.waste.fetch_add(waste(n, pages), Relaxed);
        self.waste.fetch_sub(waste(old, old_pages), Relaxed);
        new.0.lock().set_value(new.1.first, pages);
        Some(new.0.span(new.1).start)
    }
}
