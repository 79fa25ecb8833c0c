//! What follows from the account: what may be kept and advised, and what has to go.

use faultless_base::Pages;
use faultless_base::sync::atomic::Ordering::Relaxed;

use crate::frame::budget::{Budget, PROVES, TRUSTED};

impl Budget {
    /// How many slots may still be kept. A budget of nothing allows nothing.
    pub fn room(&self) -> usize {
        if self.limit() == 0 {
            return 0;
        }
        let free = self.allowed().without(self.total());
        let within = Pages::of_slots(self.limit()).without(self.extra());
        free.max(within).slots_inside().min(self.cap.get().saturating_sub(self.idle() + self.charged()))
    }

    /// How many slots more the program may get as huge pages of which it is not known that it will use them.
    pub fn trust(&self) -> usize {
        match self.limit() {
            0 => 0,
            limit => {
                // Units of no block can go back at any moment.
                let lost = self.lost.get().slots_around();
                let proven = self.proven.get().saturating_sub(PROVES);
                let most = (limit + proven.min(self.peak.get().slots_inside())).min(self.cap.get());
                most.saturating_sub(self.charged() + lost)
            }
        }
    }

    /// Whether a program that used so many slots throughout may get so many beyond the budget.
    pub fn trusts(&self, used: usize, unused: usize) -> bool {
        used >= PROVES && unused <= TRUSTED * self.limit()
    }

    /// What the process may have, at least.
    fn allowed(&self) -> Pages {
        let is_strict = self.blind.load(Relaxed) || self.strict.load(Relaxed) || self.leaves_blocks();
        let peak = if is_strict { Pages::NONE } else { self.peak.get() };
        Pages::of_slots(self.limit()) + peak
    }

    /// What it has or is about to have.
    fn total(&self) -> Pages {
        let slots = self.used() + self.reserved() + self.idle() + self.charged();
        Pages::of_slots(slots) + self.other.get() + self.promised.all()
    }

    /// What it has because of us, at most.
    pub(super) fn extra(&self) -> Pages {
        let slots = self.idle() + self.charged();
        Pages::of_slots(slots) + self.lost.get() + self.unused.pages() + self.deferred.get()
    }

    /// How many idle slots exceed the budget by itself; they may stay only for a moment.
    pub fn above_limit(&self) -> usize {
        (self.idle() + self.charged()).saturating_sub(self.limit()).min(self.idle())
    }

    /// How many slots of idle memory, and of units of no block, have to go at once, if `coming` comes.
    pub fn excess(&self, coming: Pages) -> usize {
        let spare = self.idle() + self.wasted() + self.deferred.get().slots_inside();
        if spare == 0 || self.limit() == 0 {
            return self.idle();
        }
        let capped = (spare + self.charged()).saturating_sub(self.cap.get());
        self.overdrawn(coming).max(capped).min(spare)
    }

    /// Charges up to `slots` slots for advice that is not confirmed yet: how many. Leaves room for a frame on its way
    /// there.
    pub fn charge_up_to(&self, slots: usize) -> usize {
        let way = usize::from(self.limit() > 1);
        let got = slots.min(self.room().min(self.trust()).saturating_sub(way));
        self.charged.add(got);
        // Others may have taken from the same room meanwhile.
        let over = self.overdrawn(Pages::NONE).min(got);
        self.charged.sub(over);
        got - over
    }

    /// How many slots too many there are, if `coming` comes.
    fn overdrawn(&self, coming: Pages) -> usize {
        let over = (self.total() + coming).without(self.allowed());
        let beyond = self.extra().without(Pages::of_slots(self.limit()));
        over.min(beyond).slots_around()
    }
}
