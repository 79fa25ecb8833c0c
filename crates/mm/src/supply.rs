//! The supply: huge pages zeroed while a processor is idle, before anybody knows where they will be needed.
//!
//! A program that has used much will use more. So for each slot that is seen to be used for the first time one is zeroed in
//! the background, up to a quarter of the budget; what is not wanted for long decays as any other idle memory.
//! Requests are served from it directly where it has room in one piece; elsewhere its frames move to where
//! the program is about to be (`movein.rs`).

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::SLOT;
use faultless_base::sys::Sys;

use crate::arena::Extent;
use crate::buddy::Kind;
use crate::knobs::Knob;
use crate::progress::Progress;
use crate::slot::flag;
use crate::space::{Shard, Space};
use crate::stats::Counter;

/// Looks without progress after which a program does something else (1 ms).
const STILL_LOOKS: u32 = 10;
/// One slot in so many of the budget may be of the supply.
const SHARE: usize = 4;

impl<S: Sys> Space<S> {
    /// Whether frames move to where the program is.
    pub(crate) fn moves(&self) -> bool {
        self.knobs.is_on(Knob::Mapped) && !self.supply.refused.load(Relaxed)
    }

    /// The program uses so many slots that it never had before.
    pub(crate) fn note_demand(&self, n: usize) {
        if n > 0 && self.moves() {
            let most = self.budget.limit() / SHARE;
            let _ = self.supply.due.fetch_update(Relaxed, Relaxed, |due| Some((due + n).min(most)));
        }
    }

    /// Whether the program is going through a growing extent right now: what is ahead of it there comes first.
    fn is_followed(&self) -> bool {
        self.growths.lock().followed.iter().flatten().any(|g| g.quiet < STILL_LOOKS)
    }

    /// Zeroes one more slot, if one is due.
    pub(crate) fn supply_step(&self) -> Progress {
        if !self.moves() || self.supply.due.load(Relaxed) == 0 || self.is_followed() {
            return Progress::Idle;
        }
        let full = self.budget.idle() >= self.budget.limit() / SHARE || self.budget.room() == 0;
        if full || self.warmth.is_cold(self.now_ms()) == Some(true) {
            self.supply.due.store(0, Relaxed);
            return Progress::Idle;
        }
        let shard = self.shard(0);
        let hole = shard.lock().take_holes(1, 1, &self.sys);
        let _ = self.supply.due.fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1));
        match hole {
            Some(e) if self.fill(shard, e) => Progress::Worked,
            _ => Progress::Idle,
        }
    }

    /// Zeroed frames.
    pub(crate) fn frames(&self) -> usize {
        self.all_shards().map(|shard| shard.lock().free().slots(Kind::Zeroed)).sum()
    }

    /// Moves zeroed frames to `n` slots of the program's at `to`, which nobody of ours enters meanwhile: how many slots
    /// from the first on, less than `n` if there are no more frames or a page is present.
    pub(crate) fn move_frames(&self, to: usize, n: usize) -> usize {
        let mut moved = 0;
        while moved < n && self.moves() {
            let take = |shard| Some((shard, Shard::lock(shard).take_zeroed(n - moved)?));
            let Some((shard, e)) = self.all_shards().find_map(take) else { break };
            let sent = self.send(shard, e, to + moved * SLOT);
            moved += sent;
            if sent < e.n {
                break;
            }
        }
        moved
    }

    /// Moves frames in passage; those that stay go back to the free lists. How many slots have moved as a whole.
    fn send(&self, shard: &Shard, e: Extent, to: usize) -> usize {
        let span = shard.span(e);
        let slots = shard.slots;
        if e.slots().any(|i| !slots.has(i, flag::OPEN)) {
            // Pages move between areas of equal rights, and what the program unmapped stays out of its reach.
            shard.lock().give(e, Kind::Zeroed, self.now_ms());
            return 0;
        }
        self.verify(shard, e);
        let bytes = self.sys.move_in(span, to);
        if bytes.is_none() {
            self.supply.refused.store(true, Relaxed);
            shard.count(Counter::MovesRefused, 1);
        }
        let bytes = bytes.unwrap_or(0);
        let (whole, begun) = (bytes / SLOT, bytes.div_ceil(SLOT));
        if begun > whole {
            self.sys.discard(shard.span(Extent { first: e.first + whole, n: 1 }));
        }
        self.budget.unkeep(begun);
        shard.count(Counter::BytesMoved, bytes);
        let (target, first) = self.locate(to);
        (0..whole).for_each(|i| _ = target.slots.share(first + i, flag::AHEAD));
        let stamp = self.now_ms();
        let (gone, rest) = (Extent { n: begun, ..e }, Extent { first: e.first + begun, n: e.n - begun });
        gone.slots().for_each(|i| _ = slots.clear(i, flag::AHEAD));
        let mut arena = shard.lock();
        for (part, kind) in [(gone, Kind::Hole), (rest, Kind::Zeroed)] {
            if part.n > 0 {
                arena.give(part, kind, stamp);
            }
        }
        whole
    }
}
