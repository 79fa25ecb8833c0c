//! Runs: pieces of 64 KiB … 2 MiB carved out of one slot, for `malloc`.
//!
//! A slot in state `Runs` has a bit for each of its 32 units. First fit inside the slot; slots with room are found
//! through a short list of recent ones. How long each run is lies in [`crate::frame::sizes`], where it is read
//! without a lock.

use faultless_base::{SLOT, UNIT};

/// Units of a slot.
pub const UNITS: usize = SLOT / UNIT;

/// A run, or a piece of the same kind that is no block's: units of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first unit.
    pub unit: usize,
    /// How many it has.
    pub n: usize,
}

/// A run that is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its first unit.
    pub unit: usize,
    /// Whether all of it is zero.
    pub zero: bool,
    /// How many of its units have memory.
    pub backed: usize,
}

/// What a slot holds when it is carved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Old bytes.
    Old,
    /// Zeroes.
    Zero,
    /// No memory: zeroes come with small pages, where the program touches it.
    Nothing,
}

/// The map of one carved slot. All zero: nothing is handed out.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C)]
pub struct Carved {
    used: u32,
    /// Units that still hold the zeroes which the slot came with.
    clean: u32,
    /// Units that have no memory.
    bare: u32,
}

impl Carved {
    /// A slot with nothing handed out.
    pub fn start(content: Content) -> Self {
        let all = |is: bool| if is { u32::MAX } else { 0 };
        Self { used: 0, clean: all(content != Content::Old), bare: all(content == Content::Nothing) }
    }

    /// A slot with these runs. Its free units hold old bytes.
    pub fn of_runs(runs: impl Iterator<Item = Run>) -> Self {
        Self { used: runs.fold(0, |used, run| used | mask(run.unit, run.n)), ..Self::default() }
    }

    /// Takes a run of `n` units, if there is room.
    pub fn take(&mut self, n: usize) -> Option<Taken> {
        let mut fits = !self.used;
        for _ in 1..n {
            fits &= fits >> 1;
        }
        if fits == 0 {
            return None;
        }
        let unit = fits.trailing_zeros() as usize;
        let mask = mask(unit, n);
        let zero = self.clean & mask == mask;
        let backed = self.backed(unit, n);
        self.hand_out(mask);
        Some(Taken { unit, zero, backed })
    }

    fn hand_out(&mut self, mask: u32) {
        self.used |= mask;
        self.clean &= !mask;
        self.bare &= !mask;
    }

    /// Gives back the `n` units from `at` on; `bare`: without their memory.
    pub fn give(&mut self, at: usize, n: usize, bare: bool) {
        self.used &= !mask(at, n);
        self.bare |= if bare { mask(at, n) } else { 0 };
    }

    /// Takes a piece that has memory and belongs to no run.
    pub fn take_wasted(&mut self) -> Option<Run> {
        let wasted = !self.used & !self.bare;
        let unit = wasted.trailing_zeros() as usize;
        let n = wasted.checked_shr(unit as u32)?.trailing_ones() as usize;
        self.hand_out(mask(unit, n));
        Some(Run { unit, n })
    }

    /// How many of the `n` units from `at` on have memory.
    #[inline]
    pub fn backed(&self, at: usize, n: usize) -> usize {
        // To count bits takes long without an instruction for it.
        if self.bare == 0 { n } else { (mask(at, n) & !self.bare).count_ones() as usize }
    }

    /// Units that have memory, and belong to no run.
    pub fn wasted(&self) -> usize {
        (!self.used & !self.bare).count_ones() as usize
    }

    /// Whether some of it has no memory.
    pub fn is_bare(&self) -> bool {
        self.bare != 0
    }

    /// Makes the run of `old` units at `at` `n` units long where it stands, if there is room.
    pub fn resize(&mut self, at: usize, old: usize, n: usize) -> bool {
        let without = self.used & !mask(at, old);
        if at + n > UNITS || without & mask(at, n) != 0 {
            return false;
        }
        self.used = without;
        self.hand_out(mask(at, n));
        true
    }

    /// Whether nothing is handed out.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether everything is handed out.
    pub fn is_full(&self) -> bool {
        self.used == u32::MAX
    }
}

fn mask(at: usize, n: usize) -> u32 {
    (((1u64 << n) - 1) << at) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn a_whole_slot_is_one_run() {
        let mut c = Carved::start(Content::Zero);
        assert_eq!(c.take(UNITS), Some(Taken { unit: 0, zero: true, backed: UNITS }));
        assert!(c.is_full() && c.take(1).is_none());
        c.give(0, UNITS, false);
        assert_eq!(c.take(1), Some(Taken { unit: 0, zero: false, backed: 1 }), "used memory is no longer zero");
    }

    proptest! {
        #[test]
        fn runs_never_overlap(ops in prop::collection::vec((0usize..UNITS, 1usize..=UNITS, 0u8..4), 1..100)) {
            let mut c = Carved::start(Content::Nothing);
            let mut model = vec![0usize; UNITS];
            // Units that have memory.
            let mut filled = vec![false; UNITS];
            let mut id = 0;
            for (at, n, op) in ops {
                let wasted = |model: &[usize], filled: &[bool]| (0..UNITS).filter(|&u| model[u] == 0 && filled[u]).count();
                id += 1;
                let owner = model[at];
                let starts = owner != 0 && (at == 0 || model[at - 1] != owner);
                let len = model.iter().filter(|o| **o == owner).count();
                match op {
                    0 => if let Some(Taken { unit: i, backed, .. }) = c.take(n) {
                        prop_assert_eq!(backed, (i..i + n).filter(|&unit| filled[unit]).count());
                        prop_assert!(model[i..i + n].iter().all(|o| *o == 0));
                        model[i..i + n].fill(id);
                        filled[i..i + n].fill(true);
                    },
                    1 if starts => {
                        c.give(at, len, n % 2 == 0);
                        model[at..at + len].fill(0);
                        filled[at..at + len].fill(n % 2 == 1);
                    }
                    2 if starts => {
                        let room = at + n <= UNITS && model[at..at + n].iter().all(|o| *o == 0 || *o == owner);
                        prop_assert_eq!(c.resize(at, len, n), room);
                        if room {
                            model[at..at + len].fill(0);
                            model[at..at + n].fill(owner);
                            filled[at..at + n].fill(true);
                        }
                    }
                    3 => if let Some(Run { unit: i, n }) = c.take_wasted() {
                        prop_assert!((i..i + n).all(|unit| model[unit] == 0 && filled[unit]));
                        model[i..i + n].fill(id);
                    } else {
                        prop_assert_eq!(wasted(&model, &filled), 0);
                    },
                    _ => {}
                }
                prop_assert_eq!(c.wasted(), wasted(&model, &filled));
                prop_assert_eq!(c.is_empty(), model.iter().all(|o| *o == 0));
                prop_assert_eq!(c.is_full(), model.iter().all(|o| *o != 0));
            }
        }
    }
}
