//! Background steps that give free memory back: memory that has been idle for too long, and all idle memory when the
//! machine is short of it.

use faultless_base::sys::Sys;
use faultless_base::{Pages, SLOT, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::space::progress::Progress;
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Memory beyond the budget stays for so long after it was freed.
const KEEP_ABOVE_MS: u32 = 500;
/// Memory within the budget stays for so long.
const KEEP_MS: u32 = 10_000;
const DECAY_SLOTS: usize = 32;
/// How often ages are looked at while nothing else is to be done.
const LOOK_US: u64 = 50_000;
/// The same while more is idle than the budget alone allows, or the control group has a limit.
const LOOK_ABOVE_US: u64 = 5_000;

impl<S: Sys> Space<S> {
    /// Discards an extent in transit that was idle.
    pub(crate) fn return_to_kernel(&self, shard: &Shard, e: Extent, stamp: u32) {
        let span: Span = shard.span(e);
        self.note_left(shard, e);
        let is_gone = self.sys.discard(span);
        self.budget.unkeep(e.n);
        self.note_unused(shard, self.zeroed_ahead(shard, e));
        match is_gone {
            true => self.put_back(shard, e, Kind::Unbacked, stamp),
            false => self.abandon(shard, e),
        }
    }

    /// Counts slots that were zeroed ahead and went where no zeroes were needed.
    pub(crate) fn note_unused(&self, shard: &Shard, n: usize) {
        if n > 0 {
            self.scrubber.pace.note_wasted(n);
            shard.count(Counter::BytesZeroedUnused, n * SLOT);
        }
    }

    /// Gives back memory that has been idle for too long.
    pub(crate) fn decay_step(&self) -> Progress {
        let wastes = || self.budget.wasted_above_limit() > 0 && self.may_strip();
        if self.budget.idle() + self.budget.reserved() == 0 && !wastes() {
            return Progress::Idle;
        }
        self.look_around();
        // Idle frames first: those of files may be wanted again.
        if self.make_way(Pages::NONE) || self.reclaim(self.budget.excess(Pages::NONE)) > 0 {
            return Progress::Worked;
        }
        let now = self.now_ms();
        let decay = &self.worker.decay;
        if decay.looks_for_pressure(now)
            && self.sys.is_short_of_memory()
            && (self.give_all_back() > 0 || self.reclaim(usize::MAX) > 0)
        {
            return Progress::Worked;
        }
        if self.budget.above_limit() > 0 {
            // The program may use many of the charged slots by now.
            self.confirm_some();
        }
        let above = self.budget.above_limit();
        for shard in self.all_shards() {
            let Some(mut arena) = shard.lock_soon() else { continue };
            self.settle_given_up(&mut arena);
            for kind in [Kind::Dirty, Kind::Zeroed] {
                let Some(free) = arena.free().stalest(kind, now) else { continue };
                let age = now.wrapping_sub(free.stamp);
                let n = match (above, age) {
                    (_, KEEP_MS..) => free.extent().n,
                    (1.., KEEP_ABOVE_MS..) => above.min(free.extent().n),
                    _ => continue,
                };
                let e = free.extent().front(n.min(DECAY_SLOTS).min(self.budget.idle()));
                if e.is_empty() || !arena.take_at(e) {
                    continue;
                }
                drop(arena);
                self.return_to_kernel(shard, e, free.stamp);
                shard.count(Counter::BytesDecayed, e.bytes());
                return Progress::Worked;
            }
        }
        let age = if above > 0 { KEEP_ABOVE_MS } else { KEEP_MS };
        if self.budget.idle() > 0 && self.drop_from_pool(now, age, Counter::BytesDecayed) {
            return Progress::Worked;
        }
        if above > 0 && self.reclaim(above) > 0 {
            return Progress::Worked;
        }
        let wasted = if self.may_strip() { self.budget.wasted_above_limit() } else { 0 };
        if wasted == 0 {
            decay.note_fit(now);
        } else if decay.above_for(now) >= KEEP_ABOVE_MS
            && self.strip_runs(wasted.min(DECAY_SLOTS), Counter::BytesDecayed) > 0
        {
            return Progress::Worked;
        }
        Progress::Wait(if above > 0 || wasted > 0 || self.is_grouped() { LOOK_ABOVE_US } else { LOOK_US })
    }

    /// Memory is short: gives idle memory back at once, all that can be had. The bytes given back.
    pub fn press(&self) -> usize {
        self.give_all_back()
    }

    /// Gives the idle memory of the arena back, and none of the pool: the bytes given back.
    pub fn press_arena(&self) -> usize {
        self.all_shards().for_each(|shard| self.take_in(shard));
        self.give_back_of_arena(usize::MAX, Counter::BytesPressed)
    }

    pub(crate) fn give_all_back(&self) -> usize {
        self.give_back(usize::MAX, Counter::BytesPressed)
    }

    /// Gives `n` slots back that are idle or between blocks, or all there are: the bytes given back.
    pub(crate) fn give_back(&self, n: usize, counter: Counter) -> usize {
        self.all_shards().for_each(|shard| self.take_in(shard));
        let bytes = self.give_back_idle(n, counter);
        bytes + self.strip_runs(n.saturating_sub(bytes / SLOT), counter)
    }

    /// The same of idle slots alone.
    pub(crate) fn give_back_idle(&self, n: usize, counter: Counter) -> usize {
        let mut bytes = self.give_back_of_arena(n, counter);
        while bytes / SLOT < n && self.drop_from_pool(self.now_ms(), 0, counter) {
            bytes += SLOT;
        }
        bytes
    }

    fn give_back_of_arena(&self, n: usize, counter: Counter) -> usize {
        let (mut bytes, mut left) = (0, n);
        for shard in self.all_shards() {
            for kind in [Kind::Dirty, Kind::Zeroed] {
                while left > 0 {
                    let Some(mut arena) = shard.lock_soon() else { break };
                    let Some(free) = arena.free().oldest(kind) else { break };
                    let e = free.extent().front(left.min(free.extent().n));
                    if !arena.take_at(e) {
                        self.settle_given_up(&mut arena);
                        continue;
                    }
                    drop(arena);
                    left -= e.n;
                    self.return_to_kernel(shard, e, free.stamp);
                    shard.count(counter, e.bytes());
                    bytes += e.bytes();
                }
            }
        }
        bytes
    }
}
