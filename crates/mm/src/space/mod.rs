//! All of the arena: its shards, and the way of memory to its user and back.
//!
//! Lock order: a shard's lock, then the growth table's (`growths` in `state/ahead.rs`). No system call is made under a
//! shard's lock but those that open a new part of the reservation or give it up. A slot in transit belongs to the
//! thread that put it there, so that zeroing, opening and closing happen without any lock.

pub mod account;
pub mod alloc;
mod content;
pub mod fork;
pub mod free;
pub mod lend;
mod nodes;
pub mod progress;
pub(crate) mod shards;
pub mod shutdown;
pub(crate) mod transfer;
pub(crate) mod unused;

use faultless_base::sync::Late;
use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span};

use crate::frame::budget::Budget;
use crate::frame::busy::{Busy, Replaced};
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::predict::huge_cost::HugeCost;
use crate::predict::own_cost::OwnCost;
use crate::space::lend::Lending;
pub(crate) use crate::space::shards::Shard;
use crate::space::shards::{Program, Shards};
use crate::state::advices::Advices;
use crate::state::ahead::Ahead;
use crate::state::files::Files;
use crate::state::looks::Looks;
use crate::state::moves::Moves;
use crate::state::scrubber::Scrubber;
use crate::state::worker::Worker;
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block;

/// How long a call that changes attributes waits for a thread of ours.
const BUSY_WAIT_NS: u64 = 500_000;
/// The same for a call that replaces memory: our thread must not reach the new memory. It may need a processor first;
/// `Sys::relax` gives it an ordinary priority.
pub(crate) const REPLACED_WAIT_NS: u64 = 1_000_000_000;

/// The engine of one process: the kernel, the settings, and the owners of all that it remembers.
///
/// Each owner says what protects its fields. `sys`, `knobs` and `check` never change.
pub struct Space<S> {
    pub(crate) sys: S,
    /// The user's settings, which may change at any time.
    pub(crate) knobs: &'static Values,
    /// Whether each hand-out is verified; as it was at the start, for a block must not be half verified.
    pub(crate) check: bool,
    /// Whether memory may lie on several nodes; see [`nodes`].
    pub(crate) has_nodes: bool,
    /// The account of the peak rule.
    pub(crate) budget: Budget,
    /// When the account was last brought up to date; see [`account`].
    pub(crate) looks: Looks,
    /// The arena, whose memory is handed out, if there is one yet.
    shards: Late<Shards>,
    /// The frames of regions, and what is asked of the background thread for them.
    lending: Lending,
    /// The program's own mappings, which frames move into.
    program: Program,
    /// The memory that threads of ours are in right now, and that the program replaces.
    pub(crate) busy: Busy,
    /// What huge pages cost, and whether memory comes back.
    pub(crate) huge_cost: HugeCost,
    /// What the program's own faults cost.
    pub(crate) own_cost: OwnCost,
    /// What is brought ahead of the program: growth, stock, supply.
    pub(crate) ahead: Ahead,
    /// Whether frames may move, and be kept.
    pub(crate) moves: Moves,
    /// What the scrubber has in its hands.
    pub(crate) scrubber: Scrubber,
    /// Mappings that were advised; see [`crate::mapping::advice`].
    pub(crate) advices: Advices,
    /// Mappings of files that are read ahead of the program.
    pub(crate) files: Files,
    /// The notes for the background thread, and its habits; see [`crate::background`].
    pub(crate) worker: Worker,
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
        let space = Self::without_arena(sys, &counters[0], knobs)?;
        space.add_arena(bytes, shards, counters).then_some(space)
    }

    /// One without an arena: nothing may be allocated before [`Space::add_arena`].
    pub fn without_arena(sys: S, counters: &'static Block, knobs: &'static Values) -> Option<Self> {
        let program = Program::new(counters)?;
        let has_nodes = sys.has_nodes();
        Some(Self {
            sys,
            has_nodes,
            knobs,
            check: knobs.is_on(Knob::Check),
            budget: Budget::new(knobs),
            looks: Looks::default(),
            shards: Late::new(),
            lending: Lending::new(),
            program,
            busy: Busy::new(),
            huge_cost: HugeCost::new(),
            own_cost: OwnCost::default(),
            ahead: Ahead::new(),
            moves: Moves::default(),
            scrubber: Scrubber::default(),
            advices: Advices::new(),
            files: Files::default(),
            worker: Worker::default(),
        })
    }

    /// Reserves the arena, as [`Space::new`] does; false where the kernel refuses, or where there is one.
    pub fn add_arena(&self, bytes: usize, shards: usize, counters: &'static [Block]) -> bool {
        Shards::new(&self.sys, bytes, shards, counters).is_some_and(|shards| self.shards.set(shards))
    }

    #[inline]
    fn arena(&self) -> &Shards {
        self.shards.get().expect("an arena")
    }

    /// The arena's addresses.
    pub fn span(&self) -> Span {
        self.shards.get().map_or(Span::new(0, 0), Shards::span)
    }

    /// Whether each shard begins, and ends, at a multiple of `align` slots.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        (self.span().start | self.arena().bytes_of_each()) % (align.max(1) * SLOT) == 0
    }

    /// The account of the peak rule.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The shard that a thread on processor `cpu` uses first.
    #[inline]
    pub(crate) fn shard(&self, cpu: usize) -> &Shard {
        if self.has_nodes { self.shard_on_node(cpu) } else { self.arena().of(cpu) }
    }

    /// How many shards there are.
    pub(crate) fn shards_in_use(&self) -> usize {
        self.arena().count()
    }

    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.get().into_iter().flat_map(Shards::all)
    }

    /// Has the slots `e` of the program's mappings noted from now on; false where that is not possible.
    pub(crate) fn note_slots(&self, e: Extent) -> bool {
        self.program.note(e)
    }

    /// The parts of `e`, of whatever size, in which slots of the program's may be noted.
    pub(crate) fn noted(&self, e: Extent) -> impl Iterator<Item = Extent> + use<S> {
        self.program.noted(e)
    }

    /// The table of the program's mappings.
    pub(crate) fn program(&self) -> &Shard {
        &self.program.shard
    }

    /// Whether a shard is that table.
    pub(crate) fn is_program(&self, shard: &Shard) -> bool {
        core::ptr::eq(shard, self.program())
    }

    /// All slots that may be in use: those of each shard, and of the program's mappings.
    pub(crate) fn all_slots(&self) -> impl Iterator<Item = (&Shard, Extent)> {
        let shards = self.all_shards().map(|shard| (shard, shard.slots.ever_used()));
        let everything = Extent { first: Slot::new(0), n: usize::MAX / SLOT };
        shards.chain(self.noted(everything).map(|e| (self.program(), e)))
    }

    /// All shards, this one first.
    pub(crate) fn shards_from<'a>(&'a self, first: &'a Shard) -> impl Iterator<Item = &'a Shard> {
        let others = self.all_shards().filter(move |shard| shard.base != first.base);
        core::iter::once(first).chain(others)
    }

    /// The shard and the slot of an address of the arena.
    pub(crate) fn locate(&self, addr: usize) -> (&Shard, Slot) {
        self.arena().locate(addr)
    }

    /// The slots that an address belongs to, and its number among them.
    pub(crate) fn place(&self, addr: usize) -> (&Shard, Slot) {
        if self.span().contains(addr) { self.locate(addr) } else { (self.program(), Slot::around(addr)) }
    }

    /// Calls `f` for the part of `span` in each shard, with the slots that it touches.
    pub(crate) fn each_part(&self, span: Span, mut f: impl FnMut(&Shard, Span, Extent)) {
        let span = span.clip(self.span());
        for shard in self.all_shards() {
            let part = span.clip(Span::new(shard.base, self.arena().bytes_of_each()));
            if !part.is_empty() {
                let inside = Span { start: part.start - shard.base, end: part.end - shard.base };
                f(shard, part, Extent::around(inside));
            }
        }
    }

    /// Says that there is work for the background thread.
    pub fn want_worker(&self) {
        self.worker.notes.want();
    }

    /// Whether there is new work for the background thread.
    #[inline]
    pub fn is_worker_wanted(&self) -> bool {
        self.worker.notes.is_wanted()
    }

    /// Says that there is work which cannot wait.
    pub(crate) fn want_worker_now(&self) {
        self.worker.notes.want_now();
    }

    /// Whether that work cannot wait.
    pub fn is_worker_wanted_now(&self) -> bool {
        self.worker.notes.is_urgent()
    }

    /// The background thread begins to look what there is to do: notes from now on are new ones.
    pub fn take_notes(&self) {
        self.worker.notes.take();
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
        self.wait_at_most(at_most_ns, || self.is_left(span));
    }

    /// Waits for another thread, which is lent an ordinary priority.
    pub(crate) fn wait_at_most(&self, at_most_ns: u64, is_done: impl Fn() -> bool) {
        let mut turn = 0;
        let mut end = None;
        while !is_done() {
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
    /// of ours is there, unless one had no processor for a second. None comes until the result is dropped.
    pub fn replace(&self, span: Span) -> Replaced<'_> {
        self.replace_within(span, REPLACED_WAIT_NS)
    }

    /// The same for a signal handler that interrupted the engine: the thread that is there may be its own, for which it
    /// would wait in vain.
    pub fn replace_inside(&self, span: Span) -> Replaced<'_> {
        self.replace_within(span, BUSY_WAIT_NS)
    }

    fn replace_within(&self, span: Span, at_most_ns: u64) -> Replaced<'_> {
        let replaced = self.busy.replace(span);
        self.wait_until_left(span, at_most_ns);
        replaced
    }
}
