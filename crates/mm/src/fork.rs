//! Fork: free memory is not copied, and memory in use is not recycled while two processes may share it.
//!
//! For the moment of the fork all free memory is marked to be wiped in the child, which then finds holes where the
//! parent has frames. Every lock of the engine is held across the fork, so that the child starts from a state
//! that no thread was changing.

use core::sync::atomic::Ordering;

use faultless_base::sys::{AtFork, Sys};

use crate::arena::Extent;
use crate::buddy::Kind;
use crate::slot::{State, flag};
use crate::space::{Shard, Space};
use crate::stats::Counter;

impl<S: Sys> Space<S> {
    /// Before a fork: stops everything. [`Space::fork_parent`] and [`Space::fork_child`] let it go on.
    pub fn fork_prepare(&self) {
        self.recalled.store(true, Ordering::Relaxed);
        self.working.hold();
        self.all_shards().for_each(Shard::hold);
        self.growths.hold();
        self.advices.hold();
        self.dropping.hold();
        self.shard(0).count(Counter::Forks, 1);
        self.each_free(|shard, e| {
            if !self.sys.at_fork(shard.span(e), AtFork::Wiped) {
                // No area left for it: the child shall not find old bytes in what it takes for holes.
                self.sys.discard(shard.span(e));
            }
        });
    }

    /// After a fork, in the parent (also when it failed).
    pub fn fork_parent(&self) {
        self.each_free(|shard, e| {
            self.sys.at_fork(shard.span(e), AtFork::Copied);
        });
        self.mark_shared();
        self.release();
        // The background thread has ended for the fork; what it would have to give back soon goes now.
        if self.budget.above_limit() > 0 {
            self.press();
        }
        if self.budget.idle() > 0 {
            self.want_worker();
        }
    }

    /// After a fork, in the child.
    pub fn fork_child(&self) {
        self.sys.forked();
        self.each_free(|shard, e| {
            self.sys.at_fork(shard.span(e), AtFork::Copied);
        });
        self.mark_shared();
        self.release();
        self.growths.lock().forget();
        self.budget.forget_idle();
        for shard in self.all_shards() {
            let mut arena = shard.lock();
            let all = Extent { first: 0, n: shard.slots.tail() };
            let resident = |i: usize| matches!(shard.slots.state(i), State::Dirty | State::Zeroed);
            shard.groups(all, resident, |e, free| {
                if free && arena.take_at(e) {
                    arena.give(e, Kind::Hole, 0);
                }
            });
            drop(arena);
            // The parent counts what becomes of it.
            all.slots().for_each(|i| _ = shard.slots.withdraw(i, flag::AHEAD));
            self.take_over_passage(shard, all);
        }
        self.take_over_notes();
    }

    /// In a child: the program's own mappings are here too; what becomes of them, the parent counts.
    fn take_over_notes(&self) {
        for (shard, e) in self.all_slots().filter(|(shard, _)| self.is_program(shard)) {
            for i in e.slots() {
                shard.slots.withdraw(i, flag::AHEAD);
                if shard.slots.state(i) == State::Passage {
                    self.budget.discharge(shard.slots.clear(i, flag::CHARGED) as usize);
                    self.wipe(i);
                }
            }
        }
    }

    /// In a child: what was on its way belonged to a thread that stayed with the parent.
    fn take_over_passage(&self, shard: &Shard, all: Extent) {
        let passing = |i: usize| shard.slots.state(i) == State::Passage;
        shard.groups(all, passing, |e, passing| {
            if passing {
                self.reset(shard, e);
                for i in e.slots() {
                    if shard.slots.clear(i, flag::CHARGED) {
                        self.budget.discharge(1);
                    }
                    shard.slots.clear(i, flag::IN_USE);
                }
                shard.lock().give(e, Kind::Hole, 0);
            }
        });
    }

    /// In a child made by a bare system call, which called none of the above: makes the best of it. False when a
    /// thread of the parent was in the middle of something; then the engine must not be used here.
    pub fn fork_orphan(&self) -> bool {
        let free = self.working.try_lock().is_some()
            && self.growths.try_lock().is_some()
            && self.advices.try_lock().is_some()
            && self.dropping.try_lock().is_some()
            && self.all_shards().all(|shard| shard.is_unlocked());
        self.leave_slots();
        if !free {
            // Whoever held a lock is not in this process.
            self.release();
            return false;
        }
        // Nothing was marked to be wiped, so the old bytes are here too.
        self.each_free(|shard, e| self.sys.discard(shard.span(e)));
        self.fork_prepare();
        self.fork_child();
        true
    }

    fn release(&self) {
        self.dropping.force_unlock();
        self.advices.force_unlock();
        self.growths.force_unlock();
        self.all_shards().for_each(Shard::force_unlock);
        self.working.force_unlock();
    }

    fn each_free(&self, f: impl Fn(&Shard, Extent)) {
        for shard in self.all_shards() {
            let all = Extent { first: 0, n: shard.slots.tail() };
            let resident = |i: usize| matches!(shard.slots.state(i), State::Dirty | State::Zeroed);
            shard.groups(all, resident, |e, free| {
                if free {
                    f(shard, e);
                }
            });
        }
    }

    fn mark_shared(&self) {
        for shard in self.all_shards() {
            for i in 0..shard.slots.tail() {
                if !shard.slots.state(i).is_free() {
                    shard.slots.share(i, flag::FORKED);
                }
            }
        }
    }
}
