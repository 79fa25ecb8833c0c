//! The supply: huge pages zeroed while a processor is idle, before it is known where they will be needed.
//!
//! A program that has used much will use more. So for each slot that is seen to be used for the first time, one is
//! zeroed in the background, up to a quarter of the budget. Slots that are not needed for long decay as other idle
//! memory. The supply serves requests directly where it has room in one piece. Elsewhere its frames move to where the
//! program is about to be (`move_ahead.rs`, `transfer.rs`).

use faultless_base::sys::Sys;

use crate::space::Space;
use crate::space::progress::Progress;
use faultless_page::knobs::Knob;

/// Looks without progress after which a program does something else (1 ms).
const STILL_LOOKS: u16 = 10;
/// One slot in this many of the budget may be of the supply.
const SHARE: usize = 4;

impl<S: Sys> Space<S> {
    /// Whether frames move to where the program is.
    pub(crate) fn moves(&self) -> bool {
        self.knobs.is_on(Knob::Mapped) && self.can_move() && self.may_move_ahead()
    }

    /// The program uses `n` slots that it never had before.
    pub(crate) fn note_demand(&self, n: usize) {
        if n > 0 && self.moves() {
            let most = self.budget.limit() / SHARE;
            self.ahead.supply.ask(n, most);
        }
    }

    /// Whether the program is going through a growing extent right now: then memory ahead of it there comes first.
    fn is_followed(&self) -> bool {
        let growths = self.ahead.growths();
        growths.is_none_or(|growths| growths.all().any(|g| g.quiet < STILL_LOOKS))
    }

    /// Zeroes one more slot, if one is due.
    pub(crate) fn supply_step(&self) -> Progress {
        if !self.moves() || !self.ahead.supply.is_due() || self.is_followed() {
            return Progress::Idle;
        }
        let full = self.budget.idle() >= self.budget.limit() / SHARE || self.budget.room() == 0;
        if full || self.huge_cost.is_cold(self.now_ms()) == Some(true) {
            self.ahead.supply.clear();
            return Progress::Idle;
        }
        let shard = self.shard(0);
        let hole = shard.lock_soon().and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
        self.ahead.supply.take();
        match hole {
            Some(e) => {
                self.fill(shard, e);
                Progress::Worked
            }
            None => Progress::Idle,
        }
    }

    /// Zeroed frames.
    pub(crate) fn frames(&self) -> usize {
        self.zeroed()
    }
}
