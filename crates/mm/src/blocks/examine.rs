//! Whether memory of blocks is as the engine made it when it comes back, by the kernel's own account.
//!
//! A program may change attributes of a block by calls that are not seen: rights, locks, advice, memory policy, keys,
//! a mapping of its own in the middle. The kernel keeps adjacent addresses of the same attributes in one area. Free
//! memory is as the engine made it. So a block is unchanged if it lies in one area with a free slot.

use core::sync::atomic::Ordering::SeqCst;

use faultless_base::sys::{Huge, Sys};
use faultless_base::{Slot, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};

/// How often the kernel is asked anew because something came back meanwhile.
const TRIES: usize = 4;

/// Slots of one area.
struct Area {
    slots: Extent,
    /// Whether they are as free memory is.
    is_plain: bool,
}

impl<S: Sys> Space<S> {
    /// Marks those slots of `e`, which is in transit, that may have other attributes than free memory.
    pub(crate) fn examine(&self, shard: &Shard, e: Extent) {
        let mut i = e.first;
        while i < e.end() {
            if shard.slots.has(i, flag::TAINTED | flag::FORKED) {
                i += 1;
                continue;
            }
            let Some(area) = self.area_of(shard, i) else { return };
            let known = Extent::between(i, area.slots.end().clamp(i + 1, e.end()));
            if !area.is_plain {
                known.slots().for_each(|i| _ = shard.slots.mark(i, flag::ALTERED));
            }
            i = known.end();
        }
    }

    /// What is known of slot `i`. `None`: the kernel never says.
    fn area_of(&self, shard: &Shard, i: Slot) -> Option<Area> {
        let altered = |slots: Extent| Some(Area { slots, is_plain: false });
        let mut anchored = false;
        for _ in 0..TRIES {
            let given = shard.given.load(SeqCst);
            let area = self.whole_slots(shard, self.sys.area(shard.slot(i).start)?);
            if !area.has(i) {
                return altered(area);
            }
            if self.has_free(shard, area, i) {
                // A slot that was given back after the question may have had the block's attributes at that time.
                if shard.given.load(SeqCst) == given {
                    return Some(Area { slots: area, is_plain: true });
                }
            } else if anchored || !self.anchor(shard, area) {
                return altered(area);
            } else {
                anchored = true;
            }
        }
        altered(Extent::one(i))
    }

    /// The slots of a shard that lie in `area` as a whole.
    fn whole_slots(&self, shard: &Shard, area: Span) -> Extent {
        let area = area.clip(shard.span(shard.slots.ever_used()));
        match area.is_empty() {
            true => Extent::NONE,
            false => Extent::inside(Span { start: area.start - shard.base, end: area.end - shard.base }),
        }
    }

    /// Whether a slot of `area` is free, looked for from slot `i` on.
    fn has_free(&self, shard: &Shard, area: Extent, i: Slot) -> bool {
        let (before, behind) = (Extent::between(area.first, i), Extent::between(i, area.end()));
        behind.slots().chain(before.slots().rev()).any(|i| shard.slots.state(i).is_free())
    }

    /// The engine advises huge pages for what it hands out, so that its own advice ends where a block does. Makes a
    /// hole beside `area` like the engine made the slots there: then the kernel has both in one area, unless
    /// something else differs.
    fn anchor(&self, shard: &Shard, area: Extent) -> bool {
        let before = (area.first.number() > 0).then(|| (area.first - 1, area.first));
        let behind = (area.end(), area.last());
        [Some(behind), before].into_iter().flatten().any(|(hole, like)| self.anchor_at(shard, hole, like))
    }

    fn anchor_at(&self, shard: &Shard, hole: Slot, like: Slot) -> bool {
        let slots = shard.slots;
        let e = Extent::one(hole);
        let taken = || {
            let mut arena = shard.lock_soon()?;
            let is_there = arena.reach(hole + 1, &self.sys) && slots.state(hole) == State::Unbacked;
            (is_there && arena.take_at(e)).then_some(())
        };
        if taken().is_none() {
            return false;
        }
        let made = match slots.has(like, flag::ADVISED) {
            true => {
                self.sys.huge(shard.span(e), Huge::Advised);
                slots.mark(hole, flag::ADVISED);
                true
            }
            false => {
                self.sys.reset(shard.span(e)) && {
                    slots.clear(hole, flag::ADVISED);
                    true
                }
            }
        };
        match made {
            true => self.put_back(shard, e, Kind::Unbacked, 0),
            false => self.abandon(shard, e),
        }
        made
    }
}
