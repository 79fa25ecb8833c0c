//! Machines with several nodes (NUMA): each shard keeps frames of one node, that of the thread which used it first.
//!
//! - A request takes frames of the node on which the calling thread runs. Where that thread has a policy of its own, it
//!   takes none. Then the kernel alone places its memory.
//! - Memory that comes back is kept by a shard of its own node, or goes to the kernel.
//! - Nothing of the program's is touched, or moved, ahead of it. The thread that touches memory first decides where it
//!   lies, and that is to be the program's.
//! - Frames that a region asks for are made on the node of the thread that asks.
//!
//! On a machine with one node none of this asks anything.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::knobs::Knob;

/// The node of a shard and one more; 0: none yet. It never changes afterwards. Also that of the last request for frames.
#[derive(Default)]
pub(crate) struct Node(AtomicUsize);

impl Node {
    /// Whether it is this one, or becomes it because there was none.
    fn is_or_becomes(&self, node: usize) -> bool {
        let old = self.0.compare_exchange(0, node + 1, Relaxed, Relaxed);
        old.is_ok() || old == Err(node + 1)
    }

    fn get(&self) -> Option<usize> {
        self.0.load(Relaxed).checked_sub(1)
    }

    fn set(&self, node: usize) {
        self.0.store(node + 1, Relaxed);
    }
}

impl<S: Sys> Space<S> {
    /// The shard that a thread on processor `cpu` uses first: one of its node, if there is such.
    #[cold]
    pub(crate) fn shard_on_node(&self, cpu: usize) -> &Shard {
        let usual = self.arena().of(cpu);
        let node = self.sys.node_of_cpu(cpu);
        self.shards_from(usual).find(|shard| shard.node.is_or_becomes(node)).unwrap_or(usual)
    }

    /// Whether the calling thread may have idle frames of a shard.
    pub(crate) fn may_use(&self, shard: &Shard) -> bool {
        !self.has_nodes || self.sys.home().is_some_and(|node| shard.node.get() == Some(node))
    }

    /// Whether the frames of two shards lie on one node.
    pub(crate) fn is_on_same_node(&self, one: &Shard, other: &Shard) -> bool {
        !self.has_nodes || one.node.get() == other.node.get()
    }

    /// All shards whose frames lie where those of this one do, which is the first.
    pub(crate) fn shards_near<'a>(&'a self, own: &'a Shard) -> impl Iterator<Item = &'a Shard> {
        self.shards_from(own).filter(|shard| self.is_on_same_node(shard, own))
    }

    /// Whether memory at a place may be kept in a shard.
    pub(crate) fn is_near(&self, shard: &Shard, slot: Span) -> bool {
        !self.has_nodes || shard.node.get().is_some_and(|node| self.sys.node_of(slot) == Some(node))
    }

    /// Whether memory lies where new memory of the calling thread would.
    pub(crate) fn is_home(&self, slot: Span) -> bool {
        !self.has_nodes || self.sys.home().is_some_and(|home| self.sys.node_of(slot) == Some(home))
    }

    /// Notes which slots in transit go to the program with memory.
    pub(crate) fn mark_brought(&self, shard: &Shard, e: Extent) {
        let has_memory = |i: &Slot| matches!(shard.slots.was(*i), State::Dirty | State::Zeroed);
        if self.has_nodes {
            e.slots().filter(has_memory).for_each(|i| _ = shard.slots.mark(i, flag::BROUGHT));
        }
    }

    /// The program has given a policy to `span`. Calls `move_there` for the parts that had memory before the program
    /// came to them. On the kernel's own way there would be none yet, and it would come from where the policy says.
    pub fn each_brought(&self, span: Span, mut move_there: impl FnMut(Span)) {
        if !self.has_nodes {
            return;
        }
        let mut each = |shard: &Shard, i: Slot| {
            let part = shard.slot(i).clip(span);
            if shard.slots.has(i, flag::BROUGHT) && !part.is_empty() {
                move_there(part);
            }
        };
        self.lent_in(span).for_each(|i| each(self.program(), i));
        if self.shards.get().is_some() {
            self.each_part(span, |shard, _, e| e.before(shard.slots.tail()).slots().for_each(|i| each(shard, i)));
        }
    }

    /// Marks slots of `e`, which come back, as empty where their memory lies on another node.
    pub(crate) fn mark_distant(&self, shard: &Shard, e: Extent) {
        if self.has_nodes {
            let lost = flag::EMPTY | flag::TAINTED | flag::FORKED;
            let is_distant = |i: &Slot| !shard.slots.has(*i, lost) && !self.is_near(shard, shard.slot(*i));
            e.slots().filter(is_distant).for_each(|i| _ = shard.slots.mark(i, flag::EMPTY));
        }
    }

    /// Which shard keeps frames that lie at `from`, whole slots, and how many of them from the first on.
    pub(crate) fn keeper(&self, cpu: usize, from: Span) -> (Option<&Shard>, usize) {
        let n = from.bytes() / SLOT;
        if !self.has_nodes {
            return (Some(self.shard(cpu)), n);
        }
        let node = |i: usize| self.sys.node_of(Span::new(from.start + i * SLOT, SLOT));
        let first = node(0);
        let own = self.shard(cpu);
        let keeper = first.and_then(|node| self.shards_from(own).find(|shard| shard.node.is_or_becomes(node)));
        let others = if keeper.is_some() { (1..n).take_while(|&i| node(i) == first).count() } else { 0 };
        (keeper, 1 + others)
    }

    /// The calling thread asks for frames: whether it may have any.
    pub(crate) fn note_asked(&self) -> bool {
        !self.has_nodes || self.sys.home().inspect(|node| self.lending.node.set(*node)).is_some()
    }

    /// Calls `make`, which touches memory, where the last request wants it. `None`: the calling thread has a policy of
    /// its own, which stays.
    pub(crate) fn on_asked_node<R>(&self, make: impl FnOnce() -> R) -> Option<R> {
        if !self.has_nodes {
            return Some(make());
        }
        self.sys.home()?;
        self.sys.prefer_node(self.lending.node.get());
        let made = make();
        self.sys.prefer_node(None);
        Some(made)
    }

    /// Whether memory is touched ahead of the program.
    pub(crate) fn goes_ahead(&self) -> bool {
        self.knobs.is_on(Knob::Ahead) && !self.has_nodes
    }

    /// Whether frames may be moved ahead of it.
    pub(crate) fn may_move_ahead(&self) -> bool {
        !self.has_nodes
    }
}
