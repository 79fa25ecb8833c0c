//! Advice where a program is: the groups of a mapping that it uses, those beside them, and before that the ends.
//!
//! A program begins at one end of its heap and goes on from there, as a rule. So the budget goes further there than
//! spread over all groups.

use faultless_base::sys::{Huge, Sys};

use crate::space::Space;
use crate::state::known::{Known, MOST_GROUPS};

/// What samples show of the groups of a mapping: which have memory.
pub(crate) struct Groups {
    present: [u8; MOST_GROUPS as usize],
    all: [u8; MOST_GROUPS as usize],
}

impl Default for Groups {
    fn default() -> Self {
        Self { present: [0; MOST_GROUPS as usize], all: [0; MOST_GROUPS as usize] }
    }
}

impl Groups {
    /// Notes a sample.
    pub(crate) fn note(&mut self, group: usize, is_present: bool) {
        if let (Some(present), Some(all)) = (self.present.get_mut(group), self.all.get_mut(group)) {
            *present = present.saturating_add(u8::from(is_present));
            *all = all.saturating_add(1);
        }
    }

    fn has_memory(&self, group: usize) -> bool {
        self.present.get(group).is_some_and(|present| *present > 0)
    }

    /// How many of `slots` slots of a group have no memory, as far as samples tell.
    fn absent(&self, group: usize, slots: usize) -> usize {
        match (self.present.get(group), self.all.get(group)) {
            (Some(&present), Some(&all)) if all > 0 => slots - slots * usize::from(present) / usize::from(all),
            _ => slots,
        }
    }

    /// How many slots at the end of full groups were not seen to be used densely, if of those with memory `filled` of
    /// `peeks` are.
    pub(crate) fn waiting(&self, known: &Known, filled: usize, peeks: usize) -> usize {
        let unused = |group: usize| {
            let slots = known.rest_slots(group);
            let there = slots - self.absent(group, slots);
            slots - there * filled / peeks.max(1)
        };
        (0..known.groups()).filter(|group| known.is_full(*group)).map(unused).sum()
    }
}

impl<S: Sys> Space<S> {
    /// Advises the groups that the program uses to their end, and those beside them, as far as the budget goes.
    pub(crate) fn advise_near(&self, known: &mut Known, seen: &Groups) {
        let groups = known.groups();
        let used = (0..groups).filter(|group| seen.has_memory(*group));
        let is_beside = |group: &usize| seen.has_memory(group.wrapping_sub(1)) || seen.has_memory(group + 1);
        let beside = (0..groups).filter(|group| !seen.has_memory(*group)).filter(is_beside);
        self.fill_groups(known, used.chain(beside), seen);
    }

    /// The same for the ends of a mapping that is not used yet.
    pub(crate) fn advise_ends(&self, known: &mut Known) {
        let last = known.groups() - 1;
        let ends = [last, 0, last.saturating_sub(1), 1];
        self.fill_groups(known, ends.into_iter().filter(|group| *group <= last), &Groups::default());
    }

    fn fill_groups(&self, known: &mut Known, groups: impl Iterator<Item = usize>, seen: &Groups) {
        for group in groups {
            if known.is_full(group) || known.depth == known.most() {
                continue;
            }
            let absent = seen.absent(group, known.rest_slots(group));
            let granted = self.budget.charge_up_to(absent);
            if granted < absent {
                return self.budget.discharge(granted);
            }
            known.charged += granted;
            known.full |= 1 << group;
            known.rest(group).for_each(|piece| self.sys.huge(piece, Huge::Advised));
        }
    }
}
