//! The peak rule: a process never has more in memory than the program by itself once had, plus the budget.
//!
//! Three things make a process larger than it would be. They are memory kept while it is free (`idle`), huge pages
//! that the program is not yet seen to use (`charged`), and memory between blocks (`unused`, `lost`). While all three
//! fit into the budget the rule holds, whatever the program does. Beyond that, memory may be kept as long as the process
//! is not larger than the program's own peak and the budget. For that the kernel is asked from time to time how much the
//! process has ([`Budget::look`]), because the C library's heap and small pages are the kernel's business. The answer
//! without these three is a lower bound of the program's own peak. Between two looks, memory that the kernel is about to
//! bring counts as if it were there (`promised`).
//!
//! Idle memory, and memory between small blocks, can go back at any moment, and does when the program itself grows. The
//! rest cannot. So it stays within the budget alone, but for a program that used all it got: it is trusted with more
//! (`proven`).

use faultless_base::sync::CHECKED;
use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use faultless_base::{Pages, SLOT, UNIT};

use crate::frame::count::{PageCount, SlotCount};
use crate::frame::promises::Promises;
use crate::frame::unused::UnusedUnits;
use faultless_page::knobs::Values;
use faultless_page::stats;

mod rule;

/// Shards at most.
pub const MAX_SHARDS: usize = stats::BLOCKS;

/// A program is trusted only after it used this many slots completely, one after the other (256 MiB) …
const PROVES: usize = 128;
/// … and with this many times the budget at most.
const TRUSTED: usize = 8;

/// How often two counts are tried that change meanwhile.
const MOST_TURNS: usize = 1000;

/// The largest budget that is small, in slots (64 MiB).
const SMALL: usize = 32;

/// The account of a process. Each field is a word of its own that any thread changes by one atomic operation, and
/// that orders nothing. A thread that adds to one and takes from another adds first.
#[derive(Debug)]
pub struct Budget {
    knobs: &'static Values,
    /// Whether nothing may be kept any more.
    closed: AtomicBool,
    /// Free slots that hold memory.
    idle: SlotCount,
    /// Slots that hold memory because the program asked for that: its own, in the account.
    reserved: SlotCount,
    /// Slots with advice that is not confirmed yet.
    charged: SlotCount,
    /// What blocks of whole slots have that the program did not ask for.
    lost: PageCount,
    unused: UnusedUnits,
    /// Blocks that came back and are not taken in yet.
    deferred: PageCount,
    /// Slots that the program is known to use.
    used: SlotCount,
    /// Slots that the program used completely since it last left one in part.
    proven: SlotCount,
    promised: Promises,
    /// Resident pages at the last look that are neither used nor idle.
    other: PageCount,
    /// What the program once had by itself, at least.
    peak: PageCount,
    /// Whether the kernel was ever asked.
    looked: AtomicBool,
    /// Whether it did not answer, the last time: then nothing is kept beyond the budget.
    blind: AtomicBool,
    /// Whether the program's own growth is not seen: then, too.
    strict: AtomicBool,
    /// Whether the C library got a block for want of room.
    left_some: AtomicBool,
    /// Idle slots that had to go for blocks that could have used them.
    in_vain: AtomicUsize,
    /// Most slots, idle and charged together, that the control group allows.
    cap: SlotCount,
}

impl Budget {
    /// An account that may overdraw by its share of the budget.
    pub fn new(knobs: &'static Values) -> Self {
        let cap = SlotCount::default();
        cap.set(usize::MAX);
        Self {
            knobs,
            closed: AtomicBool::new(false),
            idle: SlotCount::default(),
            reserved: SlotCount::default(),
            charged: SlotCount::default(),
            lost: PageCount::default(),
            unused: UnusedUnits::default(),
            deferred: PageCount::default(),
            used: SlotCount::default(),
            proven: SlotCount::default(),
            promised: Promises::default(),
            other: PageCount::default(),
            peak: PageCount::default(),
            looked: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            strict: AtomicBool::new(false),
            left_some: AtomicBool::new(false),
            in_vain: AtomicUsize::new(0),
            cap,
        }
    }

    /// This account's share of the budget, in slots.
    pub fn limit(&self) -> usize {
        if self.closed.load(Relaxed) { 0 } else { self.knobs.budget_share() as usize / SLOT }
    }

    /// From now on nothing may be kept, whatever the knob says.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Free slots that hold memory, but for those that the program has reserved.
    pub fn idle(&self) -> usize {
        self.idle.get()
    }

    /// Free slots that hold memory because the program asked for that.
    pub fn reserved(&self) -> usize {
        self.reserved.get()
    }

    /// Slots that the program is known to use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Slots with advice that is not confirmed yet.
    pub fn charged(&self) -> usize {
        self.charged.get()
    }

    /// The C library gets a block for want of room.
    pub fn leave_block(&self) {
        self.left_some.store(true, Relaxed);
    }

    /// This many idle slots have to go for a block that could use them: how many that were by now.
    pub fn note_in_vain(&self, slots: usize) -> usize {
        self.in_vain.fetch_add(slots, Relaxed) + slots
    }

    /// Whether the C library gets all blocks that it may keep itself. Neither it nor the engine can use what the other
    /// one keeps. A small budget cannot bear both: once it was used up, it alone says what is kept.
    #[inline]
    pub fn leaves_blocks(&self) -> bool {
        self.left_some.load(Relaxed) && self.is_small()
    }

    /// Whether the budget is small.
    #[inline]
    pub fn is_small(&self) -> bool {
        // Not in models: all of their budgets are small.
        !CHECKED && self.limit() <= SMALL
    }

    /// Whether a shard, one of `shards`, has more than its share of the budget in units of no block.
    #[inline]
    pub fn wastes(&self, shard: usize, shards: usize) -> bool {
        self.unused.of(shard) * UNIT * shards > self.limit() * SLOT
    }

    /// Units of no block, in slots.
    fn wasted(&self) -> usize {
        self.unused.slots()
    }

    /// How many slots of them exceed the budget by themselves; they may stay only for a moment.
    pub fn wasted_above_limit(&self) -> usize {
        self.wasted().saturating_sub(self.limit())
    }

    /// Memory of no block goes back to the kernel. How much its slot still has is not known: it `was_used` before, or
    /// counts no more than the kernel says.
    pub fn strip(&self, memory: Pages, was_used: bool) {
        if was_used {
            self.unuse(1);
            self.other.add(Pages::of_slots(1) - memory);
        } else {
            self.other.sub_up_to(memory);
        }
    }

    /// Asks what the process has.
    pub fn look(&self, resident: impl FnOnce() -> Option<Pages>) {
        // Memory that is idle, charged or lost before or after the question was not the program's.
        let before = self.extra();
        let resident = resident();
        self.blind.store(resident.is_none(), Relaxed);
        let Some(resident) = resident else { return };
        let extra = before.max(self.extra());
        let known = self.used() + self.reserved() + self.idle();
        self.other.set(resident.without(Pages::of_slots(known)));
        if !self.looked.load(Relaxed) {
            // The value before the first look was a guess.
            self.peak.set(Pages::NONE);
            self.looked.store(true, Relaxed);
        }
        self.peak.raise(resident.without(extra));
    }

    /// Sets the most slots, idle and charged together, that the control group allows.
    pub fn bound(&self, slots: usize) {
        self.cap.set(slots);
    }

    /// This number of the program's slots was seen to be resident.
    pub fn use_slots(&self, slots: usize) {
        let used = self.used.add(slots);
        if !self.looked.load(Relaxed) {
            self.peak.raise(Pages::of_slots(used));
        }
    }

    /// The program gave such slots back.
    pub fn unuse(&self, slots: usize) {
        self.used.sub(slots);
    }

    /// The kernel is about to bring so much.
    pub fn promise(&self, memory: Pages) {
        self.promised.add(memory);
    }

    /// So much of it came back.
    pub fn end_promise(&self, memory: Pages) {
        self.promised.end(memory);
    }

    /// Time has passed: promises of the last period but one are forgotten.
    pub fn age_promises(&self) {
        self.promised.age();
    }

    /// Slots that came back, or were looked at: `all` of them were used completely, and `not_all` were not.
    pub fn note_use(&self, all: usize, not_all: usize) {
        if not_all > 0 {
            self.proven.set(0);
        } else if all > 0 {
            let most = PROVES + TRUSTED * self.limit();
            self.proven.add_up_to(all, most);
        }
    }

    /// This many units of a shard's carved slots belong to no block. Called with the shard's lock held.
    #[inline]
    pub fn set_unused(&self, shard: usize, units: usize) {
        self.unused.set(shard, units);
    }

    /// A block comes back, and is taken in later.
    pub fn defer(&self, memory: Pages) {
        self.deferred.add(memory);
    }

    /// It is taken in.
    pub fn end_deferral(&self, memory: Pages) {
        self.deferred.sub(memory);
    }

    /// A block of whole slots has so much more than was asked for.
    pub fn lose(&self, memory: Pages) {
        self.lost.add(memory);
    }

    /// The reverse of [`Budget::lose`].
    pub fn regain(&self, memory: Pages) {
        self.lost.sub(memory);
    }

    /// Free slots are kept with their memory.
    pub fn keep(&self, slots: usize) {
        self.idle.add(slots);
    }

    /// Kept slots are handed out, or their memory returned: idle ones first, then reserved ones.
    pub fn unkeep(&self, slots: usize) {
        take_from([&self.idle, &self.reserved], slots);
    }

    /// Slots are reserved.
    pub fn reserve(&self, slots: usize) {
        self.reserved.add(slots);
    }

    /// Kept slots are handed out that may have been reserved.
    pub fn unkeep_reserved(&self, slots: usize) {
        take_from([&self.reserved, &self.idle], slots);
    }

    /// Whether nothing is kept beyond the budget for good.
    pub fn is_strict(&self) -> bool {
        self.strict.load(Relaxed)
    }

    /// From now on nothing is kept beyond the budget, however large the program once was: its own growth is not seen.
    pub fn be_strict(&self) {
        self.strict.store(true, Relaxed);
    }

    /// Charges slots, come what may.
    pub fn charge(&self, slots: usize) {
        self.charged.add(slots);
    }

    /// Ends the charge of slots.
    pub fn discharge(&self, slots: usize) {
        self.charged.sub(slots);
    }

    /// After a fork, in the child: nothing is idle, and what slots and blocks say is counted anew.
    pub fn recount(&self, counted: Counted) {
        self.charged.set(counted.charged);
        self.used.set(counted.used);
        self.lost.set(counted.lost);
        self.idle.set(0);
        self.reserved.set(0);
        self.deferred.set(Pages::NONE);
        self.promised.forget();
        self.other.set(Pages::NONE);
        self.peak.set(Pages::NONE);
        self.looked.store(false, Relaxed);
        self.use_slots(0);
    }
}

/// What slots and blocks in use count for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Slots that the program is known to use.
    pub used: usize,
    /// Slots that are charged.
    pub charged: usize,
    /// What blocks of whole slots have in excess.
    pub lost: Pages,
}

/// Takes slots away, from the first of two counts as far as it goes. Together they have as many; which of them has may
/// change meanwhile.
fn take_from(counts: [&SlotCount; 2], slots: usize) {
    let mut left = slots;
    for _ in 0..MOST_TURNS {
        counts.iter().for_each(|count| left -= count.sub_up_to(left));
        if left == 0 {
            return;
        }
    }
    debug_assert!(false, "account overdrawn: {left} of {slots}");
}

#[cfg(test)]
mod tests;
