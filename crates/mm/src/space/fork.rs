//! Fork: free memory is not copied, and memory in use is not recycled while two processes may share it.
//!
//! A fork takes no lock, so no thread waits for a fork, and a fork waits for no thread. Idle memory is given back to
//! the kernel before. The child begins anew from what each slot and each block says of itself (`slot.rs`,
//! `sizes.rs`): these are single words, so that they are never half written. The kernel copies memory while other
//! threads of the parent go on, so the words may be of different moments. What was in use throughout the fork says so
//! in each of them. The child trusts nothing else, and gives all other memory back.

use faultless_base::sys::Sys;
use faultless_base::{Pages, Slot};

use crate::frame::budget::Counted;
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

impl<S: Sys> Space<S> {
    /// Before a fork. Idle memory would be copied. After the fork the child has no background thread that gives it
    /// back in time, because a program that looks for a second thread when it forks shall find none.
    pub fn fork_prepare(&self) {
        self.scrubber.recall();
        self.program().count(Counter::Forks, 1);
        self.press();
    }

    /// After a fork, in the parent (also when it failed).
    pub fn fork_parent(&self) {
        self.mark_shared();
    }

    /// In a forked child, by its only thread that is in the engine, in any state that threads of the parent have
    /// left.
    pub fn fork_child(&self) {
        self.sys.forked();
        self.leave_slots();
        self.advices.begin_again();
        self.ahead.begin_again();
        self.files.forget();
        self.all_shards().for_each(Shard::force_unlock);
        self.scrubber.forget();
        self.all_shards().for_each(|shard| self.begin_again(shard));
        self.leave_mappings();
        self.recount();
        self.mark_shared();
        for shard in self.all_shards() {
            let freed = shard.later.begin_again(shard.slots.ever_used());
            // Extents on their way have become holes.
            freed.for_each(|note| self.take_in_blocks(shard, note.slot, note.blocks));
        }
    }

    fn begin_again(&self, shard: &Shard) {
        let slots = shard.slots;
        // A thread of the parent may have opened more slots than its tail says in this copy.
        let never_used = slots.never_used();
        slots.set_tail(never_used.slots().find(|&i| !slots.has(i, flag::OPEN)).unwrap_or(never_used.end()));
        let unopened = slots.never_used().slots().take_while(|&i| slots.state(i) == State::InTransit);
        unopened.for_each(|i| slots.set(i, State::Unbacked));
        let all = slots.ever_used();
        let is_passing = |i: Slot| match slots.state(i) {
            State::InTransit => true,
            State::Runs => shard.sizes.runs(i).next().is_none(),
            _ => false,
        };
        let is_unused = |i: Slot| slots.state(i).is_free() || is_passing(i);
        for i in all.slots().filter(|&i| slots.has(i, flag::GIVEN_UP) && is_unused(i)) {
            slots.set(i, State::InTransit);
            slots.lose(i);
        }
        all.groups(is_passing, |e, passing| {
            if passing {
                e.slots().for_each(|i| slots.set(i, State::InTransit));
                if self.reset(shard, e) {
                    self.empty(shard, e);
                }
            }
        });
        let is_free = |i: Slot| slots.state(i).is_free();
        all.groups(is_free, |e, free| {
            if free {
                if self.sys.discard(shard.span(e)) {
                    self.empty(shard, e);
                } else {
                    e.slots().for_each(|i| slots.set(i, State::InTransit));
                    self.abandon(shard, e);
                }
            }
        });
        // The parent counts what becomes of it.
        all.slots().for_each(|i| _ = slots.withdraw(i, flag::AHEAD));
        if let Some(mut arena) = shard.lock_soon() {
            if !self.is_retired() {
                // Also what a thread of the parent has opened meanwhile.
                arena.pass_over(&self.sys);
            }
            arena.begin_again();
            self.note_unused_units(shard, &arena);
        }
    }

    /// Makes slots without memory holes.
    fn empty(&self, shard: &Shard, e: Extent) {
        for i in e.slots() {
            shard.slots.set(i, State::InTransit);
            shard.slots.clear(i, flag::IN_USE | flag::CHARGED);
            shard.slots.set(i, State::Unbacked);
        }
    }

    /// Makes up the account again from the slots in use.
    fn recount(&self) {
        let mut counted = Counted { charged: self.advices.charged(), ..Counted::default() };
        for (shard, e) in self.all_slots() {
            let slots = shard.slots;
            for i in e.slots().filter(|&i| !slots.state(i).is_free()) {
                counted.charged += slots.has(i, flag::CHARGED) as usize;
                counted.used += !slots.has(i, flag::CHARGED | flag::FRESH) as usize;
            }
        }
        for shard in self.all_shards() {
            let slots = shard.slots;
            let mut i = Slot::new(0);
            while i < slots.tail() {
                let pages = if slots.state(i) == State::Block { shard.sizes.pages(i) } else { Pages::NONE };
                let n = pages.slots_around();
                if slots.has(i, flag::LOSES) {
                    counted.lost += Pages::of_slots(n) - pages;
                }
                i += n.max(1);
            }
        }
        self.budget.recount(counted);
    }

    fn mark_shared(&self) {
        for shard in self.all_shards() {
            for i in shard.slots.ever_used().slots() {
                if !shard.slots.state(i).is_free() {
                    shard.slots.mark(i, flag::FORKED);
                }
            }
        }
    }
}
