//! The peak rule: what is added to the program's own memory never exceeds the budget and what the program once had
//! and gave back.
//!
//! Two things make a process larger than it would be: memory kept while it is free (`idle`), and huge pages that the
//! program got but is not yet seen to use (`charged`): growth with advice, and recycled memory full of zeroes. Both
//! together may use the budget, and what the program itself once had (`peak`) beyond what it has now (`used`). Of idle
//! memory, what exceeds the budget alone is given back within half a second.

use faultless_base::SLOT;
use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::knobs::{Knob, Values};

/// The account of a process, in slots.
#[derive(Debug)]
pub struct Budget {
    knobs: &'static Values,
    closed: AtomicBool,
    idle: AtomicUsize,
    charged: AtomicUsize,
    used: AtomicUsize,
    peak: AtomicUsize,
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
            peak: AtomicUsize::new(0),
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
        self.allowed().saturating_sub(self.idle() + self.charged())
    }

    /// A budget of nothing allows nothing.
    fn allowed(&self) -> usize {
        match self.limit() {
            0 => 0,
            limit => limit + self.peak.load(Relaxed).saturating_sub(self.used()),
        }
    }

    /// How many idle slots exceed the budget by itself; they may stay only for a moment.
    pub fn above_limit(&self) -> usize {
        (self.idle() + self.charged()).saturating_sub(self.limit()).min(self.idle())
    }

    /// Memory of the program's was seen to be resident.
    pub fn use_slots(&self, n: usize) {
        let used = self.used.fetch_add(n, Relaxed) + n;
        self.peak.fetch_max(used, Relaxed);
    }

    /// The program gave such memory back.
    pub fn unuse(&self, n: usize) {
        sub(&self.used, n);
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
        let room = self.room();
        let before = self.charged.fetch_add(n.min(room), Relaxed);
        // Others may have taken from the same room meanwhile.
        let over = (before + n.min(room) + self.idle()).saturating_sub(self.allowed()).min(n.min(room));
        sub(&self.charged, over);
        n.min(room) - over
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
        self.peak.fetch_max(used, Relaxed);
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
}
