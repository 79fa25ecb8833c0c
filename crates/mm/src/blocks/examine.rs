//! Whether memory of blocks is as the engine made it when it comes back, by the kernel's own account.
//!
//! A program may change attributes of a block by calls that are not seen: rights, locks, advice, memory policy, keys,
//! a mapping of its own in the middle. The kernel keeps adjacent addresses of the same attributes in one area. Free
//! memory is as the engine made it. So a block is unchanged if it lies in one area with a free slot.

use core::sync::atomic::Ordering::SeqCst;

use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};

/// How often the kernel is asked anew because something came back meanwhile.
const TRIES: usize = 4;

impl<S: Sys> Space<S> {
    /// Marks those slots of `e`, which is in transit, that may have other attributes than free memory.
    pub(crate) fn examine(&self, shard: &Shard, e: Extent) {
        let end = e.first + e.n;
        let mut i = e.first;
        while i < end {
            if shard.slots.has(i, flag::TAINTED | flag::FORKED) {
                i += 1;
                continue;
            }
            let Some((is_plain, area)) = self.area_of(shard, i) else { return };
            let known = area.slots().end.clamp(i + 1, end);
            if !is_plain {
                (i..known).for_each(|i| _ = shard.slots.mark(i, flag::ALTERED));
            }
            i = known;
        }
    }

    /// Whether slot `i` is as free memory is, and the slots for which the same holds. `None`: the kernel never says.
    fn area_of(&self, shard: &Shard, i: usize) -> Option<(bool, Extent)> {
        let mut anchored = false;
        for _ in 0..TRIES {
            let given = shard.given.load(SeqCst);
            let area = self.whole_slots(shard, self.sys.area(shard.span(Extent { first: i, n: 1 }).start)?);
            if !area.slots().contains(&i) {
                return Some((false, area));
            }
            if self.has_free(shard, area, i) {
                // A slot that was given back after the question may have had the block's attributes at that time.
                if shard.given.load(SeqCst) == given {
                    return Some((true, area));
                }
            } else if anchored || !self.anchor(shard, area) {
                return Some((false, area));
            } else {
                anchored = true;
            }
        }
        Some((false, Extent { first: i, n: 1 }))
    }

    /// The slots of a shard that lie in `area` as a whole.
    fn whole_slots(&self, shard: &Shard, area: Span) -> Extent {
        let area = area.clip(Span::new(shard.base, shard.slots.tail() * SLOT)).aligned_inside(SLOT);
        match area.is_empty() {
            true => Extent { first: 0, n: 0 },
            false => Extent { first: (area.start - shard.base) / SLOT, n: area.bytes() / SLOT },
        }
    }

    /// Whether a slot of `area` is free, looked for from slot `i` on.
    fn has_free(&self, shard: &Shard, area: Extent, i: usize) -> bool {
        (i..area.slots().end).chain((area.first..i).rev()).any(|i| shard.slots.state(i).is_free())
    }

    /// The engine advises huge pages for what it hands out, so that its own advice ends where a block does. Makes a
    /// hole beside `area` like the engine made the slots there: then the kernel has both in one area, unless
    /// something else differs.
    fn anchor(&self, shard: &Shard, area: Extent) -> bool {
        let before = (area.first > 0).then(|| (area.first - 1, area.first));
        let behind = (area.slots().end, area.slots().end - 1);
        [Some(behind), before].into_iter().flatten().any(|(hole, like)| self.anchor_at(shard, hole, like))
    }

    fn anchor_at(&self, shard: &Shard, hole: usize, like: usize) -> bool {
        let slots = shard.slots;
        let e = Extent { first: hole, n: 1 };
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
