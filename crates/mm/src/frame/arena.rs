//! One shard of the arena: its slots, its free lists and its carved slots. Every function here is called with the
//! shard's lock held. Only those that reach for more of the reservation make a system call.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span};

use crate::frame::buddy::{Buddy, Kind, Link};
use crate::frame::carver::Carver;
use crate::frame::extent::Extent;
use crate::frame::purpose::Need;
use crate::frame::runs::Carved;
use crate::frame::sizes::Sizes;
use crate::frame::slot::{Slots, State, flag};

/// How many slots growth takes from the reservation at a time, at least (32 MiB).
const GROWTH: usize = 16;
/// One slot in this many of memory that is handed out again may have no frame. Fewer are tried first.
const HOLES: [usize; 3] = [usize::MAX, 16, 4];

/// A shard.
pub struct Arena {
    base: usize,
    slots: Slots,
    buddy: Buddy,
    /// The slots that are carved into runs.
    pub carver: Carver,
    /// The block that came back last and of which memory was kept.
    last: Extent,
    /// Slots with memory that were given up since [`Arena::take_given_up`] was last asked.
    given_up: usize,
}

impl Arena {
    /// A shard over the reservation at `base`, and its tables, each with an entry for every slot.
    pub fn new(
        base: usize,
        slots: Slots,
        sizes: Sizes,
        links: &'static mut [Link],
        carved: &'static mut [Carved],
    ) -> Self {
        let carver = Carver::new(slots, sizes, carved);
        Self { base, slots, buddy: Buddy::new(links), carver, last: Extent::NONE, given_up: 0 }
    }

    /// In a forked child: the lists begin anew from what each slot and each block says, whatever a thread of the
    /// parent was doing to them. Slots in no use are to be holes, without memory; those in transit stay so.
    pub fn begin_again(&mut self) {
        let slots = self.slots;
        self.buddy.clear(slots.tail());
        self.carver.clear();
        self.last = Extent::NONE;
        self.given_up = 0;
        slots.ever_used().groups(
            |i| slots.state(i),
            |e, state| match state {
                State::Unbacked => self.buddy.insert(e, Kind::Unbacked, 0, |_| false),
                State::Runs => e.slots().for_each(|slot| self.carver.take_up(slot)),
                _ => {}
            },
        );
    }

    /// The addresses of an extent.
    pub fn span(&self, e: Extent) -> Span {
        e.span(self.base)
    }

    /// The free lists, to look at.
    pub fn free(&self) -> &Buddy {
        &self.buddy
    }

    /// Takes `n` slots with memory behind them, the first one a multiple of `align`. Tries the wanted kind, then the
    /// other one, then both mixed, with a few holes among them, because not all memory that came back was kept. The
    /// last resort is the block that came back last.
    pub fn take_resident(&mut self, n: usize, align: usize, need: Need) -> Option<Extent> {
        let kinds = match need {
            Need::Zero => [Kind::Zeroed, Kind::Dirty],
            Need::Any => [Kind::Dirty, Kind::Zeroed],
        };
        let whole = kinds.into_iter().find_map(|k| self.pop(n, align, k));
        let mixed = whole.or_else(|| HOLES.into_iter().find_map(|part| self.scan(n, align, n / part)));
        mixed.or_else(|| self.take_last(n, align, need))
    }

    /// A block came back, and memory of it was kept.
    pub fn note_last(&mut self, e: Extent) {
        self.last = e;
    }

    /// Takes the block that came back last, as it is: a program that used little of a block uses little of the next.
    fn take_last(&mut self, n: usize, align: usize, need: Need) -> Option<Extent> {
        let last = core::mem::replace(&mut self.last, Extent::NONE);
        let fits = need == Need::Any && n <= last.n && last.first.number() % align == 0;
        let e = Extent { n, ..last };
        (fits && self.take_at(e)).then_some(e)
    }

    /// Takes up to `n` slots of a kind, as many as there are in one piece of their size.
    pub fn take_some(&mut self, n: usize, kind: Kind) -> Option<Extent> {
        let order = self.buddy.largest(kind)?.min(n.checked_ilog2()? as usize);
        self.pop(1 << order, 1, kind)
    }

    /// Takes `n` slots without memory.
    pub fn take_holes(&mut self, n: usize, align: usize, sys: &impl Sys) -> Option<Extent> {
        self.pop(n, align, Kind::Unbacked).or_else(|| self.grow(n, align, sys))
    }

    /// Takes exactly these slots, if all of them are free.
    pub fn take_at(&mut self, e: Extent) -> bool {
        let inside = e.end() <= self.slots.tail();
        inside && e.slots().all(|i| self.slots.state(i).is_free()) && self.carve(e)
    }

    fn pop(&mut self, n: usize, align: usize, kind: Kind) -> Option<Extent> {
        let order = n.max(align).next_power_of_two().trailing_zeros() as usize;
        loop {
            let free = self.buddy.pop(kind, order)?;
            let rest = free.extent().behind(n);
            if !rest.is_empty() {
                self.put(rest, kind, free.stamp);
            }
            let e = free.extent().front(n);
            if self.pass(e) {
                return Some(e);
            }
        }
    }

    /// First fit over all slots, in any blocks and of any kind, with `holes` holes at most.
    fn scan(&mut self, n: usize, align: usize, holes: usize) -> Option<Extent> {
        if self.buddy.slots(Kind::Dirty) + self.buddy.slots(Kind::Zeroed) + holes < n {
            return None;
        }
        let mut e = Extent { first: Slot::new(0), n };
        while e.end() <= self.slots.tail() {
            let taken = e.slots().rev().find(|&i| !self.slots.state(i).is_free());
            // From the end, the first hole that is too many.
            let hole = || e.slots().rev().filter(|&i| self.slots.state(i) == State::Unbacked).nth(holes);
            match taken.or_else(hole) {
                Some(i) => e.first = (i + 1).next_multiple_of(align),
                None if self.carve(e) => return Some(e),
                None => {}
            }
        }
        None
    }

    /// Takes free slots out of the lists, kind by kind; false as for [`Arena::pass`].
    fn carve(&mut self, e: Extent) -> bool {
        let slots = self.slots;
        e.groups(
            |i| slots.state(i),
            |part, state| {
                if let Some(kind) = Kind::of(state) {
                    self.buddy.carve(part, kind);
                }
            },
        );
        self.pass(e)
    }

    fn grow(&mut self, n: usize, align: usize, sys: &impl Sys) -> Option<Extent> {
        self.pass_over(sys);
        let first = self.slots.tail().next_multiple_of(align);
        self.open_to(Slot::new(first.number().checked_add(n)?), sys).then_some(())?;
        let e = Extent { first, n };
        // Some may have been given up while they were opened.
        self.take_at(e).then_some(e)
    }

    /// Opens the reservation up to slot `end` at least; new slots are holes, but for those where the program has
    /// mapped something.
    pub fn reach(&mut self, end: Slot, sys: &impl Sys) -> bool {
        if end <= self.slots.tail() {
            return true;
        }
        self.pass_over(sys);
        end <= self.slots.tail() || self.open_to(end, sys)
    }

    fn open_to(&mut self, end: Slot, sys: &impl Sys) -> bool {
        let limit = Slot::new(self.slots.len());
        if end > limit {
            return false;
        }
        // One more than is asked for: `examine.rs` compares with a free slot, whose attributes never changed.
        let new_tail = (end + 1).max(self.slots.tail() + GROWTH).min(limit);
        let grown = Extent::between(self.slots.tail(), new_tail);
        // First on their way: who gives them up from now on waits until they are opened.
        if self.send_off(grown) && sys.open_first(self.span(grown)) {
            grown.slots().for_each(|i| _ = self.slots.mark(i, flag::OPEN));
            self.slots.set_tail(new_tail);
            self.give(grown, Kind::Unbacked, 0);
            return true;
        }
        let last = grown.slots().rev().find(|&i| self.slots.has(i, flag::GIVEN_UP));
        let claimed = last.map_or(grown.first, |i| i + 1);
        Extent::between(claimed, new_tail).slots().for_each(|i| self.slots.set(i, State::Unbacked));
        self.claim(grown.before(claimed));
        false
    }

    /// The program may have mapped something where the arena was to grow, by whatever call: that is its own, and so
    /// is what lies before it.
    pub fn pass_over(&mut self, sys: &impl Sys) {
        let rest = self.slots.never_used();
        let unclaimed = Slot::new((sys.unclaimed(self.span(rest)) - self.base) / SLOT);
        self.claim(rest.before(unclaimed));
    }

    /// The first slots that were never used are the program's.
    fn claim(&self, e: Extent) {
        for i in e.slots() {
            self.slots.set(i, State::InTransit);
            self.slots.mark(i, flag::OPEN);
            self.slots.lose(i);
        }
        self.slots.set_tail(e.end());
    }

    /// Takes one run of free slots out of `e`, if there is any.
    pub fn take_free(&mut self, e: Extent) -> Option<Extent> {
        loop {
            let is_free = |i: &Slot| self.slots.state(*i).is_free();
            let first = e.slots().find(is_free)?;
            let n = Extent::between(first, e.end()).slots().take_while(is_free).count();
            let free = Extent { first, n };
            if self.carve(free) {
                return Some(free);
            }
        }
    }

    /// How many slots with memory were given up. Their memory is idle no longer.
    pub fn take_given_up(&mut self) -> usize {
        core::mem::take(&mut self.given_up)
    }

    /// Moves slots into transit; whether none of them is given up.
    fn send_off(&self, e: Extent) -> bool {
        let mut is_whole = true;
        for i in e.slots() {
            is_whole &= self.slots.take(i);
        }
        is_whole
    }

    /// Slots that are in no list go on their way. False: some of them were given up. These are lost then, and the others
    /// are in the lists again.
    fn pass(&mut self, e: Extent) -> bool {
        let is_whole = self.send_off(e);
        if !is_whole {
            let slots = self.slots;
            e.groups(|i| slots.was(i), |part, was| self.give(part, Kind::of(was).expect("a free slot"), 0));
        }
        is_whole
    }

    /// Puts slots in transit into the free lists, but for those that were given up.
    pub fn give(&mut self, e: Extent, kind: Kind, stamp_ms: u32) {
        let slots = self.slots;
        debug_assert!(e.slots().all(|i| slots.state(i) == State::InTransit));
        e.groups(
            |i| slots.has(i, flag::GIVEN_UP),
            |part, is_given_up| {
                if is_given_up {
                    part.slots().for_each(|i| slots.lose(i));
                    self.given_up += if kind == Kind::Unbacked { 0 } else { part.n };
                } else {
                    part.slots().for_each(|i| slots.set(i, kind.state()));
                    self.put(part, kind, stamp_ms);
                }
            },
        );
    }

    fn put(&mut self, e: Extent, kind: Kind, stamp_ms: u32) {
        let slots = self.slots;
        let tail = self.slots.tail();
        let same = |i: Slot| i < tail && slots.state(i) == kind.state();
        self.buddy.insert(e, kind, stamp_ms, same);
    }
}
