//! Runs: pieces of 64 KiB … 2 MiB carved out of one slot, for `malloc`.
//!
//! A slot in state `Runs` has a bit for each of its 32 units. First fit inside the slot; slots with room are
//! found through a short list of recent ones.

use faultless_base::{SLOT, UNIT};

/// Units of a slot.
pub const UNITS: usize = SLOT / UNIT;

/// The map of one carved slot. All zero: nothing is handed out.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C)]
pub struct Carved {
    used: u32,
    /// Units that still hold the zeroes which the slot came with.
    clean: u32,
    lens: [u8; UNITS],
}

impl Carved {
    /// A slot with nothing handed out, its memory zero or not.
    pub fn start(zero: bool) -> Self {
        Self { used: 0, clean: if zero { u32::MAX } else { 0 }, lens: [0; UNITS] }
    }

    /// Takes `n` units: the first one, and whether all of them are zero.
    pub fn take(&mut self, n: usize) -> Option<(usize, bool)> {
        let mut fits = !self.used;
        for _ in 1..n {
            fits &= fits >> 1;
        }
        if fits == 0 {
            return None;
        }
        let at = fits.trailing_zeros() as usize;
        let mask = mask(at, n);
        let zero = self.clean & mask == mask;
        self.used |= mask;
        self.clean &= !mask;
        self.lens[at] = n as u8;
        Some((at, zero))
    }

    /// Gives back the run that starts at unit `at`: its units; `None` when no run starts there.
    pub fn give(&mut self, at: usize) -> Option<usize> {
        let n = self.len(at)?;
        self.used &= !mask(at, n);
        self.lens[at] = 0;
        Some(n)
    }

    /// Units of the run that starts at unit `at`.
    pub fn len(&self, at: usize) -> Option<usize> {
        (self.lens[at] != 0).then_some(self.lens[at] as usize)
    }

    /// Makes the run at `at` `n` units long where it stands, if there is room.
    pub fn resize(&mut self, at: usize, n: usize) -> bool {
        let Some(old) = self.len(at) else { return false };
        let without = self.used & !mask(at, old);
        if at + n > UNITS || without & mask(at, n) != 0 {
            return false;
        }
        self.used = without | mask(at, n);
        self.clean &= !mask(at, n);
        self.lens[at] = n as u8;
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
        let mut c = Carved::start(true);
        assert_eq!(c.take(UNITS), Some((0, true)));
        assert!(c.is_full() && c.take(1).is_none());
        assert_eq!(c.give(0), Some(UNITS));
        assert_eq!(c.take(1), Some((0, false)), "used memory is no longer zero");
    }

    proptest! {
        #[test]
        fn runs_never_overlap(ops in prop::collection::vec((0usize..UNITS, 1usize..=UNITS, 0u8..3), 1..100)) {
            let mut c = Carved::start(false);
            let mut model = vec![0usize; UNITS];
            let mut id = 0;
            for (at, n, op) in ops {
                id += 1;
                match op {
                    0 => if let Some((i, _)) = c.take(n) {
                        prop_assert!(model[i..i + n].iter().all(|o| *o == 0));
                        model[i..i + n].fill(id);
                    },
                    1 => {
                        let owner = model[at];
                        let starts = owner != 0 && (at == 0 || model[at - 1] != owner);
                        let given = c.give(at);
                        prop_assert_eq!(given.is_some(), starts);
                        if let Some(len) = given {
                            prop_assert!(model[at..at + len].iter().all(|o| *o == owner));
                            model[at..at + len].fill(0);
                        }
                    }
                    _ => if let Some(old) = c.len(at) {
                        let owner = model[at];
                        let room = at + n <= UNITS && model[at..at + n].iter().all(|o| *o == 0 || *o == owner);
                        prop_assert_eq!(c.resize(at, n), room);
                        if room {
                            model[at..at + old].fill(0);
                            model[at..at + n].fill(owner);
                        }
                    },
                }
                prop_assert_eq!(c.is_empty(), model.iter().all(|o| *o == 0));
            }
        }
    }
}
