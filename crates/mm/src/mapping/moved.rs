//! Mappings that the kernel has moved (`mremap`): what is noted of their slots moves along.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::space::Space;

impl<S: Sys> Space<S> {
    /// What was brought to `from`, and is noted there still, has moved to `to`, slot by slot or not. It stays charged.
    fn carry_charges(&self, from: Span, to: Span) {
        let slots = self.program().slots;
        let lent = self.lent_in(from).filter(|&i| slots.has(i, flag::CHARGED));
        for i in lent {
            let part = self.program().slot(i).clip(from);
            let e = Extent::around(moved_place(part, from, to));
            if e.is_empty() || !self.note_slots(e) {
                continue;
            }
            for j in e.slots().filter(|&j| self.begin_use(Extent::one(j))) {
                self.budget.charge(1);
                slots.mark(j, flag::CHARGED | flag::FRESH | flag::TAINTED);
                slots.set(j, State::Mapped);
            }
        }
    }

    /// The kernel has moved the program's mapping `from` to `to`, as far as it fits there.
    pub fn moved(&self, from: Span, to: Span) {
        const KNOWN: [u32; 5] = [flag::ADVISED, flag::FRESH, flag::CHARGED, flag::AHEAD, flag::TAINTED];
        let slots = self.program().slots;
        self.forget(to);
        let e = Extent::inside(Span::new(from.start, from.bytes().min(to.bytes())));
        let first = Slot::around((to.start + self.program().span(e).start).wrapping_sub(from.start));
        let has_notes = || self.noted(e).flat_map(Extent::slots).any(|i| slots.state(i) == State::Mapped);
        let fits = to.start % SLOT == from.start % SLOT;
        if fits && has_notes() && self.note_slots(Extent { first, n: e.n }) {
            for i in self.noted(e).flat_map(Extent::slots) {
                let j = first + (i - e.first);
                if slots.state(i) != State::Mapped || !self.begin_use(Extent::one(j)) {
                    continue;
                }
                if self.end_use(i) {
                    let known = |all, one| if slots.has(i, one) { all | one } else { all };
                    slots.mark(j, KNOWN.into_iter().fold(0, known));
                    slots.set(j, State::Mapped);
                    self.wipe(i);
                } else {
                    slots.set(j, State::Unbacked);
                }
            }
        }
        self.carry_charges(from, to);
        self.forget(from);
    }
}

/// Where `part` of `from` is after the kernel has moved it to `to`, as far as it fits there.
pub(crate) fn moved_place(part: Span, from: Span, to: Span) -> Span {
    Span::new(to.start + (part.start - from.start), part.bytes()).clip(to)
}
