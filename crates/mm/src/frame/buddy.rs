//! Free lists: blocks of 2^order slots, naturally aligned, one list per order and per kind.
//!
//! Holes, dirty and zeroed memory have lists of their own (the prezeroing patches of 2004 introduced the split of
//! zeroed and not zeroed). Blocks coalesce with their buddy of the same kind only. Newly freed blocks go to the
//! front, since their lines may still be cached; the back of a list is the oldest.

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
    Now {
        /// Its first slot.
        first: usize,
        /// Its order.
        order: usize,
        /// When it was freed, in ms.
        stamp: u32,
    },
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
    pub fn clear(&mut self, end: usize) {
        (self.front, self.back, self.slots) = ([[NONE; ORDERS]; 3], [[NONE; ORDERS]; 3], [0; 3]);
        self.links[..end].iter_mut().filter(|link| link.head != 0).for_each(|link| link.head = 0);
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

    /// Inserts the free slots `first .. first + n`, coalescing with buddies for which `same` says that they are
    /// free and of this kind.
    pub fn insert(&mut self, first: usize, n: usize, kind: Kind, stamp: u32, same: impl Fn(usize) -> bool) {
        let (mut i, end) = (first, first + n);
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
        same: &impl Fn(usize) -> bool,
    ) {
        while order + 1 < ORDERS {
            let buddy = i ^ (1 << order);
            let joins = buddy + (1 << order) <= self.links.len()
                && same(buddy)
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

    /// The newest block of `kind` with at least 2^`order` slots, smallest first, taken out: its first slot, its
    /// order and its stamp.
    pub fn pop(&mut self, kind: Kind, order: usize) -> Option<(usize, usize, u32)> {
        let o = (order..ORDERS).find(|&o| self.front[kind as usize][o] != NONE)?;
        let i = self.front[kind as usize][o] as usize;
        let stamp = self.links[i].stamp;
        self.unlink(i, o, kind);
        Some((i, o, stamp))
    }

    /// The oldest block of `kind`, largest order first, without taking it: first slot, order, stamp.
    pub fn oldest(&self, kind: Kind) -> Option<(usize, usize, u32)> {
        (0..ORDERS).rev().find_map(|o| match self.back[kind as usize][o] {
            NONE => None,
            i => Some((i as usize, o, self.links[i as usize].stamp)),
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
            let first = self.back[kind as usize][o] as usize;
            let stamp = self.links[first].stamp;
            let age = now.wrapping_sub(stamp);
            if age >= delay {
                return Ready::Now { first, order: o, stamp };
            }
            if let Ready::None = result {
                result = Ready::Later(delay - age);
            }
        }
        result
    }

    /// Of the blocks of `kind` at the backs of their lists, gives the one free for the longest time at `now`, without
    /// taking it: first slot, order, stamp.
    pub fn stalest(&self, kind: Kind, now: u32) -> Option<(usize, usize, u32)> {
        (0..ORDERS)
            .filter(|&o| self.back[kind as usize][o] != NONE)
            .map(|o| (self.back[kind as usize][o] as usize, o))
            .map(|(i, o)| (i, o, self.links[i].stamp))
            .max_by_key(|&(_, _, stamp)| now.wrapping_sub(stamp))
    }

    /// Takes the free slots `first .. first + n` of `kind` out of whatever blocks they lie in.
    pub fn carve(&mut self, first: usize, n: usize, kind: Kind) {
        let (mut i, end) = (first, first + n);
        while i < end {
            let (head, order) = self.block_of(i);
            let stamp = self.links[head].stamp;
            self.unlink(head, order, kind);
            let block_end = head + (1 << order);
            if head < i {
                self.insert(head, i - head, kind, stamp, |_| false);
            }
            if block_end > end {
                self.insert(end, block_end - end, kind, stamp, |_| false);
            }
            i = block_end;
        }
    }

    fn block_of(&self, i: usize) -> (usize, usize) {
        (0..ORDERS)
            .map(|o| (i & !((1 << o) - 1), o))
            .find(|&(head, o)| self.links[head].head as usize == o + 1)
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

    #[test]
    fn neighbours_coalesce_to_one_block() {
        let mut b = buddy(16);
        b.insert(4, 2, Kind::Dirty, 1, |_| false);
        b.insert(6, 2, Kind::Dirty, 2, |i| i == 4);
        assert_eq!(b.oldest(Kind::Dirty), Some((4, 2, 2)));
        assert_eq!(b.pop(Kind::Zeroed, 0), None);
        assert_eq!(b.pop(Kind::Dirty, 1), Some((4, 2, 2)));
        assert_eq!(b.slots(Kind::Dirty), 0);
    }

    #[test]
    fn a_joined_block_is_as_young_as_its_younger_half_also_where_the_clock_wraps() {
        let mut b = buddy(16);
        b.insert(0, 2, Kind::Dirty, 3, |_| false);
        b.insert(2, 2, Kind::Dirty, u32::MAX, |i| i == 0);
        assert_eq!(b.pop(Kind::Dirty, 0), Some((0, 2, 3)));
    }

    #[test]
    fn the_largest_block_that_is_old_enough_is_ready() {
        let mut b = buddy(64);
        assert_eq!((b.largest(Kind::Dirty), b.ready(Kind::Dirty, 0, 9, 5)), (None, Ready::None));
        b.insert(0, 8, Kind::Dirty, 100, |_| false);
        b.insert(16, 4, Kind::Dirty, 90, |_| false);
        b.insert(32, 4, Kind::Dirty, 95, |_| false);
        assert_eq!(b.largest(Kind::Dirty), Some(3));
        assert_eq!(b.ready(Kind::Dirty, 0, 105, 5), Ready::Now { first: 0, order: 3, stamp: 100 });
        assert_eq!(b.ready(Kind::Dirty, 0, 102, 5), Ready::Now { first: 16, order: 2, stamp: 90 });
        assert_eq!(b.ready(Kind::Dirty, 3, 102, 5), Ready::Later(3));
        assert_eq!(b.ready(Kind::Dirty, 4, 105, 5), Ready::None);
    }

    #[test]
    fn lists_that_begin_again_are_empty() {
        let mut b = buddy(16);
        b.insert(2, 7, Kind::Dirty, 1, |_| false);
        b.insert(12, 4, Kind::Unbacked, 1, |_| false);
        b.clear(16);
        assert_eq!((b.slots(Kind::Dirty), b.slots(Kind::Unbacked), b.oldest(Kind::Dirty)), (0, 0, None));
        b.insert(0, 16, Kind::Unbacked, 1, |_| true);
        assert_eq!(b.pop(Kind::Unbacked, 0), Some((0, 4, 1)));
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
                            b.insert(at, n, kind, 0, |i| seen[i] == Some(kind));
                        }
                    }
                    2 => {
                        if model[at..at + n].iter().all(|k| *k == Some(kind)) {
                            b.carve(at, n, kind);
                            model[at..at + n].fill(None);
                        }
                    }
                    _ => {
                        let order = n.ilog2() as usize;
                        if let Some((i, o, _)) = b.pop(kind, order) {
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
