//! One shard of the arena: its slots, its free lists and its carved slots. Every function here is called with the
//! shard's lock held. Only those that reach for more of the reservation make a system call.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span};

use crate::frame::buddy::{Buddy, Kind, Link};
use crate::frame::extent::Extent;
use crate::frame::purpose::Need;
use crate::frame::runs::{Carved, Content, UNITS};
use crate::frame::sizes::Sizes;
use crate::frame::slot::{Slots, State, flag};

/// How many slots growth takes from the reservation at a time, at least (32 MiB).
const GROWTH: usize = 16;
/// One slot in this many of memory that is handed out again may have no frame. Fewer are tried first.
const HOLES: [usize; 3] = [usize::MAX, 16, 4];
/// Carved slots with room that are looked at for a run.
const ROOMS: usize = 8;

/// A shard.
pub struct Arena {
    base: usize,
    slots: Slots,
    sizes: Sizes,
    buddy: Buddy,
    carved: &'static mut [Carved],
    rooms: [u32; ROOMS],
    /// A carved slot with nothing handed out, kept for the next run; `u32::MAX` for none.
    spare: u32,
    /// Units of carved slots that belong to no block, and have memory.
    unused: usize,
    /// Where the search for such units goes on, and whether there may be any that can go back.
    searched: usize,
    strippable: bool,
    /// The block that came back last and of which memory was kept.
    last: Extent,
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
        let rooms = [u32::MAX; ROOMS];
        Self {
            base,
            slots,
            sizes,
            buddy: Buddy::new(links),
            carved,
            rooms,
            spare: u32::MAX,
            unused: 0,
            searched: 0,
            strippable: false,
            last: Extent { first: 0, n: 0 },
        }
    }

    /// In a forked child: the lists begin anew from what each slot and each block says, whatever a thread of the
    /// parent was doing to them. Slots in no use are to be holes, without memory; those in transit stay so.
    pub fn begin_again(&mut self) {
        let slots = self.slots;
        self.buddy.clear(slots.tail());
        (self.rooms, self.spare, self.unused) = ([u32::MAX; ROOMS], u32::MAX, 0);
        self.strippable = true;
        self.last = Extent { first: 0, n: 0 };
        let mut i = 0;
        while i < slots.tail() {
            let n = (i..slots.tail()).take_while(|&j| slots.state(j) == slots.state(i)).count();
            match slots.state(i) {
                State::Unbacked => self.buddy.insert(i, n, Kind::Unbacked, 0, |_| false),
                State::Runs => (i..i + n).for_each(|slot| {
                    self.carved[slot] = Carved::of_runs(self.sizes.runs(slot));
                    self.unused += self.carved[slot].wasted();
                    self.has_room(slot);
                }),
                _ => {}
            }
            i += n;
        }
    }

    /// The addresses of an extent.
    pub fn span(&self, e: Extent) -> Span {
        Span::new(self.base + e.first * SLOT, e.n * SLOT)
    }

    /// Units of carved slots that belong to no block, and have memory.
    pub fn unused_units(&self) -> usize {
        self.unused
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
        let last = core::mem::replace(&mut self.last, Extent { first: 0, n: 0 });
        let fits = need == Need::Any && n <= last.n && last.first % align == 0;
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
        let inside = e.first + e.n <= self.slots.tail();
        let free = inside && e.slots().all(|i| self.slots.state(i).is_free());
        if free {
            self.carve(e);
        }
        free
    }

    fn pop(&mut self, n: usize, align: usize, kind: Kind) -> Option<Extent> {
        let order = n.max(align).next_power_of_two().trailing_zeros() as usize;
        let (first, order, stamp) = self.buddy.pop(kind, order)?;
        let rest = (1 << order) - n;
        if rest > 0 {
            self.put(Extent { first: first + n, n: rest }, kind, stamp);
        }
        Some(self.pass(Extent { first, n }))
    }

    /// First fit over all slots, in any blocks and of any kind, with `holes` holes at most.
    fn scan(&mut self, n: usize, align: usize, holes: usize) -> Option<Extent> {
        if self.buddy.slots(Kind::Dirty) + self.buddy.slots(Kind::Zeroed) + holes < n {
            return None;
        }
        let mut start = 0;
        while start + n <= self.slots.tail() {
            let e = Extent { first: start, n };
            let taken = e.slots().rev().find(|&i| !self.slots.state(i).is_free());
            // From the end, the first hole that is too many.
            let hole = || e.slots().rev().filter(|&i| self.slots.state(i) == State::Unbacked).nth(holes);
            match taken.or_else(hole) {
                Some(i) => start = (i + 1).next_multiple_of(align),
                None => {
                    self.carve(e);
                    return Some(e);
                }
            }
        }
        None
    }

    /// Takes free slots out of the lists, kind by kind.
    fn carve(&mut self, e: Extent) {
        let (mut i, end) = (e.first, e.first + e.n);
        while i < end {
            let state = self.slots.state(i);
            let n = (i..end).take_while(|&j| self.slots.state(j) == state).count();
            if let Some(kind) = Kind::of(state) {
                self.buddy.carve(i, n, kind);
            }
            i += n;
        }
        self.pass(e);
    }

    fn grow(&mut self, n: usize, align: usize, sys: &impl Sys) -> Option<Extent> {
        self.pass_over(sys);
        let first = self.slots.tail().next_multiple_of(align);
        self.open_to(first.checked_add(n)?, sys).then_some(())?;
        let e = Extent { first, n };
        self.carve(e);
        Some(e)
    }

    /// Opens the reservation up to slot `end` at least; new slots are holes, but for those where the program has
    /// mapped something.
    pub fn reach(&mut self, end: usize, sys: &impl Sys) -> bool {
        if end <= self.slots.tail() {
            return true;
        }
        self.pass_over(sys);
        end <= self.slots.tail() || self.open_to(end, sys)
    }

    fn open_to(&mut self, end: usize, sys: &impl Sys) -> bool {
        if end > self.slots.len() {
            return false;
        }
        // One more than is asked for: `examine.rs` compares with a free slot, whose attributes never changed.
        let new_tail = (end + 1).max(self.slots.tail() + GROWTH).min(self.slots.len());
        let grown = Extent { first: self.slots.tail(), n: new_tail - self.slots.tail() };
        if !sys.open_first(self.span(grown)) {
            return false;
        }
        for i in grown.first..new_tail {
            self.slots.mark(i, flag::OPEN);
        }
        self.slots.set_tail(new_tail);
        self.put(grown, Kind::Unbacked, 0);
        true
    }

    /// The program may have mapped something where the arena was to grow, by whatever call: that is its own, and so
    /// is what lies before it.
    pub fn pass_over(&mut self, sys: &impl Sys) {
        let rest = Extent { first: self.slots.tail(), n: self.slots.len() - self.slots.tail() };
        let unclaimed = (sys.unclaimed(self.span(rest)) - self.base) / SLOT;
        for i in rest.first..unclaimed {
            self.slots.set(i, State::InTransit);
            self.slots.mark(i, flag::OPEN | flag::TAINTED | flag::FRESH);
            self.slots.set(i, State::Mapped);
        }
        self.slots.set_tail(unclaimed);
    }

    /// Takes one run of free slots out of `e`, if there is any.
    pub fn take_free(&mut self, e: Extent) -> Option<Extent> {
        let is_free = |i: &usize| self.slots.state(*i).is_free();
        let first = e.slots().find(is_free)?;
        let n = (first..e.first + e.n).take_while(is_free).count();
        let free = Extent { first, n };
        self.carve(free);
        Some(free)
    }

    fn pass(&self, e: Extent) -> Extent {
        for i in e.slots() {
            self.slots.set(i, State::InTransit);
        }
        e
    }

    /// Puts slots in transit into the free lists.
    pub fn give(&mut self, e: Extent, kind: Kind, stamp_ms: u32) {
        debug_assert!(e.slots().all(|i| self.slots.state(i) == State::InTransit));
        for i in e.slots() {
            self.slots.set(i, kind.state());
        }
        self.put(e, kind, stamp_ms);
    }

    fn put(&mut self, e: Extent, kind: Kind, stamp_ms: u32) {
        let slots = self.slots;
        let tail = self.slots.tail();
        let same = |i: usize| i < tail && slots.state(i) == kind.state();
        self.buddy.insert(e.first, e.n, kind, stamp_ms, same);
    }

    /// Takes a run of `units` units from a carved slot that has room: slot, first unit, whether it is zero.
    pub fn take_run(&mut self, units: usize) -> Option<(usize, usize, bool)> {
        for place in 0..ROOMS {
            let slot = self.rooms[place];
            if slot == u32::MAX {
                continue;
            }
            if self.slots.has(slot as usize, flag::TAINTED) {
                // The part whose attributes the program changed may be free by now, with those attributes.
                self.rooms[place] = u32::MAX;
                continue;
            }
            let carved = &mut self.carved[slot as usize];
            if let Some((unit, zero, backed)) = carved.take(units) {
                self.sizes.set_run(slot as usize, unit, units);
                self.unused -= backed;
                if carved.is_full() {
                    self.rooms[place] = u32::MAX;
                }
                if self.spare == slot {
                    self.spare = u32::MAX;
                }
                return Some((slot as usize, unit, zero));
            }
        }
        None
    }

    /// Starts carving a slot in transit, and takes its first `units` units: whether they are zero.
    pub fn carve_slot(&mut self, slot: usize, units: usize, content: Content) -> bool {
        self.carved[slot] = Carved::start(content);
        let _ = self.carved[slot].take(units);
        self.sizes.clear(slot);
        self.sizes.set_run(slot, 0, units);
        self.strippable = true;
        self.unused += self.carved[slot].wasted();
        self.slots.set(slot, State::Runs);
        if units < UNITS {
            self.has_room(slot);
        }
        content != Content::Old
    }

    /// Makes the run at `unit` `units` units long where it stands, if there is room, and if no other run that was
    /// there had attributes of its own.
    pub fn resize_run(&mut self, slot: usize, unit: usize, units: usize) -> bool {
        let Some(old) = self.sizes.run(slot, unit) else { return false };
        let fits = units <= old || !self.slots.has(slot, flag::TAINTED);
        let before = self.carved[slot].wasted();
        let done = fits && self.carved[slot].resize(unit, old, units);
        if done {
            self.sizes.set_run(slot, unit, units);
            self.unused = self.unused + self.carved[slot].wasted() - before;
            self.strippable = true;
        }
        done
    }

    /// Gives a run back, `bare`: without its memory. Whether its slot is no longer needed (then it is in transit).
    /// `None` when no run starts there.
    pub fn give_run(&mut self, slot: usize, unit: usize, bare: bool) -> Option<bool> {
        let units = self.sizes.run(slot, unit)?;
        self.carved[slot].give(unit, units, bare);
        self.strippable |= !bare;
        self.sizes.set_run(slot, unit, 0);
        self.unused += if bare { 0 } else { units };
        let in_part = self.carved[slot].is_bare();
        let changed = self.slots.has(slot, flag::TAINTED | flag::FORKED);
        let empty = self.carved[slot].is_empty() && (changed || in_part || self.spare != u32::MAX);
        if empty {
            self.rooms.iter_mut().filter(|r| **r == slot as u32).for_each(|r| *r = u32::MAX);
            self.slots.set(slot, State::InTransit);
            self.unused -= self.carved[slot].wasted();
            if in_part {
                self.slots.mark(slot, flag::EMPTY);
            }
        } else {
            if self.carved[slot].is_empty() {
                self.spare = slot as u32;
            }
            self.has_room(slot);
        }
        Some(empty)
    }

    /// Whether memory between blocks may go back.
    pub fn may_strip(&self) -> bool {
        self.strippable && self.unused > 0
    }

    /// Takes a piece of a carved slot that has memory and belongs to no block, as if it were one: its slot, its first
    /// unit and its units. Where the program changed attributes, nothing is taken.
    pub fn take_wasted(&mut self) -> Option<(usize, usize, usize)> {
        let tail = self.slots.tail();
        for _ in 0..if self.may_strip() { tail } else { 0 } {
            let slot = self.searched % tail;
            let is_plain = !self.slots.has(slot, flag::TAINTED);
            if self.slots.state(slot) == State::Runs
                && is_plain
                && let Some((unit, units)) = self.carved[slot].take_wasted()
            {
                self.sizes.set_run(slot, unit, units);
                self.unused -= units;
                return Some((slot, unit, units));
            }
            self.searched = slot + 1;
        }
        self.strippable = false;
        None
    }

    fn has_room(&mut self, slot: usize) {
        let slot = slot as u32;
        if self.rooms.contains(&slot) {
            return;
        }
        match self.rooms.iter().position(|&r| r == u32::MAX) {
            Some(i) => self.rooms[i] = slot,
            // The slot at the end is forgotten until one of its runs comes back.
            None => {
                self.rooms.rotate_right(1);
                let place = (self.rooms[0] == self.spare) as usize;
                self.rooms[place] = slot;
            }
        }
    }
}
