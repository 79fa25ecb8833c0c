//! The end of service: what is free of the arena goes back to the kernel, addresses and all.
//!
//! A program that limits its address space, locks all its memory or enters a sandbox must find its address space as
//! it would be without an arena. The memory that it has stays where it is, and is an ordinary mapping from then on.
//! Addresses that are given back count as the program's too, since the kernel may map anything there. A block that
//! comes back is unmapped.

use faultless_base::sys::Sys;

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::shards::Shards;
use crate::space::{Shard, Space};

impl<S: Sys> Space<S> {
    /// Whether the arena's free addresses have been given back.
    pub fn is_retired(&self) -> bool {
        self.shards.get().is_some_and(Shards::are_retired)
    }

    /// From now on nothing is kept: what comes back goes to the kernel, by `munmap` alone.
    pub fn close(&self) {
        self.shards.get().into_iter().for_each(Shards::retire);
        self.budget.close();
    }

    /// Gives everything back that the program does not have. Nothing may be asked for any more; what is out already
    /// may come back, and goes to the kernel then. Waits for no lock: a shard whose lock is not to be had stays reserved,
    /// and the answer is false. It may be asked for again.
    pub fn retire(&self) -> bool {
        self.close();
        self.press();
        let left = self.all_shards().filter(|shard| !self.let_go_of_free(shard)).count();
        self.sys.retire();
        left == 0
    }

    /// Gives back what is in no use; whether the lock was to be had. A thread that has slots on their way finds out when it puts them back.
    fn let_go_of_free(&self, shard: &Shard) -> bool {
        let slots = shard.slots;
        let Some(mut arena) = shard.lock_soon() else { return false };
        while let Some(free) = arena.take_free(slots.ever_used()) {
            self.let_go(shard, free);
        }
        // Also slots that were never used; so the arena grows no more.
        arena.pass_over(&self.sys);
        let unused = slots.never_used();
        if !unused.is_empty() {
            slots.set_tail(unused.end());
            unused.slots().for_each(|i| slots.set(i, State::InTransit));
            self.let_go(shard, unused);
        }
        true
    }

    /// Gives an extent in transit back, addresses and all, but for what was given up.
    pub(crate) fn let_go(&self, shard: &Shard, e: Extent) {
        e.groups(
            |i| shard.slots.has(i, flag::GIVEN_UP),
            |part, is_given_up| {
                // First, because the next owner of these addresses must find that they are no block.
                self.lose_slots(shard, part);
                // At the limit of areas it may be refused.
                if !is_given_up && !self.sys.release(shard.span(part)) {
                    let _ = self.sys.discard(shard.span(part));
                }
            },
        );
    }
}
