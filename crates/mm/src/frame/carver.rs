//! The slots of a shard that are carved into runs: where there is room, and what belongs to no block. Every function
//! here is called with the shard's lock held.

use faultless_base::{Pages, Slot};

use crate::frame::runs::{Carved, Content, Run, Taken, UNITS};
use crate::frame::sizes::Sizes;
use crate::frame::slot::{Slots, State, flag};

/// Carved slots with room that are looked at for a run.
const ROOMS: usize = 8;
/// In place of the number of a slot.
const NONE: u32 = u32::MAX;

/// A run that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenRun {
    /// Its slot.
    pub slot: Slot,
    /// Its first unit.
    pub unit: usize,
    /// Whether all of it is zero.
    pub zero: bool,
}

/// What a run that was given back leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Its slot goes on to be carved.
    InUse,
    /// Its slot is no longer needed, and in transit.
    Emptied,
}

/// Memory that belongs to no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its slot.
    pub slot: Slot,
    /// Its units.
    pub run: Run,
}

/// The carved slots of a shard.
pub struct Carver {
    slots: Slots,
    sizes: Sizes,
    carved: &'static mut [Carved],
    /// Some slots with room.
    rooms: [u32; ROOMS],
    /// A carved slot with nothing handed out, kept for the next run.
    spare: u32,
    /// Units of carved slots that belong to no block, and have memory.
    unused: usize,
    /// Where the search for such units goes on, and whether there may be any that can go back.
    searched: usize,
    strippable: bool,
}

/// A slot in the list of those with room.
#[inline]
fn room_of(slot: Slot) -> u32 {
    slot.number() as u32
}

/// The reverse of [`room_of`].
#[inline]
fn slot_of(room: u32) -> Slot {
    Slot::new(room as usize)
}

impl Carver {
    /// No slot is carved; `carved` has an entry for each.
    pub fn new(slots: Slots, sizes: Sizes, carved: &'static mut [Carved]) -> Self {
        let rooms = [NONE; ROOMS];
        Self { slots, sizes, carved, rooms, spare: NONE, unused: 0, searched: 0, strippable: false }
    }

    /// In a forked child: no slot is known to be carved, until it is [taken up](Self::take_up).
    pub fn clear(&mut self) {
        (self.rooms, self.spare, self.unused) = ([NONE; ROOMS], NONE, 0);
        self.strippable = true;
    }

    /// In a forked child: this slot is carved as [`Sizes`] says.
    pub fn take_up(&mut self, slot: Slot) {
        self.carved[slot.number()] = Carved::of_runs(self.sizes.runs(slot));
        self.unused += self.carved[slot.number()].wasted();
        self.has_room(slot);
    }

    /// Units of carved slots that belong to no block, and have memory.
    #[inline]
    pub fn unused_units(&self) -> usize {
        self.unused
    }

    /// Takes a run for a block of `pages` pages from a carved slot that has room.
    pub fn take_run(&mut self, pages: Pages) -> Option<TakenRun> {
        let units = pages.units_around();
        for place in 0..ROOMS {
            if self.rooms[place] == NONE {
                continue;
            }
            let slot = slot_of(self.rooms[place]);
            if self.slots.has(slot, flag::TAINTED) {
                // The part whose attributes the program changed may be free by now, with those attributes.
                self.rooms[place] = NONE;
                continue;
            }
            let carved = &mut self.carved[slot.number()];
            if let Some(Taken { unit, zero, backed }) = carved.take(units) {
                self.sizes.set_run(slot, unit, pages);
                self.unused -= backed;
                if carved.is_full() {
                    self.rooms[place] = NONE;
                }
                if self.spare == room_of(slot) {
                    self.spare = NONE;
                }
                return Some(TakenRun { slot, unit, zero });
            }
        }
        None
    }

    /// Starts carving a slot in transit, and takes its first units, for a block of `pages` pages: whether they are zero.
    pub fn carve_slot(&mut self, slot: Slot, pages: Pages, content: Content) -> bool {
        let units = pages.units_around();
        self.carved[slot.number()] = Carved::start(content);
        let _ = self.carved[slot.number()].take(units);
        self.sizes.clear(slot);
        self.sizes.set_run(slot, 0, pages);
        self.strippable = true;
        self.unused += self.carved[slot.number()].wasted();
        self.slots.set(slot, State::Runs);
        if units < UNITS {
            self.has_room(slot);
        }
        content != Content::Old
    }

    /// Makes the run at `unit` long enough for `pages` pages where it stands, if there is room, and if no other run
    /// that was there had attributes of its own.
    pub fn resize_run(&mut self, slot: Slot, unit: usize, pages: Pages) -> bool {
        let units = pages.units_around();
        let Some(old) = self.sizes.run(slot, unit) else { return false };
        let fits = units <= old || !self.slots.has(slot, flag::TAINTED);
        let before = self.carved[slot.number()].wasted();
        let done = fits && self.carved[slot.number()].resize(unit, old, units);
        if done {
            self.sizes.set_run(slot, unit, pages);
            self.unused = self.unused + self.carved[slot.number()].wasted() - before;
            self.strippable = true;
        }
        done
    }

    /// Gives a run back, `bare`: without its memory. `None` when no run starts there.
    pub fn give_run(&mut self, slot: Slot, unit: usize, bare: bool) -> Option<Given> {
        let units = self.sizes.run(slot, unit)?;
        self.carved[slot.number()].give(unit, units, bare);
        self.strippable |= !bare;
        self.sizes.set_run(slot, unit, Pages::NONE);
        self.unused += if bare { 0 } else { units };
        let in_part = self.carved[slot.number()].is_bare();
        let changed = self.slots.has(slot, flag::TAINTED | flag::FORKED);
        let empty = self.carved[slot.number()].is_empty() && (changed || in_part || self.spare != NONE);
        if empty {
            self.rooms.iter_mut().filter(|r| **r == room_of(slot)).for_each(|r| *r = NONE);
            self.slots.set(slot, State::InTransit);
            self.unused -= self.carved[slot.number()].wasted();
            if in_part {
                self.slots.mark(slot, flag::EMPTY);
            }
        } else {
            if self.carved[slot.number()].is_empty() {
                self.spare = room_of(slot);
            }
            self.has_room(slot);
        }
        Some(if empty { Given::Emptied } else { Given::InUse })
    }

    /// Whether memory between blocks may go back.
    pub fn may_strip(&self) -> bool {
        self.strippable && self.unused > 0
    }

    /// Takes a piece of a carved slot that has memory and belongs to no block, as if it were one. Where the
    /// program changed attributes, nothing is taken.
    pub fn take_wasted(&mut self) -> Option<Piece> {
        let tail = self.slots.tail().number();
        for _ in 0..if self.may_strip() { tail } else { 0 } {
            let slot = Slot::new(self.searched % tail);
            let is_plain = !self.slots.has(slot, flag::TAINTED);
            if self.slots.state(slot) == State::Runs
                && is_plain
                && let Some(run) = self.carved[slot.number()].take_wasted()
            {
                self.sizes.set_run(slot, run.unit, Pages::of_units(run.n));
                self.unused -= run.n;
                return Some(Piece { slot, run });
            }
            self.searched = slot.number() + 1;
        }
        self.strippable = false;
        None
    }

    #[inline]
    fn has_room(&mut self, slot: Slot) {
        let slot = room_of(slot);
        if !self.rooms.contains(&slot) {
            self.add_room(slot);
        }
    }

    #[inline(never)]
    fn add_room(&mut self, slot: u32) {
        match self.rooms.iter().position(|&r| r == NONE) {
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
