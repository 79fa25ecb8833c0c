//! The arena's addresses, in shards, and the table of the program's own mappings.
//!
//! What is behind a shard's lock is in [`Arena`]. Its other fields need no lock: each says so itself.

use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use faultless_base::sync::{self, TryGuard, TryLock};
use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span, UNIT, table};

use crate::frame::arena::Arena;
use crate::frame::buddy::Link;
use crate::frame::budget::MAX_SHARDS;
use crate::frame::extent::Extent;
use crate::frame::later::Later;
use crate::frame::runs::{Carved, Run};
use crate::frame::sizes::Sizes;
use crate::frame::slot::Slots;
use crate::predict::run_length::RunLength;
use crate::space::nodes::Node;
use crate::state::bounds::Bounds;
use faultless_page::stats::{Block, Counter};

/// After this many extents in a row that came back untouched, the next ones are expected to, too.
const UNTOUCHED_STREAK: u32 = 4;
/// After this many extents in a row that were used sparsely, the next ones are expected to be, too.
const SPARSE_STREAK: u32 = 8;
/// After this many drops in a row of memory that was in use, it is expected to be used again.
const DROPPED_STREAK: u32 = 3;

/// A shard: an arena behind its lock, and what may be used without it. `number`, `base` and `counters` never change.
pub(crate) struct Shard {
    /// The free lists and the carved slots.
    arena: TryLock<Arena>,
    /// A word for each slot. Who may change it: see [`Slots`].
    pub(crate) slots: Slots,
    /// The sizes of blocks. Who may change them: see [`Sizes`].
    pub(crate) sizes: Sizes,
    /// Blocks and extents that came back while the lock was taken: a list without a lock.
    pub(crate) later: Later,
    /// How often something was put into the free lists. A thread that puts something there counts it first, with the
    /// lock; one that asks the kernel about free slots compares the count before and after.
    pub(crate) given: AtomicUsize,
    /// Which one it is, and where its slot 0 begins.
    pub(crate) number: usize,
    pub(crate) base: usize,
    /// The node of its frames; see [`crate::space::nodes`].
    pub(crate) node: Node,
    /// What it counts; statistics alone.
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
        number: usize,
        base: usize,
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
            node: Node::default(),
            counters,
            untouched: RunLength::new(UNTOUCHED_STREAK),
            sparse: RunLength::new(SPARSE_STREAK),
            dropped: RunLength::new(DROPPED_STREAK),
        })
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

    #[inline]
    pub(crate) fn span(&self, e: Extent) -> Span {
        e.span(self.base)
    }

    /// The addresses of one slot.
    #[inline]
    pub(crate) fn slot(&self, slot: Slot) -> Span {
        slot.span(self.base)
    }

    /// The addresses of a run.
    #[inline]
    pub(crate) fn run(&self, slot: Slot, run: Run) -> Span {
        Span::new(slot.addr(self.base) + run.unit * UNIT, run.n * UNIT)
    }
}

/// The arena: one reservation of addresses, in shards of the same size.
pub(crate) struct Shards {
    all: [Option<Shard>; MAX_SHARDS],
    /// How many are in use, a power of two.
    count: usize,
    span: Span,
    /// Bytes of addresses of each.
    bytes: usize,
    /// Whether its free addresses are given back, or about to be. Set once; a thread that puts slots back looks with the
    /// shard's lock. See [`crate::space::shutdown`].
    retired: AtomicBool,
}

impl Shards {
    /// Reserves `bytes` of address space for `shards` shards, rounded up to a power of two. `None` when the kernel
    /// refuses.
    pub(crate) fn new(sys: &impl Sys, bytes: usize, shards: usize, counters: &'static [Block]) -> Option<Self> {
        let count = shards.next_power_of_two().clamp(1, MAX_SHARDS.min(counters.len()));
        let slots = (bytes / SLOT / count).next_power_of_two();
        let bytes = slots * SLOT;
        let all = count * bytes;
        let span = sys.reserve(all, all.min(1 << 30))?;
        let mut all = [const { None }; MAX_SHARDS];
        for (i, shard) in all.iter_mut().take(count).enumerate() {
            let words = Slots::new(sync::words(slots + 1)?);
            let tables = (table::lasting(slots)?, table::lasting(slots)?);
            *shard = Some(Shard::new(i, span.start + i * bytes, words, slots, tables, &counters[i])?);
        }
        Some(Self { all, count, span, bytes, retired: AtomicBool::new(false) })
    }

    /// The arena's addresses.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Bytes of addresses of each.
    pub(crate) fn bytes_of_each(&self) -> usize {
        self.bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The shard that a thread on processor `cpu` uses first.
    #[inline]
    pub(crate) fn of(&self, cpu: usize) -> &Shard {
        self.all[cpu & (self.count - 1)].as_ref().expect("a shard in use")
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Shard> {
        self.all.iter().flatten()
    }

    /// The shard and the slot of an address of the arena.
    #[inline]
    pub(crate) fn locate(&self, addr: usize) -> (&Shard, Slot) {
        let offset = addr - self.span.start;
        (self.of(offset / self.bytes), Slot::around(offset % self.bytes))
    }

    /// From now on its free addresses are given back.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn are_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}

/// The program's own mappings, as far as frames move into them: slots of the whole address space, without free lists.
pub(crate) struct Program {
    pub(crate) shard: Shard,
    /// Among which slots all lie that were ever noted.
    noted: Bounds,
}

impl Program {
    /// Nothing is noted. `None` when the kernel refuses.
    pub(crate) fn new(counters: &'static Block) -> Option<Self> {
        let slots = Slots::sparse(sync::words(Slots::SPARSE_WORDS)?);
        Some(Self { shard: Shard::new(0, 0, slots, 0, (&mut [], &mut []), counters)?, noted: Bounds::new() })
    }

    /// Has the slots `e` noted from now on; false where that is not possible.
    pub(crate) fn note(&self, e: Extent) -> bool {
        let works = self.shard.slots.reach(e);
        if works {
            self.noted.widen(e.first.number()..e.end().number());
        }
        works
    }

    /// The parts of `e`, of whatever size, in which slots may be noted.
    pub(crate) fn noted(&self, e: Extent) -> impl Iterator<Item = Extent> + use<> {
        let inside = self.noted.clip(e.first.number()..e.end().number());
        self.shard.slots.known(Extent::between(Slot::new(inside.start), Slot::new(inside.end)))
    }
}
