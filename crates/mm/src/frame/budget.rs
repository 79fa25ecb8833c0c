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
use faultless_base::{PAGE, SLOT, SLOT_PAGES, UNIT};

use faultless_page::knobs::{Knob, Values};
use faultless_page::stats;

/// Shards at most.
pub const MAX_SHARDS: usize = stats::BLOCKS;

/// A program is trusted only after it used this many slots completely, one after the other (256 MiB) …
const PROVES: usize = 128;
/// … and with this many times the budget at most.
const TRUSTED: usize = 8;

/// The largest budget that is small, in slots (64 MiB).
const SMALL: usize = 32;

/// On a cache line of its own, because it is written at each call.
#[derive(Debug)]
#[repr(align(64))]
struct Apart(AtomicUsize);

/// The account of a process, in slots where nothing else is said.
#[derive(Debug)]
pub struct Budget {
    knobs: &'static Values,
    closed: AtomicBool,
    idle: AtomicUsize,
    /// Slots that hold memory because the program asked for that: its own, in the account.
    reserved: AtomicUsize,
    charged: AtomicUsize,
    /// Pages of blocks of whole slots that the program did not ask for.
    lost: AtomicUsize,
    /// Units of carved slots that belong to no block, shard by shard.
    unused: [Apart; MAX_SHARDS],
    used: AtomicUsize,
    /// Slots that the program used completely since it last left one in part.
    proven: AtomicUsize,
    /// Pages that were promised lately, and a while ago.
    promised: [AtomicUsize; 2],
    /// Resident pages at the last look that are neither used nor idle.
    other: AtomicUsize,
    /// Pages that the program once had by itself, at least.
    peak: AtomicUsize,
    /// Whether the kernel was ever asked.
    looked: AtomicBool,
    /// Whether it did not answer, the last time: then nothing is kept beyond the budget.
    blind: AtomicBool,
    /// Whether the C library got a block for want of room.
    left_some: AtomicBool,
    /// Most slots, idle and charged together, that the control group allows.
    cap: AtomicUsize,
}

impl Budget {
    /// An account that may overdraw by as much as [`Knob::Budget`] says.
    pub fn new(knobs: &'static Values) -> Self {
        let zero = || AtomicUsize::new(0);
        Self {
            knobs,
            closed: AtomicBool::new(false),
            idle: zero(),
            reserved: zero(),
            charged: zero(),
            lost: zero(),
            unused: core::array::from_fn(|_| Apart(zero())),
            used: zero(),
            proven: zero(),
            promised: [zero(), zero()],
            other: zero(),
            peak: zero(),
            looked: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            left_some: AtomicBool::new(false),
            cap: AtomicUsize::new(usize::MAX),
        }
    }

    /// The budget itself, in slots.
    pub fn limit(&self) -> usize {
        if self.closed.load(Relaxed) { 0 } else { self.knobs.get(Knob::Budget) as usize / SLOT }
    }

    /// From now on nothing may be kept, whatever the knob says.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Free slots that hold memory, but for those that the program has reserved.
    pub fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Free slots that hold memory because the program asked for that.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// Slots that the program is known to use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Slots with advice that is not confirmed yet.
    pub fn charged(&self) -> usize {
        self.charged.load(Relaxed)
    }

    /// What may still be kept. A budget of nothing allows nothing.
    pub fn room(&self) -> usize {
        if self.limit() == 0 {
            return 0;
        }
        let free = self.allowed().saturating_sub(self.total()) / SLOT_PAGES;
        let within = (self.limit() * SLOT_PAGES).saturating_sub(self.extra()) / SLOT_PAGES;
        free.max(within).min(self.cap.load(Relaxed).saturating_sub(self.idle() + self.charged()))
    }

    /// How much more the program may get as huge pages of which it is not known that it will use them.
    pub fn trust(&self) -> usize {
        match self.limit() {
            0 => 0,
            limit => {
                // Units of no block can go back at any moment.
                let lost = self.lost.load(Relaxed).div_ceil(SLOT_PAGES);
                let proven = self.proven.load(Relaxed).saturating_sub(PROVES);
                let most = (limit + proven.min(self.peak.load(Relaxed) / SLOT_PAGES)).min(self.cap.load(Relaxed));
                most.saturating_sub(self.charged() + lost)
            }
        }
    }

    /// Pages that the process may have, at least.
    fn allowed(&self) -> usize {
        let is_strict = self.blind.load(Relaxed) || self.leaves_blocks();
        let peak = if is_strict { 0 } else { self.peak.load(Relaxed) };
        self.limit() * SLOT_PAGES + peak
    }

    /// The C library gets a block for want of room.
    pub fn leave_block(&self) {
        self.left_some.store(true, Relaxed);
    }

    /// Whether the C library gets all blocks that it may keep itself. Neither it nor the engine can use what the other
    /// one keeps. A small budget cannot bear both: once it was used up, it alone says what is kept.
    #[inline]
    pub fn leaves_blocks(&self) -> bool {
        // Not in models: all of their budgets are small.
        !CHECKED && self.left_some.load(Relaxed) && self.limit() <= SMALL
    }

    /// Pages that it has or is about to have.
    fn total(&self) -> usize {
        let promised: usize = self.promised.iter().map(|promised| promised.load(Relaxed)).sum();
        let slots = self.used() + self.reserved() + self.idle() + self.charged();
        slots * SLOT_PAGES + self.other.load(Relaxed) + promised
    }

    /// Pages that it has because of us, at most.
    fn extra(&self) -> usize {
        (self.idle() + self.charged()) * SLOT_PAGES + self.lost()
    }

    /// Pages of slots in use that belong to no block.
    fn lost(&self) -> usize {
        self.lost.load(Relaxed) + self.unused_units() * UNIT / PAGE
    }

    fn unused_units(&self) -> usize {
        self.unused.iter().map(|unused| unused.0.load(Relaxed)).sum()
    }

    /// Whether a shard, one of `shards`, has more than its share of the budget in units of no block.
    #[inline]
    pub fn wastes(&self, shard: usize, shards: usize) -> bool {
        let units = self.unused[shard].0.load(Relaxed);
        units * UNIT * shards > self.limit() * SLOT
    }

    /// Units of no block, in slots.
    fn wasted(&self) -> usize {
        self.unused_units() * UNIT / SLOT
    }

    /// How many slots of them exceed the budget by themselves; they may stay only for a moment.
    pub fn wasted_above_limit(&self) -> usize {
        self.wasted().saturating_sub(self.limit())
    }

    /// Memory of no block goes back to the kernel, in pages. How much its slot still has is not known: it `was_used`
    /// before, or counts no more than the kernel says.
    pub fn strip(&self, pages: usize, was_used: bool) {
        if was_used {
            self.unuse(1);
            self.other.fetch_add(SLOT_PAGES - pages, Relaxed);
        } else {
            let _ = self.other.fetch_update(Relaxed, Relaxed, |other| Some(other.saturating_sub(pages)));
        }
    }

    /// How many idle slots exceed the budget by itself; they may stay only for a moment.
    pub fn above_limit(&self) -> usize {
        (self.idle() + self.charged()).saturating_sub(self.limit()).min(self.idle())
    }

    /// How many slots of idle memory, and of units of no block, have to go at once, if `pages` more come.
    pub fn excess(&self, pages: usize) -> usize {
        let spare = self.idle() + self.wasted();
        if spare == 0 || self.limit() == 0 {
            return self.idle();
        }
        let capped = (spare + self.charged()).saturating_sub(self.cap.load(Relaxed));
        self.overdrawn(pages).max(capped).min(spare)
    }

    /// Asks how many pages the process has.
    pub fn look(&self, resident: impl FnOnce() -> Option<usize>) {
        // Memory that is idle, charged or lost before or after the question was not the program's.
        let before = self.extra();
        let resident = resident();
        self.blind.store(resident.is_none(), Relaxed);
        let Some(resident) = resident else { return };
        let extra = before.max(self.extra());
        let known = self.used() + self.reserved() + self.idle();
        self.other.store(resident.saturating_sub(known * SLOT_PAGES), Relaxed);
        if !self.looked.load(Relaxed) {
            // The value before the first look was a guess.
            self.peak.store(0, Relaxed);
            self.looked.store(true, Relaxed);
        }
        self.peak.fetch_max(resident.saturating_sub(extra), Relaxed);
    }

    /// Sets the most slots, idle and charged together, that the control group allows.
    pub fn bound(&self, slots: usize) {
        self.cap.store(slots, Relaxed);
    }

    /// Memory of the program's was seen to be resident.
    pub fn use_slots(&self, n: usize) {
        let used = self.used.fetch_add(n, Relaxed) + n;
        if !self.looked.load(Relaxed) {
            self.peak.fetch_max(used * SLOT_PAGES, Relaxed);
        }
    }

    /// The program gave such memory back.
    pub fn unuse(&self, n: usize) {
        sub(&self.used, n);
    }

    /// The kernel is about to bring this many pages.
    pub fn promise(&self, pages: usize) {
        self.promised[0].fetch_add(pages, Relaxed);
    }

    /// This many of them came back.
    pub fn end_promise(&self, pages: usize) {
        let mut left = pages;
        for promised in &self.promised {
            let take = |all: usize| Some(all - all.min(left));
            let before = promised.fetch_update(Relaxed, Relaxed, take).unwrap_or(0);
            left -= left.min(before);
        }
    }

    /// Time has passed: promises of the last period but one are forgotten: their memory is there by now, or will not
    /// come soon.
    pub fn age_promises(&self) {
        self.promised[1].store(self.promised[0].swap(0, Relaxed), Relaxed);
    }

    /// Slots that came back, or were looked at: `all` of them were used completely, and `not_all` were not.
    pub fn note_use(&self, all: usize, not_all: usize) {
        if not_all > 0 {
            self.proven.store(0, Relaxed);
        } else if all > 0 {
            let most = PROVES + TRUSTED * self.limit();
            let _ = self.proven.fetch_update(Relaxed, Relaxed, |proven| Some((proven + all).min(most)));
        }
    }

    /// This many units of a shard's carved slots belong to no block. Called with the shard's lock held.
    #[inline]
    pub fn set_unused(&self, shard: usize, units: usize) {
        self.unused[shard].0.store(units, Relaxed);
    }

    /// A block of whole slots has this many pages more than were asked for.
    pub fn lose(&self, pages: usize) {
        self.lost.fetch_add(pages, Relaxed);
    }

    /// The reverse of [`Budget::lose`].
    pub fn regain(&self, pages: usize) {
        sub(&self.lost, pages);
    }

    /// Free memory is kept.
    pub fn keep(&self, n: usize) {
        self.idle.fetch_add(n, Relaxed);
    }

    /// Kept memory is handed out or returned: idle memory first, then what is reserved.
    pub fn unkeep(&self, n: usize) {
        sub(&self.reserved, n - take(&self.idle, n));
    }

    /// Idle memory is reserved.
    pub fn reserve(&self, n: usize) {
        sub(&self.idle, n);
        self.reserved.fetch_add(n, Relaxed);
    }

    /// Memory is handed out that may have been reserved.
    pub fn unkeep_reserved(&self, n: usize) {
        sub(&self.idle, n - take(&self.reserved, n));
    }

    /// Charges up to `n` slots for advice that is not confirmed yet. Leaves room for a frame on its way there.
    pub fn charge_up_to(&self, n: usize) -> usize {
        let way = usize::from(self.limit() > 1);
        let got = n.min(self.room().min(self.trust()).saturating_sub(way));
        self.charged.fetch_add(got, Relaxed);
        // Others may have taken from the same room meanwhile.
        let over = self.overdrawn(0).min(got);
        sub(&self.charged, over);
        got - over
    }

    fn overdrawn(&self, pages: usize) -> usize {
        let over = (self.total() + pages).saturating_sub(self.allowed());
        let beyond = self.extra().saturating_sub(self.limit() * SLOT_PAGES);
        over.min(beyond).div_ceil(SLOT_PAGES)
    }

    /// Charges `n` slots, come what may.
    pub fn charge(&self, n: usize) {
        self.charged.fetch_add(n, Relaxed);
    }

    /// Ends the charge of `n` slots.
    pub fn discharge(&self, n: usize) {
        sub(&self.charged, n);
    }

    /// After a fork, in the child: nothing is idle; the counts of used and charged slots and of pages that blocks of
    /// whole slots have in excess are new.
    pub fn recount(&self, used: usize, charged: usize, lost: usize) {
        let counts = [(&self.charged, charged), (&self.used, used), (&self.lost, lost)];
        let gone = [&self.idle, &self.reserved, &self.promised[0], &self.promised[1], &self.other, &self.peak];
        counts.into_iter().for_each(|(count, n)| count.store(n, Relaxed));
        gone.into_iter().for_each(|count| count.store(0, Relaxed));
        self.looked.store(false, Relaxed);
        self.use_slots(0);
    }
}

/// Takes up to `n`; how many.
fn take(value: &AtomicUsize, n: usize) -> usize {
    let less = |v: usize| Some(v - v.min(n));
    value.fetch_update(Relaxed, Relaxed, less).map_or(0, |before| before.min(n))
}

fn sub(value: &AtomicUsize, n: usize) {
    let _ = value.fetch_update(Relaxed, Relaxed, |v| {
        debug_assert!(v >= n, "account overdrawn: {v} - {n}");
        Some(v.saturating_sub(n))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_gave_back_may_be_kept() {
        let knobs: &'static Values = std::boxed::Box::leak(std::boxed::Box::default());
        knobs.set(Knob::Budget, 4 * SLOT as u64);
        let b = Budget::new(knobs);
        assert_eq!(b.charge_up_to(10), 3);
        assert_eq!(b.room(), 1);
        b.discharge(3);
        b.use_slots(64);
        b.unuse(64);
        assert_eq!(b.room(), 68);
        b.keep(60);
        assert_eq!((b.room(), b.above_limit()), (8, 56));
        knobs.set(Knob::Budget, 10 * SLOT as u64 + 1);
        assert_eq!((b.room(), b.above_limit()), (14, 50));
        b.close();
        assert_eq!((b.room(), b.above_limit()), (0, 60));
    }

    #[test]
    fn nothing_is_kept_beyond_the_budget_while_the_kernel_does_not_answer() {
        let b = budget(4);
        b.use_slots(64);
        b.look(|| Some(64 * SLOT_PAGES));
        b.unuse(64);
        b.look(|| Some(0));
        b.keep(60);
        assert_eq!((b.room(), b.excess(0)), (8, 0));
        b.look(|| None);
        assert_eq!((b.room(), b.excess(0)), (0, 56));
        b.look(|| Some(60 * SLOT_PAGES));
        assert_eq!((b.room(), b.excess(0)), (8, 0));
    }

    fn budget(slots: usize) -> Budget {
        let knobs: &'static Values = std::boxed::Box::leak(std::boxed::Box::default());
        knobs.set(Knob::Budget, (slots * SLOT) as u64);
        Budget::new(knobs)
    }

    #[test]
    fn what_the_process_has_beside_counts() {
        let b = budget(4);
        b.use_slots(64);
        b.lose(2 * SLOT_PAGES);
        b.look(|| Some(80 * SLOT_PAGES));
        assert_eq!(b.room(), 2, "two slots of its eighty are nobody's");
        b.regain(2 * SLOT_PAGES);
        b.unuse(64);
        assert_eq!(b.room(), 66);
        b.keep(60);
        assert_eq!((b.room(), b.excess(0)), (6, 0));
        assert_eq!(b.excess(10 * SLOT_PAGES), 4);
        b.promise(10 * SLOT_PAGES);
        assert_eq!((b.room(), b.excess(0)), (0, 4));
        b.age_promises();
        assert_eq!(b.excess(0), 4);
        b.end_promise(7 * SLOT_PAGES);
        assert_eq!(b.excess(0), 0);
        b.age_promises();
        b.look(|| Some(90 * SLOT_PAGES));
        assert_eq!((b.room(), b.excess(0)), (0, 8), "the program itself has grown to thirty");
        b.bound(8);
        assert_eq!((b.room(), b.excess(0)), (0, 52));
    }

    #[test]
    fn what_fits_into_the_budget_may_be_kept_whatever_is_promised() {
        let b = budget(4);
        b.look(|| Some(0));
        b.keep(3);
        b.promise(1000 * SLOT_PAGES);
        assert_eq!((b.room(), b.excess(0)), (1, 0));
        b.keep(3);
        assert_eq!((b.room(), b.excess(0)), (0, 2));
    }

    #[test]
    fn a_program_that_used_all_it_got_is_trusted_with_more() {
        let b = budget(4);
        b.note_use(PROVES, 0);
        b.note_use(20, 0);
        assert_eq!(b.trust(), 4, "it never had that much");
        b.look(|| Some(22 * SLOT_PAGES));
        assert_eq!(b.trust(), 24);
        b.charge(20);
        b.lose(SLOT_PAGES / 2);
        assert_eq!(b.trust(), 3);
        b.note_use(1000, 0);
        assert_eq!(b.trust(), 5, "no more than a part of the budget and what it once had");
        b.note_use(0, 1);
        assert_eq!(b.trust(), 0);
    }
}
