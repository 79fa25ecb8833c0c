//! The peak rule: what is added to the program's own memory never exceeds the budget and what the program once had
//! and gave back.
//!
//! Three things make a process larger than it would be: memory kept while it is free (`idle`), huge pages that the
//! program got but is not yet seen to use (`charged`), and parts of huge pages that no block uses. What the program has by
//! itself is not all known here: the C library's heap and small pages are the kernel's business. So the kernel is
//! asked from time to time how much the process has ([`Budget::look`]). What it then has without these three is a lower bound of
//! the program's own peak. Between two looks the account goes by what is handed out; memory that the program was
//! promised and may not have touched yet counts as if it had (`promised`).
//!
//! Of idle memory, what exceeds the budget alone is given back within half a second.

use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use faultless_base::{SLOT, SLOT_PAGES};

use crate::knobs::{Knob, Values};

/// The account of a process, in slots where nothing else is said.
#[derive(Debug)]
pub struct Budget {
    knobs: &'static Values,
    closed: AtomicBool,
    idle: AtomicUsize,
    charged: AtomicUsize,
    used: AtomicUsize,
    promised: AtomicUsize,
    /// Resident pages at the last look that are neither used nor idle.
    other: AtomicUsize,
    /// Pages that the program once had by itself, at least.
    peak: AtomicUsize,
    /// Whether the kernel was ever asked.
    looked: AtomicBool,
    /// What the control group lets be idle and charged.
    cap: AtomicUsize,
}

impl Budget {
    /// An account that may overdraw by as much as [`Knob::Budget`] says.
    pub fn new(knobs: &'static Values) -> Self {
        Self {
            knobs,
            closed: AtomicBool::new(false),
            idle: AtomicUsize::new(0),
            charged: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            other: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            looked: AtomicBool::new(false),
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

    /// Free slots that hold memory.
    pub fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Slots that the program is known to use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Slots with advice that is not confirmed yet.
    pub fn charged(&self) -> usize {
        self.charged.load(Relaxed)
    }

    /// What may still be kept or charged.
    pub fn room(&self) -> usize {
        if self.limit() == 0 {
            return 0;
        }
        let free = self.allowed().saturating_sub(self.total()) / SLOT_PAGES;
        free.min(self.cap.load(Relaxed).saturating_sub(self.idle() + self.charged()))
    }

    /// Pages that the process may have. A budget of nothing allows nothing beside what there is.
    fn allowed(&self) -> usize {
        self.limit() * SLOT_PAGES + self.peak.load(Relaxed)
    }

    /// Pages that it has or may come to have.
    fn total(&self) -> usize {
        let slots = self.used() + self.idle() + self.charged() + self.promised.load(Relaxed);
        slots * SLOT_PAGES + self.other.load(Relaxed)
    }

    /// How many idle slots exceed the budget by itself; they may stay only for a moment.
    pub fn above_limit(&self) -> usize {
        (self.idle() + self.charged()).saturating_sub(self.limit()).min(self.idle())
    }

    /// How many idle slots have to go at once.
    pub fn excess(&self) -> usize {
        let idle = self.idle();
        if idle == 0 || self.limit() == 0 {
            return idle;
        }
        let over = self.total().saturating_sub(self.allowed()).div_ceil(SLOT_PAGES);
        over.max((idle + self.charged()).saturating_sub(self.cap.load(Relaxed))).min(idle)
    }

    /// The process has `resident` pages, at least `lost` of them in parts of huge pages that no block uses.
    pub fn look(&self, resident: impl FnOnce() -> Option<usize>, lost: usize) {
        // What is idle or charged on either side of the question was not the program's.
        let before = self.idle() + self.charged();
        let Some(resident) = resident() else { return };
        let extra = before.max(self.idle() + self.charged());
        self.other.store(resident.saturating_sub((self.used() + self.idle()) * SLOT_PAGES), Relaxed);
        if !self.looked.load(Relaxed) {
            // What was taken for it before was a guess.
            self.peak.store(0, Relaxed);
            self.looked.store(true, Relaxed);
        }
        self.peak.fetch_max(resident.saturating_sub(extra * SLOT_PAGES + lost), Relaxed);
    }

    /// What the control group lets be idle and charged.
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

    /// Memory was handed out that the kernel will bring in small pages.
    pub fn promise(&self, n: usize) {
        self.promised.fetch_add(n, Relaxed);
    }

    /// So much of what was promised came back.
    pub fn end_promise(&self, n: usize) {
        let _ = self.promised.fetch_update(Relaxed, Relaxed, |promised| Some(promised.saturating_sub(n)));
    }

    /// What was promised so far is there by now, or will not come soon.
    pub fn end_promises(&self) {
        self.promised.store(0, Relaxed);
    }

    /// Free memory is kept.
    pub fn keep(&self, n: usize) {
        self.idle.fetch_add(n, Relaxed);
    }

    /// Kept memory is handed out or returned.
    pub fn unkeep(&self, n: usize) {
        sub(&self.idle, n);
    }

    /// Takes up to `n` slots of the room for advice that is not confirmed yet.
    pub fn charge_up_to(&self, n: usize) -> usize {
        let got = n.min(self.room());
        self.charged.fetch_add(got, Relaxed);
        // Others may have taken from the same room meanwhile.
        let over = self.total().saturating_sub(self.allowed()).div_ceil(SLOT_PAGES).min(got);
        sub(&self.charged, over);
        got - over
    }

    /// Charges `n` slots, come what may.
    pub fn charge(&self, n: usize) {
        self.charged.fetch_add(n, Relaxed);
    }

    /// Ends the charge of `n` slots.
    pub fn discharge(&self, n: usize) {
        sub(&self.charged, n);
    }

    /// After a fork, in the child: nothing is idle, and so many slots are used and charged.
    pub fn recount(&self, used: usize, charged: usize) {
        self.idle.store(0, Relaxed);
        self.charged.store(charged, Relaxed);
        self.used.store(used, Relaxed);
        self.promised.store(0, Relaxed);
        self.other.store(0, Relaxed);
        self.peak.store(0, Relaxed);
        self.looked.store(false, Relaxed);
        self.use_slots(0);
    }
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
        assert_eq!(b.charge_up_to(10), 4);
        assert_eq!(b.room(), 0);
        b.discharge(4);
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
    fn what_the_process_has_beside_counts() {
        let knobs: &'static Values = std::boxed::Box::leak(std::boxed::Box::default());
        knobs.set(Knob::Budget, 4 * SLOT as u64);
        let b = Budget::new(knobs);
        b.use_slots(64);
        b.look(|| Some(80 * SLOT_PAGES), 10 * SLOT_PAGES);
        assert_eq!(b.room(), 0, "ten slots of its eighty are nobody's");
        b.unuse(64);
        assert_eq!(b.room(), 58);
        b.keep(50);
        assert_eq!((b.room(), b.excess()), (8, 0));
        b.promise(10);
        assert_eq!((b.room(), b.excess()), (0, 2));
        b.end_promises();
        b.look(|| Some(90 * SLOT_PAGES), 0);
        assert_eq!((b.room(), b.excess()), (0, 16), "the program itself has grown to forty");
        b.bound(8);
        assert_eq!((b.room(), b.excess()), (0, 42));
    }
}
