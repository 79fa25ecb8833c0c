//! What calls of the program do to its blocks beside reading and writing them.
//!
//! Memory whose attributes changed (protection, locking, policy, inheritance, a pin) must not be handed out again: it
//! goes back to the kernel when its block is freed.

use faultless_base::sys::Sys;
use faultless_base::{Pages, SLOT, Slot, Span};

use crate::frame::arena::Arena;
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::mapping::Change;
use crate::space::{REPLACED_WAIT_NS, Shard, Space};

impl<S: Sys> Space<S> {
    /// Attributes of the blocks in `span` change. The background thread does not come to them any more.
    pub fn taint(&self, span: Span) {
        self.each_part(span, |shard, _, e| {
            for i in e.slots().filter(|&i| matches!(shard.slots.state(i), State::Block | State::Runs)) {
                shard.slots.mark(i, flag::TAINTED);
            }
        });
        self.wait_while_busy(Span { start: span.start & !(SLOT - 1), end: span.end });
    }

    /// The block at `addr` was asked for at the begin of a page.
    pub fn note_page_aligned(&self, addr: usize) {
        let (shard, slot) = self.locate(addr);
        shard.slots.mark(slot, flag::ALIGNED);
    }

    /// Whether it was, or another one of its slot.
    pub fn is_page_aligned(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        shard.slots.has(slot, flag::ALIGNED)
    }

    /// Whether the program has changed attributes of the block at `addr`.
    pub fn has_attributes(&self, addr: usize) -> bool {
        let (shard, slot) = self.locate(addr);
        let n = match shard.slots.state(slot) {
            State::Runs => 1,
            _ => shard.sizes.pages(slot).slots_around().max(1),
        };
        Extent { first: slot, n }.slots().any(|i| shard.slots.has(i, flag::TAINTED))
    }

    /// The program is about to map something of its own over `span`, or to unmap it. The free slots of `span` are
    /// never handed out again, and nothing of ours comes to their memory, also in a forked child. To be called first:
    /// idle slots have memory, which goes then.
    pub fn give_up(&self, span: Span) {
        self.taint(span);
        self.each_part(span, |shard, _, e| {
            if !shard.later.is_empty() {
                self.take_in(shard);
            }
            while let Some(mut arena) = shard.lock_soon() {
                let free = arena.take_free(e.before(shard.slots.tail()));
                self.settle_given_up(&mut arena);
                let Some(free) = free else { break };
                drop(arena);
                let idle = free.slots().filter(|&i| shard.slots.was(i) != State::Unbacked).count();
                self.budget.unkeep(idle);
                self.abandon(shard, free);
            }
        });
        self.mark_given_up(span);
    }

    /// The same without a lock: idle slots keep their memory until it is replaced. It serves a thread that may be inside
    /// the engine, and a child that shares memory with its parent.
    pub fn give_up_inside(&self, span: Span) {
        self.taint(span);
        self.mark_given_up(span);
    }

    fn mark_given_up(&self, span: Span) {
        self.each_part(span, |shard, part, e| {
            let mut block = Span::new(part.start, 0);
            for i in e.slots() {
                shard.slots.give_up(i);
                if self.is_beside_blocks(shard, i, part, &mut block) {
                    shard.slots.mark(i, flag::GIVEN_UP);
                }
            }
            // Another thread has some for a moment. When it puts them back, they are dropped.
            let is_passing = |i| shard.slots.has(i, flag::GIVEN_UP) && shard.slots.state(i) == State::InTransit;
            let passing = || e.slots().any(is_passing);
            if passing() {
                self.scrubber.recall();
                self.wait_at_most(REPLACED_WAIT_NS, || !passing());
            }
        });
    }

    /// Whether `span` has memory of slot `i` that belongs to no block, while the slot belongs to some. `block` is the last
    /// one that was found: to find that of a slot far behind its beginning takes time.
    fn is_beside_blocks(&self, shard: &Shard, i: Slot, span: Span, block: &mut Span) -> bool {
        let here = shard.slot(i).clip(span);
        let is_in_use = matches!(shard.slots.state(i), State::Block | State::Runs);
        let mut at = here.start;
        while is_in_use && at < here.end {
            if !block.contains(at) {
                match self.block_around(shard, i, at) {
                    Some(found) => *block = found,
                    None => return true,
                }
            }
            at = block.end;
        }
        false
    }

    /// The block that address `at` of slot `i` belongs to.
    fn block_around(&self, shard: &Shard, i: Slot, at: usize) -> Option<Span> {
        let whole = || {
            let has_block = |first: &Slot| shard.sizes.pages(*first) > Pages::NONE;
            let first = Extent::between(Slot::new(0), i + 1).slots().rev().find(has_block)?;
            Some(first.addr(shard.base))
        };
        let carved = || {
            let run = shard.sizes.runs(i).map(|run| shard.run(i, run)).find(|run| run.contains(at))?;
            Some(run.start)
        };
        let start = if shard.slots.state(i) == State::Runs { carved() } else { whole() }?;
        Some(Span::new(start, self.usable(start))).filter(|block| block.contains(at))
    }

    /// The memory of slots that were given up while they were in the lists is idle no longer.
    pub(crate) fn settle_given_up(&self, arena: &mut Arena) {
        self.budget.unkeep(arena.take_given_up());
    }

    /// The kernel refers to memory in `span` without a mapping: a pipe holds its pages, or a socket sends from them.
    /// A move does not see that, as it would see a pin. So the memory must not be used for anything else.
    pub fn reference(&self, span: Span) {
        self.taint(span);
        self.lent_in(span).for_each(|i| _ = self.program().slots.mark(i, flag::TAINTED));
    }

    /// The kernel may refer to any memory in such ways from now on.
    pub fn reference_all(&self) {
        self.moves.referenced.set();
    }

    pub(crate) fn is_referenced(&self) -> bool {
        self.moves.referenced.is_set()
    }

    /// The content of blocks in `span` goes, or the program asks for huge pages there itself.
    pub fn change_blocks(&self, span: Span, change: Change) {
        self.each_part(span, |shard, part, e| {
            for i in e.slots().filter(|&i| shard.slots.state(i) == State::Block) {
                let slot = shard.slot(i);
                let whole = slot.clip(part) == slot;
                match change {
                    Change::Dropped | Change::Offered => {
                        if whole {
                            shard.slots.clear(i, flag::SIGNED);
                        }
                        // How much of it is left is not known: it counts as charged, no longer as used.
                        let before = shard.slots.mark(i, flag::FRESH);
                        if before & (flag::FRESH | flag::CHARGED) == 0 {
                            self.budget.unuse(1);
                            if before & flag::ADVISED != 0 {
                                self.budget.charge(1);
                                shard.slots.mark(i, flag::CHARGED);
                            }
                        }
                    }
                    Change::HugeAdvised if whole => {
                        let fresh = shard.slots.mark(i, flag::ADVISED) & flag::FRESH != 0;
                        self.budget.discharge((fresh && shard.slots.clear(i, flag::CHARGED)) as usize);
                    }
                    Change::HugeAdvised => {}
                }
            }
        });
        self.wait_while_busy(Span { start: span.start & !(SLOT - 1), end: span.end });
    }
}
