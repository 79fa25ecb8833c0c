//! Looks at what the process has altogether, for the account ([`crate::frame::budget`]), and what follows when that
//! is too much.
//!
//! A look costs two microseconds and has a least interval, in every thread. The program's threads look when they give
//! memory back or ask for more than there is room for. The background thread looks while memory is idle, and where
//! they cannot.

use faultless_base::sys::{Headroom, Sys};
use faultless_base::{Pages, SLOT, Slot};

use crate::frame::slot::flag;
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Pages looked at in a slot that comes back, to tell how much of it was used.
pub(crate) const SAMPLED_PAGES: usize = 8;
/// Of what the group may still take, one byte in this many may be idle or charged.
const GROUP_SHARE: usize = 4;
/// Nothing may, when less than one byte in this many of its limit is left.
const GROUP_LEFT: usize = 16;

impl<S: Sys> Space<S> {
    /// Brings the account up to date, unless that was done a moment ago.
    pub(crate) fn look_around(&self) {
        let now = self.sys.now_ns();
        if self.budget.limit() == 0 || !self.looks.begin(now) {
            return;
        }
        let in_ms = |ns: u64| (ns / 1_000_000) as u32;
        let ms = in_ms(now);
        if self.looks.ages_promises(ms, || in_ms(self.sys.process_ns())) {
            self.budget.age_promises();
        }
        if !self.look_at_group() && self.looks.asks_for_group(ms) {
            self.want_worker_now();
        }
        self.budget.look(|| Some(Pages::filled_by(self.sys.resident_bytes()?)));
    }

    /// Bounds what may be idle by what the control group allows: nothing where that cannot be told. Whether it can.
    fn look_at_group(&self) -> bool {
        let room = self.sys.headroom();
        self.looks.note_group(room != Headroom::Unlimited);
        self.budget.bound(match room {
            Headroom::Unlimited => usize::MAX,
            Headroom::Left { left, limit } if left < limit / GROUP_LEFT => 0,
            Headroom::Left { left, .. } => left / GROUP_SHARE / SLOT,
            // Nothing is kept beyond the budget then, and the background thread looks soon.
            Headroom::Unknown if self.budget.is_strict() => usize::MAX,
            Headroom::Unknown => 0,
        });
        room != Headroom::Unknown
    }

    /// The background thread looks where the program's could not.
    pub(crate) fn look_for_program(&self) {
        if self.looks.is_group_asked_for() {
            self.look_at_group();
        }
    }

    /// Whether the control group has a limit.
    pub(crate) fn is_grouped(&self) -> bool {
        self.looks.is_grouped()
    }

    /// Gives idle memory back as far as the account is overdrawn once `coming` has come; whether any was.
    pub(crate) fn make_way(&self, coming: Pages) -> bool {
        if self.budget.excess(coming) == 0 {
            return false;
        }
        self.look_around();
        self.give_back(self.budget.excess(coming), Counter::BytesOverBudget) > 0
    }

    /// The program is about to get `memory` from the kernel: idle memory makes room for it.
    pub(crate) fn promise(&self, memory: Pages) {
        if memory > Pages::NONE {
            self.make_way(memory);
            self.budget.promise(memory);
        }
    }

    /// The program asks the kernel for `bytes` at once: idle memory makes room for them. In a group with a limit, as
    /// much of it goes as comes.
    pub fn before_populate(&self, bytes: usize) {
        if self.budget.idle() > 0 {
            self.look_around();
            if self.is_grouped() {
                self.give_back(bytes.div_ceil(SLOT), Counter::BytesOverBudget);
            }
        }
        self.promise(Pages::holding(bytes));
    }

    /// Slots come back: those that the kernel was to fill with small pages are promised no more.
    pub(crate) fn end_promise(&self, shard: &Shard, slots: impl Iterator<Item = Slot>) {
        let small = |i: &Slot| shard.slots.has(*i, flag::FRESH) && !shard.slots.has(*i, flag::ADVISED);
        self.budget.end_promise(Pages::of_slots(slots.filter(small).count()));
    }
}
