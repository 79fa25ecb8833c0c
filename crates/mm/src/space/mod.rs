//! All of the arena: its shards, and the way of memory to its user and back.
//!
//! Lock order: a shard's lock, then the growth table's ([`crate::background::ahead`]). No system call is made under a
//! shard's lock but those that open a new part of the reservation or give it up. A slot in transit belongs to the
//! thread that put it there, so that zeroing, opening and closing happen without any lock.

pub mod account;
pub mod alloc;
pub mod fork;
pub mod free;
pub mod lend;
pub mod progress;
pub mod shutdown;
pub(crate) mod transfer;
pub(crate) mod unused;
pub mod watched;

use faultless_base::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use faultless_base::sync::{self, TryGuard, TryLock};
use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span, table};

use crate::frame::arena::{Arena, Extent};
use crate::frame::buddy::Link;
use crate::frame::budget::{Budget, MAX_SHARDS};
use crate::frame::busy::{Busy, Replaced};
use crate::frame::later::Later;
use crate::frame::runs::Carved;
use crate::frame::sizes::Sizes;
use crate::frame::slot::{Slots, State, flag};
use crate::predict::huge_cost::HugeCost;
use crate::predict::pace::Pace;
use crate::predict::prefault_budget::PrefaultBudget;
use crate::predict::run_length::RunLength;
use crate::space::lend::Requests;
use crate::space::watched::{Advices, Growths, Supply};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block, Counter};

/// How long a call that changes attributes waits for a thread of ours.
const BUSY_WAIT_NS: u64 = 500_000;
/// The same for a call that replaces memory: our thread must not reach the new memory. It may need a processor first;
/// `Sys::relax` gives it an ordinary priority.
pub(crate) const REPLACED_WAIT_NS: u64 = 100_000_000;
/// After this many extents in a row that came back untouched, the next ones are expected to, too.
const UNTOUCHED_STREAK: u32 = 4;
/// After this many extents in a row that were used sparsely, the next ones are expected to be, too.
const SPARSE_STREAK: u32 = 8;
/// After this many drops in a row of memory that was in use, it is expected to be used again.
const DROPPED_STREAK: u32 = 3;

/// A shard: an arena behind its lock, and what may be used without it.
pub(crate) struct Shard {
    arena: TryLock<Arena>,
    pub(crate) slots: Slots,
    pub(crate) sizes: Sizes,
    /// Blocks and extents that came back while the lock was taken.
    pub(crate) later: Later,
    /// How often something was put into the free lists.
    pub(crate) given: AtomicUsize,
    pub(crate) number: usize,
    pub(crate) base: usize,
    pub(crate) counters: &'static Block,
    /// Extents in a row that came back untouched: the program seems to map memory here without using it.
    pub(crate) untouched: RunLength,
    /// Extents in a row that came back with a page used here and there, and those that were handed out accordingly
    /// since. Huge pages do not pay there, nor does zeroing all of it.
    pub(crate) sparse: RunLength,
    /// Drops in a row of memory that was in use; see [`crate::mapping::reuse`].
    pub(crate) dropped: RunLength,
}

/// The tables of an arena, with an entry for each slot.
type Tables = (&'static mut [Link], &'static mut [Carved]);

impl Shard {
    fn new(
        (number, base): (usize, usize),
        slots: Slots,
        n: usize,
        (links, carved): Tables,
        counters: &'static Block,
    ) -> Option<Self> {
        let sizes = Sizes::new(n)?;
        Some(Self {
            arena: TryLock::new(Arena::new(base, slots, sizes, links, carved)),
            slots,
            sizes,
            later: Later::new(n)?,
            given: AtomicUsize::new(0),
            number,
            base,
            counters,
            untouched: RunLength::new(UNTOUCHED_STREAK),
            sparse: RunLength::new(SPARSE_STREAK),
            dropped: RunLength::new(DROPPED_STREAK),
        })
    }

    /// One over `span`, of which nothing is open yet, for whole frames alone.
    fn apart(span: Span, counters: &'static Block) -> Option<Self> {
        let n = span.bytes() / SLOT;
        let tables: Tables = (table::lasting(n)?, table::lasting(n)?);
        Self::new((MAX_SHARDS - 1, span.start), Slots::new(sync::words(n + 1)?), n, tables, counters)
    }

    /// The lock, if it can be had without waiting for a thread that may have stopped.
    #[inline]
    pub(crate) fn lock_soon(&self) -> Option<TryGuard<'_, Arena>> {
        self.arena.lock_soon()
    }

    /// In a forked child: the holder of the lock is not here.
    pub(crate) fn force_unlock(&self) {
        self.arena.force_unlock();
    }

    /// Whether an extent that is handed out without memory now is expected to be used sparsely.
    pub(crate) fn skips_advice(&self) -> bool {
        let skips = self.sparse.is_granted();
        if self.sparse.is_long() {
            self.sparse.note(true);
        }
        skips
    }

    pub(crate) fn count(&self, counter: Counter, n: usize) {
        self.counters.add(counter, n as u64);
    }

    /// A block of malloc's went out. Counted under the lock, where it costs no locked instruction: this is the hottest
    /// path of all. Without the lock a count may be lost.
    pub(crate) fn count_block(&self, _held: Option<&TryGuard<'_, Arena>>, bytes: usize) {
        self.counters.add_alone(Counter::MallocServed, 1);
        self.counters.add_alone(Counter::MallocBytes, bytes as u64);
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

/// Where looks at charged slots go on, and how long they rest, in ms, and since when.
pub(crate) struct Cursor {
    pub(crate) shard: usize,
    pub(crate) slot: usize,
    pub(crate) rest: u32,
    pub(crate) since: u32,
}

/// The engine of one process.
pub struct Space<S> {
    pub(crate) sys: S,
    pub(crate) budget: Budget,
    pub(crate) knobs: &'static Values,
    /// Whether each hand-out is verified; as it was at the start, for a block must not be half verified.
    pub(crate) check: bool,
    pub(crate) growths: TryLock<Growths>,
    pub(crate) advices: TryLock<Advices>,
    pub(crate) shards: [Option<Shard>; MAX_SHARDS],
    /// Frames of regions: see [`lend`].
    apart: Option<Shard>,
    requests: Requests,
    /// The program's own mappings, as far as frames move into them: slots of the whole address space, without free
    /// lists.
    pub(crate) program: Shard,
    /// Of those, the first one that was ever noted, and the one after the last.
    noted: (AtomicUsize, AtomicUsize),
    /// The addresses among which all mappings lie that were ever known to [`Space::advices`].
    pub(crate) committed: (AtomicUsize, AtomicUsize),
    count: usize,
    span: Span,
    shard_bytes: usize,
    /// The slots that the background thread touches, reads or advises right now.
    pub(crate) busy: Busy,
    /// Slots that the background thread has taken out of the free lists for a moment.
    pub(crate) away: AtomicUsize,
    /// Nanoseconds for which it slept in the present step, because a device worked for it.
    pub(crate) slept: AtomicUsize,
    /// Slots handed out since the background thread last looked, for [`crate::background::ahead`].
    pub(crate) demand: AtomicUsize,
    pub(crate) prefault_budget: PrefaultBudget,
    /// How long the background work rests, in ms, and since when; see [`crate::background`].
    pub(crate) rest: AtomicU32,
    pub(crate) rest_since: AtomicU32,
    /// When memory pressure was last looked for, in ms.
    pub(crate) pressure_look: AtomicU32,
    /// When what lies between blocks was last seen to fit into the budget, in ms.
    pub(crate) wasted_ms: AtomicU32,
    /// When the account was last brought up to date, in ns; see [`crate::space::account`].
    pub(crate) looked_ns: AtomicUsize,
    /// When the background thread was last asked to look at the control group, and when memory was last promised, in
    /// ms. Whether the group may have a limit. Whether the program's threads could not look.
    pub(crate) group_ms: AtomicU32,
    pub(crate) promised_ms: AtomicU32,
    pub(crate) grouped: AtomicBool,
    pub(crate) group_unknown: AtomicBool,
    pub(crate) huge_cost: HugeCost,
    pub(crate) pace: Pace,
    pub(crate) supply: Supply,
    /// Whether the scrubber has zeroed something since it woke.
    pub(crate) scrubbed: AtomicBool,
    /// Set when a request wants the memory that the scrubber has.
    pub(crate) recalled: AtomicBool,
    /// Where [`Space::confirm_some`] goes on.
    pub(crate) confirming: TryLock<Cursor>,
    /// The processor that the program last asked for memory on, plus one; and where the background thread keeps away
    /// from, likewise.
    pub(crate) program_cpu: AtomicUsize,
    pub(crate) avoided_cpu: AtomicUsize,
    /// When the processors beside the program's were last seen to be busy, in ms; odd, 0 for never.
    pub(crate) crowded: AtomicU32,
    /// See [`crate::space::shutdown`].
    pub(crate) retired: AtomicBool,
    /// Set when there is new work for the background thread.
    wanted: AtomicBool,
    /// Set when that work cannot wait for its next look.
    urgent: AtomicBool,
}

impl<S: Sys> Space<S> {
    /// Reserves `bytes` of address space, split into `shards` shards (rounded up to a power of two), each with
    /// its block of `counters`. The `knobs` may change at any time. `None` when the kernel refuses.
    pub fn new(
        sys: S,
        bytes: usize,
        shards: usize,
        counters: &'static [Block],
        knobs: &'static Values,
    ) -> Option<Self> {
        let count = shards.next_power_of_two().clamp(1, MAX_SHARDS.min(counters.len()));
        let shard_slots = (bytes / SLOT / count).next_power_of_two();
        let shard_bytes = shard_slots * SLOT;
        let span = sys.reserve(count * shard_bytes, 1 << 30)?;
        let program = Shard::new(
            (0, 0),
            Slots::sparse(sync::words(Slots::SPARSE_WORDS)?),
            0,
            (&mut [], &mut []),
            &counters[0],
        )?;
        let mut shards = [const { None }; MAX_SHARDS];
        for (i, shard) in shards.iter_mut().take(count).enumerate() {
            let base = span.start + i * shard_bytes;
            let slots = Slots::new(sync::words(shard_slots + 1)?);
            let tables = (table::lasting(shard_slots)?, table::lasting(shard_slots)?);
            *shard = Some(Shard::new((i, base), slots, shard_slots, tables, &counters[i])?);
        }
        Some(Self {
            sys,
            budget: Budget::new(knobs),
            knobs,
            check: knobs.is_on(Knob::Check),
            growths: TryLock::new(Growths::new()),
            advices: TryLock::new(Advices::new()),
            shards,
            apart: None,
            requests: Requests::new(),
            program,
            noted: (AtomicUsize::new(usize::MAX), AtomicUsize::new(0)),
            committed: (AtomicUsize::new(usize::MAX), AtomicUsize::new(0)),
            count,
            span,
            shard_bytes,
            busy: Busy::new(),
            away: AtomicUsize::new(0),
            slept: AtomicUsize::new(0),
            demand: AtomicUsize::new(0),
            prefault_budget: PrefaultBudget::new(),
            rest: AtomicU32::new(0),
            rest_since: AtomicU32::new(0),
            pressure_look: AtomicU32::new(0),
            wasted_ms: AtomicU32::new(0),
            looked_ns: AtomicUsize::new(0),
            group_ms: AtomicU32::new(0),
            promised_ms: AtomicU32::new(0),
            grouped: AtomicBool::new(false),
            group_unknown: AtomicBool::new(false),
            huge_cost: HugeCost::new(),
            pace: Pace::default(),
            supply: Supply::default(),
            scrubbed: AtomicBool::new(false),
            recalled: AtomicBool::new(false),
            confirming: TryLock::new(Cursor { shard: 0, slot: 0, rest: 0, since: 0 }),
            program_cpu: AtomicUsize::new(0),
            avoided_cpu: AtomicUsize::new(0),
            crowded: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
        })
    }

    /// The arena's addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Whether each shard begins, and ends, at a multiple of `align` slots.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        (self.span.start | self.shard_bytes) % (align.max(1) * SLOT) == 0
    }

    /// The account of the peak rule.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The shard that a thread on processor `cpu` uses first.
    pub(crate) fn shard(&self, cpu: usize) -> &Shard {
        self.shards[cpu & (self.count - 1)].as_ref().expect("a shard in use")
    }

    /// How many shards there are.
    pub(crate) fn shards_in_use(&self) -> usize {
        self.count
    }

    /// All shards in which frames may be free.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        self.block_shards().chain(&self.apart)
    }

    /// Those in which blocks may lie.
    pub(crate) fn block_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    /// Has the slots `e` of the program's mappings noted from now on; false where that is not possible.
    pub(crate) fn note_slots(&self, e: Extent) -> bool {
        let works = self.program.slots.reach(e.slots());
        if works {
            self.noted.0.fetch_min(e.first, Ordering::Relaxed);
            self.noted.1.fetch_max(e.first + e.n, Ordering::Relaxed);
        }
        works
    }

    /// The parts of `e`, of whatever size, in which slots of the program's may be noted.
    pub(crate) fn noted(&self, e: Extent) -> impl Iterator<Item = Extent> + use<S> {
        let (first, end) = (self.noted.0.load(Ordering::Relaxed), self.noted.1.load(Ordering::Relaxed));
        let parts = self.program.slots.known(e.first.max(first)..(e.first + e.n).min(end));
        parts.map(|part| Extent { first: part.start, n: part.len() })
    }

    /// All slots that may be in use: those of each shard, and of the program's mappings.
    pub(crate) fn all_slots(&self) -> impl Iterator<Item = (&Shard, Extent)> {
        let shards = self.all_shards().map(|shard| (shard, Extent { first: 0, n: shard.slots.tail() }));
        let everything = Extent { first: 0, n: usize::MAX / SLOT };
        shards.chain(self.noted(everything).map(|e| (&self.program, e)))
    }

    /// All shards in which blocks may lie, this one first.
    pub(crate) fn shards_from<'a>(&'a self, first: &'a Shard) -> impl Iterator<Item = &'a Shard> {
        let others = self.block_shards().filter(move |shard| shard.base != first.base);
        core::iter::once(first).chain(others)
    }

    /// The shard and the slot of an address of the arena.
    pub(crate) fn locate(&self, addr: usize) -> (&Shard, usize) {
        let offset = addr - self.span.start;
        (self.shard(offset / self.shard_bytes), offset % self.shard_bytes / SLOT)
    }

    /// The slots that an address belongs to, and its number among them.
    pub(crate) fn place(&self, addr: usize) -> (&Shard, usize) {
        if self.span.contains(addr) { self.locate(addr) } else { (&self.program, addr / SLOT) }
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
    pub fn want_worker(&self) {
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Release);
            // Pairs with the thread's own, between its saying that it goes and its look at this: one of the two sees
            // the other.
            fence(Ordering::SeqCst);
        }
    }

    /// Whether there is new work for the background thread.
    #[inline]
    pub fn is_worker_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Says that there is work which cannot wait.
    pub(crate) fn want_worker_now(&self) {
        if !self.urgent.load(Ordering::Relaxed) {
            self.urgent.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        self.want_worker();
    }

    /// Whether that work cannot wait.
    pub fn is_worker_wanted_now(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }

    /// The background thread begins to look what there is to do: notes from now on are new ones.
    pub fn take_notes(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        self.urgent.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the background thread would have memory to give back.
    pub fn has_idle_memory(&self) -> bool {
        self.budget.idle() > 0 || self.all_shards().any(|shard| !shard.later.is_empty())
    }

    pub(crate) fn now_ms(&self) -> u32 {
        (self.sys.now_ns() / 1_000_000) as u32
    }

    /// Whether no thread of ours is inside `span`. The caller has changed the state of its slots, so that they are not
    /// entered any more.
    pub(crate) fn is_left(&self, span: Span) -> bool {
        self.busy.is_left(span)
    }

    /// Waits until no thread of ours is inside `span`, but not for long: that thread may have no processor. Slots
    /// that are in transit or tainted by now are not entered any more.
    pub(crate) fn wait_while_busy(&self, span: Span) {
        self.wait_until_left(span, BUSY_WAIT_NS);
    }

    fn wait_until_left(&self, span: Span, at_most_ns: u64) {
        let mut turn = 0;
        let mut end = None;
        while !self.is_left(span) {
            let now = self.sys.now_ns();
            if now >= *end.get_or_insert(now + at_most_ns) {
                return;
            }
            self.sys.relax(turn);
            turn += 1;
        }
    }

    /// In a child of a bare fork: the threads that were in some slots are not here.
    pub(crate) fn leave_slots(&self) {
        self.busy.forget();
    }

    /// Calls `f` with the addresses of slots of the program's, if the program still has all of them, untainted.
    pub(crate) fn enter<R>(&self, shard: &Shard, e: Extent, f: impl FnOnce(Span) -> R) -> Option<R> {
        let lent = |i| {
            matches!(shard.slots.state(i), State::Mapped | State::Block)
                && !shard.slots.has(i, flag::TAINTED | flag::FORKED)
        };
        let span = shard.span(e);
        self.busy.enter(span, || e.slots().all(lent), || f(span))
    }

    /// The program is about to map something else over `span`, or to move or unmap it. When this returns, no thread
    /// of ours is there, unless one had no processor for 100 ms. None comes until the result is dropped.
    pub fn replace(&self, span: Span) -> Replaced<'_> {
        let replaced = self.busy.replace(span);
        self.wait_until_left(span, REPLACED_WAIT_NS);
        replaced
    }
}
