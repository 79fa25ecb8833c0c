//! Free lists: blocks of 2^order slots, naturally aligned, one list per order and per kind.
//!
//! Holes, dirty and zeroed memory have lists of their own (the prezeroing patches of 2004 introduced the split of
//! zeroed and not zeroed). Blocks coalesce with their buddy of the same kind only. Newly freed blocks go to the
//! front, since their lines may still be cached; the back of a list is the oldest.

use faultless_base::Slot;

use crate::frame::extent::Extent;
use crate::frame::slot::State;
use faultless_page::knobs;

/// Orders of blocks in slots: 2^0 … 2^18 (512 GiB).
pub const ORDERS: usize = knobs::ORDERS as usize;
const NONE: u32 = u32::MAX;

/// What a free block is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No memory.
    Unbacked = 0,
    /// Memory with old bytes.
    Dirty = 1,
    /// Memory full of zeroes.
    Zeroed = 2,
}

impl Kind {
    /// The state of each slot of such a block.
    pub fn state(self) -> State {
        match self {
            Self::Unbacked => State::Unbacked,
            Self::Dirty => State::Dirty,
            Self::Zeroed => State::Zeroed,
        }
    }

    /// The kind of a free slot in `state`.
    pub fn of(state: State) -> Option<Self> {
        match state {
            State::Unbacked => Some(Self::Unbacked),
            State::Dirty => Some(Self::Dirty),
            State::Zeroed => Some(Self::Zeroed),
            _ => None,
        }
    }
}

/// Whether there is a block that has been free for long enough; see [`Buddy::ready`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// There is none, and there will be none by itself.
    None,
    /// There is none for this many ms.
    Later(u32),
    /// This one.
    Now(Free),
}

/// A free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Its first slot.
    pub first: Slot,
    /// Its order.
    pub order: usize,
    /// When it was freed, in ms.
    pub stamp: u32,
}

impl Free {
    /// Its slots.
    #[inline]
    pub fn extent(self) -> Extent {
        Extent { first: self.first, n: 1 << self.order }
    }
}

/// The entry of a slot: links while it heads a free block.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C)]
pub struct Link {
    next: u32,
    prev: u32,
    /// 1 + order while this slot heads a free block.
    head: u32,
    /// When the block was freed, in ms.
    stamp: u32,
}

/// The free lists of an arena; the links lie in a table beside it.
pub struct Buddy {
    links: &'static mut [Link],
    front: [[u32; ORDERS]; 3],
    back: [[u32; ORDERS]; 3],
    slots: [usize; 3],
}

impl Buddy {
    /// Empty lists over a table of one link for each slot.
    pub fn new(links: &'static mut [Link]) -> Self {
        Self { links, front: [[NONE; ORDERS]; 3], back: [[NONE; ORDERS]; 3], slots: [0; 3] }
    }

    /// Free slots of a kind.
    pub fn slots(&self, kind: Kind) -> usize {
        self.slots[kind as usize]
    }

    /// Forgets all blocks, which lie before slot `end`.
    pub fn clear(&mut self, end: Slot) {
        (self.front, self.back, self.slots) = ([[NONE; ORDERS]; 3], [[NONE; ORDERS]; 3], [0; 3]);
        self.links[..end.number()].iter_mut().filter(|link| link.head != 0).for_each(|link| link.head = 0);
    }

    fn push(&mut self, i: usize, order: usize, kind: Kind, stamp: u32) {
        let (k, old) = (kind as usize, self.front[kind as usize][order]);
        self.links[i] = Link { next: old, prev: NONE, head: order as u32 + 1, stamp };
        match old {
            NONE => self.back[k][order] = i as u32,
            _ => self.links[old as usize].prev = i as u32,
        }
        self.front[k][order] = i as u32;
        self.slots[k] += 1 << order;
    }

    fn unlink(&mut self, i: usize, order: usize, kind: Kind) {
        let (k, link) = (kind as usize, self.links[i]);
        debug_assert_eq!(link.head as usize, order + 1);
        match link.prev {
            NONE => self.front[k][order] = link.next,
            p => self.links[p as usize].next = link.next,
        }
        match link.next {
            NONE => self.back[k][order] = link.prev,
            n => self.links[n as usize].prev = link.prev,
        }
        self.links[i].head = 0;
        self.slots[k] -= 1 << order;
    }

    /// Inserts free slots, coalescing with buddies for which `same` says that they are free and of this kind.
    pub fn insert(&mut self, e: Extent, kind: Kind, stamp: u32, same: impl Fn(Slot) -> bool) {
        let (mut i, end) = (e.first.number(), e.end().number());
        while i < end {
            let fit = (end - i).ilog2() as usize;
            let order = if i == 0 { fit } else { fit.min(i.trailing_zeros() as usize) }.min(ORDERS - 1);
            self.insert_block(i, order, kind, stamp, &same);
            i += 1 << order;
        }
    }

    fn insert_block(
        &mut self,
        mut i: usize,
        mut order: usize,
        kind: Kind,
        mut stamp: u32,
        same: &impl Fn(Slot) -> bool,
    ) {
        while order + 1 < ORDERS {
            let buddy = i ^ (1 << order);
            let joins = buddy + (1 << order) <= self.links.len()
                && same(Slot::new(buddy))
                && self.links[buddy].head as usize == order + 1;
            if !joins {
                break;
            }
            // The later one; the clock wraps.
            let other = self.links[buddy].stamp;
            stamp = if (other.wrapping_sub(stamp) as i32) > 0 { other } else { stamp };
            self.unlink(buddy, order, kind);
            i &= !(1 << order);
            order += 1;
        }
        self.push(i, order, kind, stamp);
    }

    /// The block of this order which slot `first` heads.
    fn block(&self, first: u32, order: usize) -> Free {
        Free { first: Slot::new(first as usize), order, stamp: self.links[first as usize].stamp }
    }

    /// The newest block of `kind` with at least 2^`order` slots, smallest first, taken out.
    pub fn pop(&mut self, kind: Kind, order: usize) -> Option<Free> {
        let o = (order..ORDERS).find(|&o| self.front[kind as usize][o] != NONE)?;
        let free = self.block(self.front[kind as usize][o], o);
        self.unlink(free.first.number(), o, kind);
        Some(free)
    }

    /// The oldest block of `kind`, largest order first, without taking it.
    pub fn oldest(&self, kind: Kind) -> Option<Free> {
        (0..ORDERS).rev().find_map(|o| match self.back[kind as usize][o] {
            NONE => None,
            i => Some(self.block(i, o)),
        })
    }

    /// The order of the largest block of `kind`.
    pub fn largest(&self, kind: Kind) -> Option<usize> {
        if self.slots(kind) == 0 {
            return None;
        }
        (0..ORDERS).rev().find(|&o| self.back[kind as usize][o] != NONE)
    }

    /// The largest block of `kind` of at least that order which has been free for `delay` ms at `now`, the oldest of
    /// its size, without taking it.
    pub fn ready(&self, kind: Kind, order: usize, now: u32, delay: u32) -> Ready {
        let mut result = Ready::None;
        for o in (order..ORDERS).rev().filter(|&o| self.back[kind as usize][o] != NONE) {
            let free = self.block(self.back[kind as usize][o], o);
            let age = now.wrapping_sub(free.stamp);
            if age >= delay {
                return Ready::Now(free);
            }
            if let Ready::None = result {
                result = Ready::Later(delay - age);
            }
        }
        result
    }

    /// Of the blocks of `kind` at the backs of their lists, gives the one free for the longest time at `now`, without
    /// taking it.
    pub fn stalest(&self, kind: Kind, now: u32) -> Option<Free> {
        (0..ORDERS)
            .filter(|&o| self.back[kind as usize][o] != NONE)
            .map(|o| self.block(self.back[kind as usize][o], o))
            .max_by_key(|free| now.wrapping_sub(free.stamp))
    }

    /// Takes the free slots `e` of `kind` out of whatever blocks they lie in.
    pub fn carve(&mut self, e: Extent, kind: Kind) {
        let (mut i, end) = (e.first, e.end());
        while i < end {
            let block = self.block_of(i);
            self.unlink(block.first.number(), block.order, kind);
            let block_end = block.extent().end();
            if block.first < i {
                self.insert(Extent::between(block.first, i), kind, block.stamp, |_| false);
            }
            if block_end > end {
                self.insert(Extent::between(end, block_end), kind, block.stamp, |_| false);
            }
            i = block_end;
        }
    }

    /// The block that a free slot lies in.
    fn block_of(&self, slot: Slot) -> Free {
        (0..ORDERS)
            .map(|o| (slot.number() & !((1 << o) - 1), o))
            .find(|&(head, o)| self.links[head].head as usize == o + 1)
            .map(|(head, o)| self.block(head as u32, o))
            .expect("a free slot lies in a block")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{boxed::Box, vec, vec::Vec};

    fn buddy(n: usize) -> Buddy {
        Buddy::new(Box::leak(vec![Link::default(); n].into_boxed_slice()))
    }

    fn extent(first: usize, n: usize) -> Extent {
        Extent { first: Slot::new(first), n }
    }

    fn free(first: usize, order: usize, stamp: u32) -> Free {
        Free { first: Slot::new(first), order, stamp }
    }

    #[test]
    fn neighbours_coalesce_to_one_block() {
        let mut b = buddy(16);
        b.insert(extent(4, 2), Kind::Dirty, 1, |_| false);
        b.insert(extent(6, 2), Kind::Dirty, 2, |i| i == Slot::new(4));
        assert_eq!(b.oldest(Kind::Dirty), Some(free(4, 2, 2)));
        assert_eq!(b.pop(Kind::Zeroed, 0), None);
        assert_eq!(b.pop(Kind::Dirty, 1), Some(free(4, 2, 2)));
        assert_eq!(b.slots(Kind::Dirty), 0);
    }

    #[test]
    fn a_joined_block_is_as_young_as_its_younger_half_also_where_the_clock_wraps() {
        let mut b = buddy(16);
        b.insert(extent(0, 2), Kind::Dirty, 3, |_| false);
        b.insert(extent(2, 2), Kind::Dirty, u32::MAX, |i| i == Slot::new(0));
        assert_eq!(b.pop(Kind::Dirty, 0), Some(free(0, 2, 3)));
    }

    #[test]
    fn the_largest_block_that_is_old_enough_is_ready() {
        let mut b = buddy(64);
        assert_eq!((b.largest(Kind::Dirty), b.ready(Kind::Dirty, 0, 9, 5)), (None, Ready::None));
        b.insert(extent(0, 8), Kind::Dirty, 100, |_| false);
        b.insert(extent(16, 4), Kind::Dirty, 90, |_| false);
        b.insert(extent(32, 4), Kind::Dirty, 95, |_| false);
        assert_eq!(b.largest(Kind::Dirty), Some(3));
        assert_eq!(b.ready(Kind::Dirty, 0, 105, 5), Ready::Now(free(0, 3, 100)));
        assert_eq!(b.ready(Kind::Dirty, 0, 102, 5), Ready::Now(free(16, 2, 90)));
        assert_eq!(b.ready(Kind::Dirty, 3, 102, 5), Ready::Later(3));
        assert_eq!(b.ready(Kind::Dirty, 4, 105, 5), Ready::None);
    }

    #[test]
    fn lists_that_begin_again_are_empty() {
        let mut b = buddy(16);
        b.insert(extent(2, 7), Kind::Dirty, 1, |_| false);
        b.insert(extent(12, 4), Kind::Unbacked, 1, |_| false);
        b.clear(Slot::new(16));
        assert_eq!((b.slots(Kind::Dirty), b.slots(Kind::Unbacked), b.oldest(Kind::Dirty)), (0, 0, None));
        b.insert(extent(0, 16), Kind::Unbacked, 1, |_| true);
        assert_eq!(b.pop(Kind::Unbacked, 0), Some(free(0, 4, 1)));
    }

    proptest! {
        /// Random inserts, pops and carves against one array of kinds.
        #[test]
        fn lists_agree_with_an_array(ops in prop::collection::vec((0usize..64, 1usize..20, 0u8..4, 0u8..3), 1..200)) {
            let kinds = [Kind::Unbacked, Kind::Dirty, Kind::Zeroed];
            let mut b = buddy(64);
            let mut model: Vec<Option<Kind>> = vec![None; 64];
            for (at, n, op, kind) in ops {
                let (kind, n) = (kinds[kind as usize], n.min(64 - at));
                match op {
                    0 | 1 => {
                        let busy = model[at..at + n].iter().any(Option::is_some);
                        if !busy {
                            model[at..at + n].fill(Some(kind));
                            let seen = model.clone();
                            b.insert(extent(at, n), kind, 0, |i| seen[i.number()] == Some(kind));
                        }
                    }
                    2 => {
                        if model[at..at + n].iter().all(|k| *k == Some(kind)) {
                            b.carve(extent(at, n), kind);
                            model[at..at + n].fill(None);
                        }
                    }
                    _ => {
                        let order = n.ilog2() as usize;
                        if let Some(free) = b.pop(kind, order) {
                            let (i, o) = (free.first.number(), free.order);
                            prop_assert!(o >= order && i % (1 << o) == 0);
                            prop_assert!(model[i..i + (1 << o)].iter().all(|k| *k == Some(kind)));
                            model[i..i + (1 << o)].fill(None);
                        }
                    }
                }
                for k in kinds {
                    prop_assert_eq!(b.slots(k), model.iter().filter(|m| **m == Some(k)).count());
                }
            }
        }
    }
}
