//! Looks at what the process has altogether, for the account ([`crate::budget`]), and what follows when that is too much.
//!
//! A look costs two microseconds and has its least interval, in whatever thread. The program's threads look when they give memory
//! back or ask for more than there is room for; the background thread while memory is idle.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, UNIT};

use crate::space::Space;
use crate::stats::Counter;

/// Pages looked at in a slot that comes back, to tell how much of it was used.
pub(crate) const SAMPLED_PAGES: usize = 8;
/// Least time between two looks at the process, and at its control group.
const LOOK_NS: u64 = 500_000;
const GROUP_MS: u32 = 10;
/// The same while the group has no limit.
const NO_GROUP_MS: u32 = 1_000;
/// What was promised counts for so long.
const PROMISE_MS: u32 = 500;
/// One byte in so many of what the group may still take may be idle or charged.
const GROUP_SHARE: usize = 4;
/// Nothing may, when less than one byte in so many of its limit is left.
const GROUP_LEFT: usize = 16;

impl<S: Sys> Space<S> {
    /// Brings the account up to date, unless that was done a moment ago.
    pub(crate) fn look_around(&self) {
        let now = self.sys.now_ns();
        let last = self.looked_ns.load(Relaxed) as u64;
        if self.budget.limit() == 0
            || last != 0 && now.wrapping_sub(last) < LOOK_NS
            || self.looked_ns.compare_exchange(last as usize, now as usize, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let ms = (now / 1_000_000) as u32;
        if ms.wrapping_sub(self.promised_ms.load(Relaxed)) > PROMISE_MS {
            self.budget.end_promises();
        }
        self.look_at_group(ms);
        let loose: usize = self.all_shards().map(|shard| shard.loose.load(Relaxed) * UNIT).sum();
        let lost = (self.waste.load(Relaxed) + loose) / PAGE;
        self.budget.look(|| Some(self.sys.resident_bytes()? / PAGE), lost);
    }

    fn look_at_group(&self, now: u32) {
        let interval = if self.grouped.load(Relaxed) { GROUP_MS } else { NO_GROUP_MS };
        let last = self.group_ms.load(Relaxed);
        if last != 0 && now.wrapping_sub(last) < interval {
            return;
        }
        self.group_ms.store(now | 1, Relaxed);
        let room = self.sys.headroom();
        self.grouped.store(room.is_some(), Relaxed);
        self.budget.bound(match room {
            None => usize::MAX,
            Some((left, limit)) if left < limit / GROUP_LEFT => 0,
            Some((left, _)) => left / GROUP_SHARE / SLOT,
        });
    }

    /// Whether the control group has a limit.
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped.load(Relaxed)
    }

    /// Gives idle memory back as far as the account is overdrawn; whether any was.
    pub(crate) fn balance(&self) -> bool {
        let excess = self.budget.excess();
        excess > 0 && self.give_back(excess, Counter::BytesOverBudget) > 0
    }

    /// The program is about to get so many slots that the kernel will fill page by page.
    pub(crate) fn promise(&self, n: usize) {
        if n > 0 {
            self.budget.promise(n);
            self.promised_ms.store(self.now_ms(), Relaxed);
        }
    }
}
