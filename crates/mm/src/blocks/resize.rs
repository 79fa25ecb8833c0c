//! What realloc asks for: a block resized where it stands, or moved by its page tables.

use faultless_base::sys::Sys;
use faultless_base::{Pages, SLOT, Slot, Span, UNIT};

use crate::frame::arena::Arena;
use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::purpose::Purpose;
use crate::frame::sizes::Sizes;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

impl<S: Sys> Space<S> {
    /// Makes the block at `addr` `bytes` bytes long, where it stands or by moving page tables: its address.
    /// `None`: nothing changed; allocate, copy and free. Waits for no other thread.
    pub fn resize(&self, cpu: usize, addr: usize, bytes: usize) -> Option<usize> {
        let (shard, slot) = self.locate(addr);
        // What the program has done to a block holds for what is added to it as well, as it does in the C library.
        if bytes > self.usable(addr) && self.has_attributes(addr) {
            return None;
        }
        if shard.slots.state(slot) == State::Runs {
            let unit = addr % SLOT / UNIT;
            let mut arena = shard.lock_soon()?;
            let fits = (1..=SLOT).contains(&bytes) && arena.carver.resize_run(slot, unit, Pages::holding(bytes));
            self.note_unused_units(shard, &arena);
            drop(arena);
            shard.count(Counter::ReallocInPlace, fits as usize);
            return fits.then_some(addr);
        }
        let pages = Some(Pages::holding(bytes)).filter(|pages| Sizes::may_be(*pages))?;
        let old_pages = shard.sizes.pages(slot);
        let old = Extent { first: slot, n: old_pages.slots_around() };
        let n = bytes.div_ceil(SLOT);
        if bytes <= SLOT {
            return None;
        }
        let lost = self.lost(shard, old, old_pages);
        let (to, e) = match n > old.n {
            true => self.grow(cpu, shard, old, n)?,
            false => (shard, old.front(n)),
        };
        self.budget.regain(lost);
        to.sizes.set_pages(e.first, pages);
        self.lose_end(to, e, pages);
        if n < old.n {
            self.take_slots_back(shard, old.behind(n));
        }
        let at = to.span(e).start;
        shard.count(Counter::ReallocInPlace, (at == addr) as usize);
        Some(at)
    }

    /// Makes a block of whole slots `n` slots long: where it is then.
    fn grow<'a>(&'a self, cpu: usize, shard: &'a Shard, old: Extent, n: usize) -> Option<(&'a Shard, Extent)> {
        let whole = Extent { n, ..old };
        let more = whole.behind(old.n);
        // Idle memory only as far as the program may get it.
        let trusted = self.is_trusted_with(more.n) && self.may_use(shard);
        let is_hole = |i: Slot| shard.slots.state(i) == State::Unbacked;
        let fits = |arena: &mut Arena| (trusted || more.slots().all(is_hole)) && arena.take_at(more);
        if more.end() <= shard.slots.tail() && shard.lock_soon().is_some_and(|mut arena| fits(&mut arena)) {
            self.gather(shard, more);
            self.prepare(shard, more, Purpose::Malloc, State::Block);
            self.note_growth(shard, more, shard.span(more));
            return Some((shard, whole));
        }
        if old.slots().any(|i| shard.slots.has(i, flag::FORKED)) {
            return None;
        }
        let to = self.shard(cpu);
        let e = self.move_block(shard, old, to, n)?;
        let more = e.behind(old.n);
        self.note_growth(to, more, to.span(more));
        Some((to, e))
    }

    /// The pages of a block have moved away, and nothing is mapped at `span`. Maps it again, so that the block can be freed;
    /// false: the program has mapped something there, or the kernel refuses.
    pub fn map_again(&self, span: Span) -> bool {
        self.taint(span);
        self.sys.map_again(span)
    }

    /// The block at `addr` is gone, and its place is not the arena's any more.
    pub fn lose_block(&self, addr: usize) {
        let (shard, slot) = self.locate(addr);
        if shard.slots.state(slot) == State::Block {
            let pages = shard.sizes.pages(slot);
            let block = Extent { first: slot, n: pages.slots_around() };
            self.budget.regain(self.lost(shard, block, pages));
            shard.sizes.set_pages(slot, Pages::NONE);
            block.slots().for_each(|i| shard.slots.set(i, State::InTransit));
            self.lose_slots(shard, block);
        }
    }

    /// Moves the pages of a block by page tables into the first of `n` fresh slots, and takes the old place back.
    fn move_block(&self, shard: &Shard, old: Extent, to: &Shard, n: usize) -> Option<Extent> {
        let e = to.lock_soon()?.take_holes(n, 1, &self.sys)?;
        self.gather(to, e.behind(old.n));
        self.prepare(to, e, Purpose::Copy, State::InTransit);
        old.slots().for_each(|i| shard.slots.set(i, State::InTransit));
        let left = self.is_left(shard.span(old));
        if !left || !self.sys.migrate(shard.span(old), to.span(e).start) {
            shard.count(Counter::KernelRefused, left as usize);
            old.slots().for_each(|i| shard.slots.set(i, State::Block));
            self.take_block_back(to, e);
            return None;
        }
        old.slots().zip(e.slots()).for_each(|(i, j)| self.pass_on(shard, i, to, j));
        e.slots().for_each(|i| to.slots.set(i, State::Block));
        shard.sizes.set_pages(old.first, Pages::NONE);
        // The old place is mapped and empty now, and open, unless the program has closed it.
        self.examine(shard, old);
        old.groups(
            |i| shard.slots.has(i, flag::ALTERED | flag::TAINTED),
            |g, is_altered| {
                if is_altered && !self.reset(shard, g) {
                    return self.abandon(shard, g);
                }
                g.slots().for_each(|i| _ = shard.slots.clear(i, flag::ALTERED | flag::TAINTED));
                self.put_back(shard, g, Kind::Unbacked, 0);
            },
        );
        shard.count(Counter::ReallocMoved, 1);
        Some(e)
    }

    /// What is known of the memory of slot `i` holds for slot `j` now; the memory itself has moved there.
    fn pass_on(&self, shard: &Shard, i: Slot, to: &Shard, j: Slot) {
        if to.slots.clear(j, flag::CHARGED) {
            self.budget.discharge(1);
        }
        for known in [flag::ADVISED, flag::FRESH, flag::CHARGED, flag::AHEAD, flag::TAINTED, flag::ALIGNED] {
            if shard.slots.has(i, known) {
                to.slots.mark(j, known);
            } else {
                to.slots.clear(j, known);
            }
        }
        shard.slots.clear(i, flag::FRESH | flag::CHARGED | flag::SIGNED | flag::AHEAD | flag::LOSES);
    }
}
