//! All of the arena: its shards, and the way of memory to its user and back.
//!
//! Lock order: a shard's lock, then the growth table's ([`crate::ahead`]). No system call is made under a
//! shard's lock but the one that opens a new part of the reservation. A slot in passage belongs to the thread
//! that put it there, so that zeroing, opening and closing happen without any lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use faultless_base::sync::{Guard, Lock};
use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, Span, table};

use crate::arena::{Arena, Extent, Need};
use crate::buddy::Kind;
use crate::budget::Budget;
use crate::slot::{Slots, State, flag};
use crate::stats::{self, Block, Counter};
use crate::watched::{Advices, Growths, SMALL_DEMAND};

/// Shards at most.
pub const MAX_SHARDS: usize = stats::BLOCKS;
/// Slots whose contents are looked at when memory comes back whose use is not known.
const SAMPLES: usize = 16;
/// How long a request waits for memory that the scrubber has just now.
const SCRUBBER_WAIT_NS: u64 = 500_000;
/// Pages looked at in each of them.
const SAMPLED_PAGES: usize = 8;

/// What munmap does to memory that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// An access faults, as without faultless.
    Strict,
    /// The memory stays accessible: cheaper, but a stale pointer goes unnoticed.
    Relaxed,
}

/// What can be set from outside.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// Bytes by which resident memory may exceed the program's own peak.
    pub budget: usize,
    /// What munmap does.
    pub unmap: Unmap,
    /// Whether memory is zeroed in the background.
    pub scrub: bool,
    /// Whether memory is touched in the background before the program gets there.
    pub ahead: bool,
    /// Whether each hand-out is verified.
    pub check: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self { budget: 64 << 20, unmap: Unmap::Strict, scrub: true, ahead: true, check: false }
    }
}

/// A shard: an arena behind its lock, and what may be used without it.
pub(crate) struct Shard {
    arena: Lock<Arena>,
    pub(crate) slots: Slots,
    pub(crate) base: usize,
    pub(crate) counters: &'static Block,
}

impl Shard {
    pub(crate) fn lock(&self) -> Guard<'_, Arena> {
        self.arena.lock()
    }

    pub(crate) fn is_unlocked(&self) -> bool {
        self.arena.try_lock().is_some()
    }

    pub(crate) fn hold(&self) {
        self.arena.hold();
    }

    pub(crate) fn force_unlock(&self) {
        self.arena.force_unlock();
    }

    pub(crate) fn count(&self, counter: Counter, n: usize) {
        self.counters.add(counter, n as u64);
    }

    pub(crate) fn span(&self, e: Extent) -> Span {
        Span::new(self.base + e.first * SLOT, e.n * SLOT)
    }

    /// The neighbouring slots of `e` for which `key` gives the same answer, group by group.
    pub(crate) fn groups<K: PartialEq>(&self, e: Extent, key: impl Fn(usize) -> K, mut f: impl FnMut(Extent, K)) {
        let (mut i, end) = (e.first, e.first + e.n);
        while i < end {
            let k = key(i);
            let n = (i..end).take_while(|&j| key(j) == k).count();
            f(Extent { first: i, n }, k);
            i += n;
        }
    }
}

/// The engine of one process.
pub struct Space<S> {
    pub(crate) sys: S,
    pub(crate) budget: Budget,
    pub(crate) knobs: Knobs,
    pub(crate) growths: Lock<Growths>,
    pub(crate) advices: Lock<Advices>,
    pub(crate) shards: [Option<Shard>; MAX_SHARDS],
    count: usize,
    span: Span,
    shard_bytes: usize,
    /// The slot that the background thread touches or reads right now, by address; 0 for none.
    busy: AtomicUsize,
    /// Slots that the background thread has taken out of the free lists for a moment.
    pub(crate) away: AtomicUsize,
    /// Held during each background step; whoever forks holds it too.
    pub(crate) working: Lock<()>,
    /// Slots handed out since the background thread last looked, for [`crate::ahead`].
    pub(crate) demand: AtomicUsize,
    /// When memory pressure was last looked for, in ms.
    pub(crate) pressure_look: AtomicU32,
    /// Where [`Space::confirm_some`] goes on.
    pub(crate) confirming: Lock<(usize, usize)>,
    /// Bytes that rounding up costs in blocks of whole slots.
    pub(crate) waste: AtomicUsize,
    /// Set when there is new work for the background thread.
    wanted: AtomicBool,
    /// Set when that work cannot wait for its next look.
    urgent: AtomicBool,
}

/// What became of memory that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Its attributes were changed: replace the mapping.
    Reset,
    /// It has no memory worth keeping.
    Discard,
    /// It is kept.
    Keep,
}

impl<S: Sys> Space<S> {
    /// Reserves `bytes` of address space, split into `shards` shards (rounded up to a power of two), each with
    /// its block of `counters`. `None` when the kernel refuses.
    pub fn new(sys: S, bytes: usize, shards: usize, counters: &'static [Block], knobs: Knobs) -> Option<Self> {
        let count = shards.next_power_of_two().clamp(1, MAX_SHARDS.min(counters.len()));
        let shard_slots = (bytes / SLOT / count).next_power_of_two();
        let shard_bytes = shard_slots * SLOT;
        let span = sys.reserve(count * shard_bytes, 1 << 30)?;
        let mut shards = [const { None }; MAX_SHARDS];
        for (i, shard) in shards.iter_mut().take(count).enumerate() {
            let base = span.start + i * shard_bytes;
            let slots = Slots::new(table::lasting::<AtomicU32>(shard_slots + 1)?);
            let arena = Arena::new(
                base,
                slots,
                table::lasting(shard_slots)?,
                table::lasting(shard_slots)?,
                table::lasting(shard_slots)?,
            );
            *shard = Some(Shard { arena: Lock::new(arena), slots, base, counters: &counters[i] });
        }
        Some(Self {
            sys,
            budget: Budget::new(knobs.budget / SLOT),
            knobs,
            growths: Lock::new(Growths::new()),
            advices: Lock::new(Advices::new()),
            shards,
            count,
            span,
            shard_bytes,
            busy: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            working: Lock::new(()),
            demand: AtomicUsize::new(0),
            pressure_look: AtomicU32::new(0),
            confirming: Lock::new((0, 0)),
            waste: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
        })
    }

    /// The arena's addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The account of the peak rule.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The shard that a thread on processor `cpu` uses first.
    pub(crate) fn shard(&self, cpu: usize) -> &Shard {
        self.shards[cpu & (self.count - 1)].as_ref().expect("a shard in use")
    }

    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    /// The shard and the slot of an address of the arena.
    pub(crate) fn locate(&self, addr: usize) -> (&Shard, usize) {
        let offset = addr - self.span.start;
        (self.shard(offset / self.shard_bytes), offset % self.shard_bytes / SLOT)
    }

    /// Calls `f` for the part of `span` in each shard, with the slots that it touches.
    pub(crate) fn each_part(&self, span: Span, mut f: impl FnMut(&Shard, Span, Extent)) {
        let span = span.clip(self.span);
        for shard in self.all_shards() {
            let part = span.clip(Span::new(shard.base, self.shard_bytes));
            if !part.is_empty() {
                let first = (part.start - shard.base) / SLOT;
                let end = (part.end - shard.base).div_ceil(SLOT);
                f(shard, part, Extent { first, n: end - first });
            }
        }
    }

    /// Says that there is work for the background thread.
    pub(crate) fn want_worker(&self) {
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Release);
        }
    }

    /// Whether there is new work for the background thread; asking takes the note away.
    pub fn worker_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Acquire)
    }

    /// Says that there is work which cannot wait.
    pub(crate) fn want_worker_now(&self) {
        self.urgent.store(true, Ordering::Release);
        self.want_worker();
    }

    /// Whether that work cannot wait; asking takes the note away.
    pub fn worker_wanted_now(&self) -> bool {
        self.urgent.load(Ordering::Relaxed) && self.urgent.swap(false, Ordering::Acquire)
    }

    pub(crate) fn now_ms(&self) -> u32 {
        (self.sys.now_ns() / 1_000_000) as u32
    }

    /// Slots in passage: with memory behind them if there are, else holes.
    pub(crate) fn take(&self, shard: &Shard, n: usize, align: usize, need: Need) -> Option<Extent> {
        if n <= SMALL_DEMAND {
            self.demand.fetch_add(n, Ordering::Relaxed);
        }
        let resident = shard.lock().take_resident(n, align, need);
        let e = resident.or_else(|| {
            self.wait_for_scrubber(n);
            let mut arena = shard.lock();
            arena.take_resident(n, align, need).or_else(|| arena.take_holes(n, align, &self.sys))
        });
        if e.is_none() {
            shard.count(Counter::KernelNoSpace, 1);
        }
        e
    }

    /// When enough memory is idle for `n` slots but some of it is with the scrubber, which has it for a
    /// fraction of a millisecond, waits that long.
    fn wait_for_scrubber(&self, n: usize) {
        if self.away.load(Ordering::SeqCst) == 0 || self.budget.idle() < n {
            return;
        }
        let end = self.sys.now_ns() + SCRUBBER_WAIT_NS;
        while self.away.load(Ordering::SeqCst) > 0 && self.sys.now_ns() < end {
            self.sys.relax(0);
        }
    }

    /// Makes an extent in passage ready for its user and hands it out as `state`. False when the kernel
    /// refuses; then the extent is free again.
    pub(crate) fn prepare(&self, shard: &Shard, e: Extent, need: Need, state: State) -> bool {
        let slots = shard.slots;
        let closed = (e.first..e.first + e.n).any(|i| !slots.has(i, flag::OPEN));
        if closed {
            if !self.sys.open(shard.span(e)) {
                shard.groups(
                    e,
                    |i| slots.was(i),
                    |g, was| {
                        shard.lock().give(g, Kind::of(was).unwrap_or(Kind::Hole), 0);
                    },
                );
                shard.count(Counter::KernelRefused, 1);
                return false;
            }
            (e.first..e.first + e.n).for_each(|i| {
                slots.mark(i, flag::OPEN);
            });
        }
        shard.groups(
            e,
            |i| slots.was(i),
            |g, was| match was {
                State::Dirty => self.hand_out_dirty(shard, g, need),
                State::Zeroed => self.hand_out_zeroed(shard, g, need),
                _ => self.hand_out_hole(shard, g),
            },
        );
        (e.first..e.first + e.n).for_each(|i| slots.set(i, state));
        true
    }

    fn hand_out_dirty(&self, shard: &Shard, e: Extent, need: Need) {
        let span = shard.span(e);
        self.budget.unkeep(e.n);
        self.budget.use_slots(e.n);
        match need {
            Need::Zero => {
                let start = self.sys.now_ns();
                self.sys.zero_hot(span);
                shard.count(Counter::HotZeroNs, (self.sys.now_ns() - start) as usize);
                shard.count(Counter::BytesHotZeroed, span.bytes());
                self.verify(shard, e);
            }
            Need::Any => {
                shard.count(Counter::BytesUnzeroed, span.bytes());
                if self.knobs.check {
                    self.sys.poison(span);
                }
            }
        }
    }

    fn hand_out_zeroed(&self, shard: &Shard, e: Extent, need: Need) {
        self.budget.unkeep(e.n);
        self.budget.use_slots(e.n);
        shard.count(Counter::BytesZeroed, e.n * SLOT);
        self.verify(shard, e);
        if need == Need::Any && self.knobs.check {
            self.sys.poison(shard.span(e));
        }
    }

    /// Memory that the kernel will fill at the first touch: with huge pages as far as the budget goes.
    fn hand_out_hole(&self, shard: &Shard, e: Extent) {
        if self.budget.room() < e.n {
            self.confirm_some();
        }
        let advised = self.advise(shard, e);
        let rest = Extent { first: e.first + advised, n: e.n - advised };
        if (rest.first..rest.first + rest.n).any(|i| shard.slots.has(i, flag::ADVISED)) {
            self.sys.huge(shard.span(rest), Huge::Refused);
        }
        for i in rest.first..rest.first + rest.n {
            shard.slots.clear(i, flag::ADVISED);
            shard.slots.mark(i, flag::FRESH);
        }
        shard.count(Counter::BytesFreshHuge, advised * SLOT);
        shard.count(Counter::BytesFreshSmall, rest.n * SLOT);
    }

    /// Advises huge pages for the first slots of `e`, as many as the budget allows, and charges them.
    pub(crate) fn advise(&self, shard: &Shard, e: Extent) -> usize {
        let granted = Extent { first: e.first, n: self.budget.charge_up_to(e.n) };
        let range = granted.first..granted.first + granted.n;
        if range.clone().any(|i| !shard.slots.has(i, flag::ADVISED)) {
            self.sys.huge(shard.span(granted), Huge::Advised);
        }
        range.for_each(|i| {
            shard.slots.mark(i, flag::ADVISED | flag::FRESH | flag::CHARGED);
        });
        granted.n
    }

    fn verify(&self, shard: &Shard, e: Extent) {
        if self.knobs.check {
            let bad = self.sys.first_nonzero(shard.span(e));
            assert!(bad.is_none(), "memory promised as zero is not, at {bad:x?}");
        }
    }

    /// Takes an extent in passage back from its user: closes it if asked to, and keeps or returns its memory.
    pub(crate) fn take_back(&self, shard: &Shard, e: Extent, unmap: Unmap) {
        let slots = shard.slots;
        self.wait_while_busy(shard.span(e));
        let mut keep = self.settle(shard, e);
        let close = unmap == Unmap::Strict && self.sys.close(shard.span(e));
        if close {
            (e.first..e.first + e.n).for_each(|i| {
                slots.clear(i, flag::OPEN);
            });
        }
        let stamp = self.now_ms();
        shard.groups(
            e,
            |i| self.fate(slots, i),
            |g, fate| {
                let span = shard.span(g);
                let mut kept = 0;
                match fate {
                    Fate::Reset => self.reset(shard, g),
                    Fate::Discard => self.sys.discard(span),
                    Fate::Keep => {
                        kept = g.n.min(keep);
                        keep -= kept;
                        if kept < g.n {
                            let over = Extent { first: g.first + kept, n: g.n - kept };
                            self.sys.discard(shard.span(over));
                            shard.count(Counter::BytesOverBudget, over.n * SLOT);
                        }
                        shard.count(Counter::BytesKept, kept * SLOT);
                        self.want_worker();
                    }
                }
                (g.first..g.first + g.n).for_each(|i| {
                    slots.clear(i, flag::FRESH | flag::TAINTED | flag::FORKED | flag::EMPTY);
                });
                self.budget.keep(kept);
                let mut arena = shard.lock();
                if kept > 0 {
                    arena.give(Extent { first: g.first, n: kept }, Kind::Dirty, stamp);
                }
                if kept < g.n {
                    arena.give(Extent { first: g.first + kept, n: g.n - kept }, Kind::Hole, stamp);
                }
            },
        );
    }

    /// Squares the account for slots that come back: how many of them may be kept.
    fn settle(&self, shard: &Shard, e: Extent) -> usize {
        let slots = shard.slots;
        let (mut known, mut charged, mut fresh, mut sampled, mut dense) = (0, 0, 0, 0, 0);
        let fresh_slots = (e.first..e.first + e.n).filter(|&i| slots.has(i, flag::FRESH)).count();
        let every = (fresh_slots / SAMPLES).max(1);
        for i in e.first..e.first + e.n {
            charged += slots.clear(i, flag::CHARGED) as usize;
            let lost = slots.has(i, flag::TAINTED | flag::FORKED);
            if !slots.has(i, flag::FRESH) {
                known += 1;
            } else if !lost && self.is_backed(shard, i) {
                if fresh % every == 0 {
                    sampled += 1;
                    let page_span = shard.span(Extent { first: i, n: 1 });
                    dense += (self.sys.nonzero_pages(page_span, SAMPLED_PAGES) * 2 >= SAMPLED_PAGES) as usize;
                }
                fresh += 1;
            } else {
                slots.mark(i, flag::EMPTY);
            }
        }
        let used = (fresh * dense).checked_div(sampled).unwrap_or(0);
        self.budget.discharge(charged);
        self.budget.use_slots(used);
        self.budget.unuse(used + known);
        if self.budget.limit() == 0 { 0 } else { self.budget.room() }
    }

    /// Whether a slot that was handed out as a hole has a huge page now, as far as three looks tell.
    fn is_backed(&self, shard: &Shard, i: usize) -> bool {
        if self.budget.limit() == 0 {
            return false;
        }
        let span = shard.span(Extent { first: i, n: 1 });
        shard.slots.has(i, flag::ADVISED)
            && [0, SLOT / 2, SLOT - 1].iter().all(|offset| self.sys.present(span.start + offset))
    }

    fn fate(&self, slots: Slots, i: usize) -> Fate {
        if slots.has(i, flag::TAINTED | flag::FORKED) {
            Fate::Reset
        } else if slots.has(i, flag::EMPTY) {
            Fate::Discard
        } else {
            Fate::Keep
        }
    }

    /// Replaces the mapping under an extent in passage: no memory, no attributes.
    pub(crate) fn reset(&self, shard: &Shard, e: Extent) {
        let slots = shard.slots;
        let forked = slots.has(e.first, flag::FORKED);
        shard.count(if forked { Counter::BytesForked } else { Counter::BytesTainted }, e.n * SLOT);
        self.sys.reset(shard.span(e));
        (e.first..e.first + e.n).for_each(|i| {
            slots.clear(i, flag::OPEN);
            slots.clear(i, flag::ADVISED);
        });
    }

    /// Waits until the background thread is not inside `span`. Slots that are in passage or tainted by now are
    /// not entered any more.
    pub(crate) fn wait_while_busy(&self, span: Span) {
        let mut turn = 0;
        while span.contains(self.busy.load(Ordering::SeqCst)) {
            self.sys.relax(turn);
            turn += 1;
        }
    }

    /// Background thread: enters a slot of the program's, if it is still wholly lent and untainted, and calls
    /// `f` with its addresses.
    pub(crate) fn enter<R>(&self, shard: &Shard, i: usize, f: impl FnOnce(Span) -> R) -> Option<R> {
        let span = shard.span(Extent { first: i, n: 1 });
        // Pairs with `set` and `mark` of whoever takes the slot back or taints it: one of the two sees the other.
        self.busy.store(span.start, Ordering::SeqCst);
        let lent = matches!(shard.slots.state(i), State::Lent | State::Block)
            && !shard.slots.has(i, flag::TAINTED | flag::FORKED);
        let result = lent.then(|| f(span));
        self.busy.store(0, Ordering::SeqCst);
        result
    }
}
