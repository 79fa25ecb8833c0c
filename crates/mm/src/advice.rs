//! Mappings that stay with the kernel, at the program's own addresses: memory committed inside a reservation.
//!
//! Large ones get huge-page advice, as far as the budget goes, with one slot in 32 left out. How densely the program
//! uses a mapping is looked at from time to time: in the slots left out, page by page; in the others by their
//! content, which shows nothing where the program writes zeroes. A mapping that is used densely is advised
//! throughout and no longer charged; one that is used sparsely gets no more advice.
//!
//! The program may unmap such memory at any time by ways that are not seen here, so it is only ever read by means
//! that cannot fault, and never written.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, SLOT_PAGES, Span};

use crate::knobs::Knob;
use crate::progress::Progress;
use crate::space::Space;
use crate::stats::Counter;
use crate::warmth::LARGE;
use crate::watched::{ADVICE_PATIENCE, KNOWN, Known, Use};

/// Slots from which a mapping is worth it.
const LEAST_SLOTS: usize = 2;
/// Where a mapping continues one that is used densely, one slot is charged for so many.
const TRUSTED_SHARE: usize = 4;
/// One slot in so many is left without advice.
const LEFT_OUT: usize = 32;
/// Slots of either kind that are enough to tell.
const ENOUGH: usize = 2;
/// Slots looked at by their content in one look.
const SAMPLES: usize = 256;
/// Slots with memory whose content is looked at in one look.
const PEEKS: usize = 16;
/// Pages looked at in each.
const SAMPLED_PAGES: usize = 8;
/// Time between looks.
const LOOK_US: u64 = 5_000;

impl<S: Sys> Space<S> {
    /// The program has mapped readable, writable private anonymous memory at an address of its own.
    pub fn committed(&self, span: Span) {
        let inner = span.aligned_inside(SLOT);
        if inner.bytes() / SLOT < LEAST_SLOTS || !self.knobs.is_on(Knob::Ahead) {
            return;
        }
        // The background thread may not have had a processor for a while: what it would see gives room now.
        self.look_at_all();
        let cold = inner.bytes() >= LARGE * SLOT && self.finds_cold();
        let mut advices = self.advices.lock();
        let trusted = |k: &Known| k.use_ == Use::Dense || k.use_ == Use::Unknown && k.share > 1;
        let beside = |k: &Known| k.span.end == inner.start || inner.end == k.span.start;
        let share =
            if advices.known.iter().flatten().any(|k| beside(k) && trusted(k)) { TRUSTED_SHARE } else { 1 };
        let mut known = Known { span: inner, advised: inner.start, charged: 0, share, use_: Use::Unknown };
        if !cold {
            self.advise_known(&mut known);
        }
        let place = advices.known.iter().position(Option::is_none).unwrap_or(advices.next % KNOWN);
        if let Some(old) = advices.known[place].replace(known) {
            self.budget.discharge(old.charged);
        }
        advices.next = place + 1;
        advices.quiet = 0;
        drop(advices);
        self.want_worker();
    }

    /// The program has unmapped, replaced or emptied `span`, outside the arena.
    pub fn uncommitted(&self, span: Span) {
        if span.bytes() < SLOT {
            return;
        }
        let mut advices = self.advices.lock();
        for known in &mut advices.known {
            if let Some(k) = known
                && !k.span.clip(span).is_empty()
            {
                self.budget.discharge(k.charged);
                *known = None;
            }
        }
    }

    /// Advises as much more of a mapping as the budget allows.
    fn advise_known(&self, known: &mut Known) {
        let wanted = (known.span.end - known.advised) / SLOT;
        let granted = match known.use_ {
            Use::Dense => wanted,
            Use::Sparse => 0,
            Use::Unknown => {
                let charged = self.budget.charge_up_to(wanted.div_ceil(known.share));
                known.charged += charged;
                wanted.min(charged * known.share)
            }
        };
        if granted == 0 {
            return;
        }
        let part = Span::new(known.advised, granted * SLOT);
        known.advised = part.end;
        if known.use_ == Use::Dense {
            self.sys.huge(part, Huge::Advised);
        } else {
            let mut from = part.start;
            for sample in known.left_out().filter(|s| part.contains(s.start)) {
                if from < sample.start {
                    self.sys.huge(Span { start: from, end: sample.start }, Huge::Advised);
                }
                from = sample.end;
            }
            if from < part.end {
                self.sys.huge(Span { start: from, end: part.end }, Huge::Advised);
            }
        }
        self.shard(0).count(Counter::BytesAdvised, part.bytes());
    }

    /// Looks at how the advised mappings are used.
    pub(crate) fn advice_step(&self) -> Progress {
        let mut advices = self.advices.lock();
        if advices.quiet >= ADVICE_PATIENCE {
            return Progress::Idle;
        }
        advices.quiet += 1;
        drop(advices);
        if self.look_at_all() {
            self.advices.lock().quiet = 0;
        }
        Progress::Wait(LOOK_US)
    }

    /// Looks at every known mapping; whether anything came of it. The looks themselves take long and no lock.
    fn look_at_all(&self) -> bool {
        let mut changed = false;
        for place in 0..KNOWN {
            let Some(seen) = self.advices.lock().known[place] else { continue };
            let use_ = if seen.use_ == Use::Unknown { self.look(&seen) } else { seen.use_ };
            let cold = use_ != Use::Sparse && seen.span.bytes() >= LARGE * SLOT && self.finds_cold();
            let mut advices = self.advices.lock();
            // The program may have unmapped it meanwhile, or somebody else may have looked.
            let same = |k: &&mut Known| k.span == seen.span && k.use_ == seen.use_;
            if let Some(known) = advices.known[place].as_mut().filter(same) {
                changed |= self.learn(known, use_, cold);
            }
        }
        changed
    }

    /// What follows from the use that was seen, and from whether huge pages are cold; whether anything does.
    fn learn(&self, known: &mut Known, use_: Use, cold: bool) -> bool {
        let news = known.use_ != use_;
        known.use_ = use_;
        let advised = Span { start: known.span.start, end: known.advised };
        match use_ {
            Use::Dense if news => {
                self.budget.discharge(core::mem::take(&mut known.charged));
                self.sys.huge(advised, Huge::Advised);
            }
            // What is not touched yet shall stay small.
            Use::Sparse if news => self.sys.huge(advised, Huge::Refused),
            _ => {}
        }
        let before = known.advised;
        match cold {
            false => self.advise_known(known),
            // The program gets small pages where it has none yet, and advice once huge ones are warm again.
            true if before > known.span.start => {
                self.sys.huge(Span { start: known.span.start, end: before }, Huge::Refused);
                self.budget.discharge(core::mem::take(&mut known.charged));
                known.advised = known.span.start;
            }
            true => {}
        }
        news || before != known.advised
    }

    /// How the program uses what has been advised, as far as it can be told by now.
    fn look(&self, known: &Known) -> Use {
        let advised = Span { start: known.span.start, end: known.advised };
        let (mut dense, mut sparse) = (0, 0);
        for slot in known.left_out().filter(|s| advised.contains(s.start)) {
            match self.sys.present_pages(slot) {
                0 => {}
                n if n >= SLOT_PAGES * 3 / 4 => dense += 1,
                n if n <= SLOT_PAGES / 4 => sparse += 1,
                _ => {}
            }
        }
        let slots = advised.bytes() / SLOT;
        let (mut filled, mut present) = (0, 0);
        for i in (1..slots).step_by((slots / SAMPLES).max(1)) {
            let slot = Span::new(advised.start + i * SLOT, SLOT);
            if present < PEEKS && self.sys.present(slot.start) {
                present += 1;
                filled += (self.sys.peek_nonzero_pages(slot, SAMPLED_PAGES) * 2 >= SAMPLED_PAGES) as usize;
            }
        }
        if dense > 4 * sparse && dense >= ENOUGH || filled * 4 > present * 3 && filled >= ENOUGH * 2 {
            Use::Dense
        } else if sparse > dense && sparse >= ENOUGH * 2 {
            Use::Sparse
        } else {
            Use::Unknown
        }
    }
}

impl Known {
    /// The slots that stay without advice until the mapping is seen to be used densely.
    fn left_out(&self) -> impl Iterator<Item = Span> + use<> {
        let span = self.span;
        (span.start + LEFT_OUT / 2 * SLOT..span.end).step_by(LEFT_OUT * SLOT).map(|at| Span::new(at, SLOT))
    }
}
