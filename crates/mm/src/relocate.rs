//! Moving a block to other slots by page tables, when it grows and there is no room behind it.

use faultless_base::sys::Sys;

use crate::arena::Extent;
use crate::buddy::Kind;
use crate::purpose::Purpose;
use crate::slot::{State, flag};
use crate::space::{Shard, Space, Unmap};
use crate::stats::Counter;

impl<S: Sys> Space<S> {
    /// Whether all slots of `e` are in `state` and have the attributes of a fresh mapping.
    pub(crate) fn is_plain(&self, shard: &Shard, e: Extent, state: State) -> bool {
        e.slots().all(|i| shard.slots.state(i) == state && !shard.slots.has(i, flag::TAINTED | flag::FORKED))
    }

    /// Moves the pages of `old` by page tables into the first of `n` fresh slots, handed out as `state`, and
    /// takes the old place back. `None`: nothing changed.
    pub(crate) fn relocate(
        &self,
        shard: &Shard,
        old: Extent,
        to: &Shard,
        n: usize,
        state: State,
    ) -> Option<Extent> {
        let e = to.lock().take_holes(n, 1, &self.sys)?;
        if !self.prepare(to, e, Purpose::Copy, State::Passage) {
            return None;
        }
        for i in old.slots() {
            shard.slots.set(i, State::Passage);
        }
        self.wait_while_busy(shard.span(old));
        if !self.sys.migrate(shard.span(old), to.span(e).start) {
            shard.count(Counter::KernelRefused, 1);
            old.slots().for_each(|i| shard.slots.set(i, state));
            self.take_back(to, e, Unmap::Relaxed);
            return None;
        }
        for k in 0..old.n {
            self.inherit(shard, old.first + k, to, e.first + k);
        }
        for i in e.first..e.first + n {
            to.slots.set(i, state);
        }
        // The old place is mapped and empty now.
        shard.lock().give(old, Kind::Hole, 0);
        shard.count(Counter::ReallocMoved, 1);
        Some(e)
    }

    /// What is known of the memory of slot `i` holds for slot `j` now; the memory itself has moved there.
    fn inherit(&self, shard: &Shard, i: usize, to: &Shard, j: usize) {
        if to.slots.clear(j, flag::CHARGED) {
            self.budget.discharge(1);
        }
        for known in [flag::ADVISED, flag::FRESH, flag::CHARGED, flag::AHEAD] {
            if shard.slots.has(i, known) {
                to.slots.mark(j, known);
            } else {
                to.slots.clear(j, known);
            }
        }
        shard.slots.clear(i, flag::FRESH | flag::CHARGED | flag::SIGNED | flag::AHEAD);
    }
}
