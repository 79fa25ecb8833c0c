//! Mappings that stay with the kernel, at the program's own addresses: memory committed inside a reservation.
//!
//! Large ones get huge-page advice, as far as the budget goes. Where the program begins is not known: a JVM allocates
//! from the end of its heap, or from two thirds on. So a mapping is divided into groups, and each group gets the same
//! part of the budget. One slot of each group is left out. From time to time a look finds out how densely the program
//! uses a mapping: page by page in the slots left out, by the content in the others. Content shows nothing where the
//! program writes zeroes. A mapping that is used densely is advised throughout and no longer charged; one that is
//! used sparsely gets no more advice.
//!
//! The program may unmap such memory at any time by ways that are not seen here, so it is only ever read by means
//! that cannot fault, and never written.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, SLOT_PAGES, Span, UNIT};

use crate::mapping::{moved_place, slots_around};
use crate::predict::huge_cost::LARGE;
use crate::space::Space;
use crate::space::account::SAMPLED_PAGES;
use crate::space::progress::Progress;
use crate::space::watched::{ADVICE_PATIENCE, KNOWN, Known, Use};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

/// Slots from which a mapping is worth it.
const LEAST_SLOTS: usize = 2;
/// Where a mapping continues one that is used densely, one slot is charged for this many.
const TRUSTED_SHARE: usize = 4;
/// Least slots of a group, most groups of a mapping, and most groups of all. A group is up to three areas to the
/// kernel, and a program may have 65 530.
const GROUP: usize = 32;
const MOST_GROUPS: usize = 64;
const GROUPS_OF_ALL: usize = 128;
/// Slots of either kind that are enough to tell.
const ENOUGH: usize = 2;
/// Slots looked at by their content in one look.
const SAMPLES: usize = 256;
/// Slots with memory whose content is looked at in one look.
const PEEKS: usize = 16;
const LOOK_US: u64 = 5_000;

impl<S: Sys> Space<S> {
    /// The program has mapped readable, writable private anonymous memory at an address of its own.
    pub fn committed(&self, span: Span) {
        let inner = span.aligned_inside(SLOT);
        if inner.bytes() / SLOT < LEAST_SLOTS || !self.knobs.is_on(Knob::Ahead) || self.is_looked_at() {
            return;
        }
        // The background thread may not have had a processor for a while: what it would see gives room now.
        self.look_at_all(true);
        let cold = inner.bytes() >= LARGE * SLOT && self.finds_cold();
        let Some(mut advices) = self.advices.lock_soon() else { return };
        let trusted = |k: &Known| !k.cut && (k.use_ == Use::Dense || k.use_ == Use::Unknown && k.share > 1);
        // One that counts stays: its huge pages do.
        let Some(place) = advices.place(|_| true) else { return };
        let beside = |k: &Known| k.span.end == inner.start || inner.end == k.span.start;
        let share =
            if advices.known.iter().flatten().any(|k| beside(k) && trusted(k)) { TRUSTED_SHARE } else { 1 };
        let others: usize = advices.known.iter().flatten().map(Known::groups).sum();
        let most_groups = GROUPS_OF_ALL.saturating_sub(others).clamp(1, MOST_GROUPS);
        let (use_, refused, cut) = (Use::Unknown, false, false);
        let mut known = Known { span: inner, most_groups, depth: 0, charged: 0, share, use_, refused, cut };
        if !cold {
            self.advise_known(&mut known);
        }
        self.committed.0.fetch_min(inner.start, Relaxed);
        self.committed.1.fetch_max(inner.end, Relaxed);
        advices.known[place] = Some(known);
        advices.next = place + 1;
        advices.quiet = 0;
        drop(advices);
        self.want_worker();
    }

    /// The program drops the content of `span`. Where it used memory densely, that says nothing of what it does next: it
    /// begins anew.
    pub fn emptied(&self, span: Span) {
        let span = span.aligned_inside(SLOT);
        if !self.may_have_committed(span) {
            return;
        }
        let Some(mut advices) = self.advices.lock_soon() else { return };
        for place in 0..KNOWN {
            let Some(known) = advices.known[place].filter(|k| !k.cut) else { continue };
            let part = known.span.clip(span);
            let is_all = part == known.span;
            let is_trusted = known.use_ == Use::Dense || is_all && known.share > 1;
            if part.is_empty() || !is_trusted {
                continue;
            }
            let others = advices.known.iter().enumerate().filter(|(other, _)| *other != place);
            let has_begun = |k: &Known| !k.cut && k.span.clip(part) == part;
            if others.filter_map(|(_, known)| *known).any(|k| has_begun(&k)) {
                continue;
            }
            self.sys.huge(part, Huge::Refused);
            let at = if is_all { Some(place) } else { advices.place(|k| k.use_ != Use::Dense) };
            let Some(at) = at else { continue };
            self.budget.discharge(if is_all { known.charged } else { 0 });
            let mut again = Known { span: part, depth: 0, charged: 0, share: 1, use_: Use::Unknown, ..known };
            self.advise_known(&mut again);
            advices.known[at] = Some(again);
            advices.quiet = 0;
            self.want_worker();
        }
    }

    /// The slots of a mapping that have memory, as far as those count: parts of it may be unmapped.
    fn left_of(&self, known: &Known) -> usize {
        let pieces =
            |slot: usize| (slot..slot + SLOT).step_by(UNIT).map(|at| Span::new(at, UNIT).clip(known.span));
        let is_there = |piece: Span| !piece.is_empty() && self.sys.present_pages(piece) > 0;
        let first = known.span.start / SLOT * SLOT;
        let slots = (first..known.span.end).step_by(SLOT).filter(|slot| pieces(*slot).any(is_there));
        slots.take(known.charged).count()
    }

    /// The program has unmapped or replaced `span`, outside the arena.
    pub fn uncommitted(&self, span: Span) {
        if !self.may_have_committed(span) {
            return;
        }
        let Some(mut advices) = self.advices.lock_soon() else { return };
        for known in &mut advices.known {
            let Some(k) = known.as_mut().filter(|k| !k.span.clip(span).is_empty()) else { continue };
            let (before, was_cut) = (k.charged, k.cut);
            k.lose(span);
            // Holes are not noted.
            k.charged = if was_cut { self.left_of(k) } else { k.charged };
            self.budget.discharge(before - k.charged);
            if k.charged == 0 {
                *known = None;
            }
        }
    }

    /// The kernel has moved memory of the program's from `from` to `to`: what is charged for it stays so.
    pub fn carried(&self, from: Span, to: Span) {
        if !self.may_have_committed(from) {
            return;
        }
        let Some(mut advices) = self.advices.lock_soon() else { return };
        for place in 0..KNOWN {
            let Some(mut left) = advices.known[place] else { continue };
            let part = left.span.clip(from);
            if part.is_empty() {
                continue;
            }
            let span = moved_place(part, from, to);
            let mut moved = Known { span, charged: left.charged.min(slots_around(span).n), cut: true, ..left };
            left.lose(part);
            if left.span.is_empty() {
                left = moved;
                moved.charged = 0;
            }
            let free = advices.known.iter().position(Option::is_none);
            if moved.charged > 0 && free.is_none() {
                // It counts as a whole where it was.
                left = Known { cut: true, ..advices.known[place].expect("known just now") };
            }
            self.committed.0.fetch_min(span.start, Relaxed);
            self.committed.1.fetch_max(span.end, Relaxed);
            let before = advices.known[place].map_or(0, |known| known.charged);
            advices.known[place] = Some(left).filter(|known| known.charged > 0);
            let mut after = left.charged;
            if let Some(free) = free.filter(|_| moved.charged > 0) {
                advices.known[free] = Some(moved);
                after += moved.charged;
            }
            self.budget.charge(after.saturating_sub(before));
            self.budget.discharge(before.saturating_sub(after));
        }
    }

    /// Whether a mapping of which parts are known lies, or ever lay, near `span`. Takes no lock.
    pub fn may_have_committed(&self, span: Span) -> bool {
        span.end > self.committed.0.load(Relaxed) && span.start < self.committed.1.load(Relaxed)
    }

    /// Advises as much more of a mapping as the budget allows.
    fn advise_known(&self, known: &mut Known) {
        let before = known.depth;
        let most = known.most();
        match known.use_ {
            _ if before == most => return,
            Use::Sparse => return,
            Use::Dense => {
                (known.depth, known.refused) = (most, false);
                self.sys.huge(known.span, Huge::Advised);
            }
            Use::Unknown => {
                let cost = |depth: usize| (depth * known.groups()).div_ceil(known.share);
                let granted = self.budget.charge_up_to(cost(most - before));
                let more = (granted * known.share / known.groups()).min(most - before);
                self.budget.discharge(granted - cost(more));
                known.charged += cost(more);
                known.depth += more;
                known.pieces(before, known.depth).for_each(|piece| self.sys.huge(piece, Huge::Advised));
            }
        }
        self.shard(0).count(Counter::BytesAdvised, known.bytes(before, known.depth));
    }

    /// Looks at how the advised mappings are used.
    pub(crate) fn advice_step(&self) -> Progress {
        let Some(mut advices) = self.advices.lock_soon() else { return Progress::Wait(LOOK_US) };
        if advices.quiet >= ADVICE_PATIENCE {
            return Progress::Idle;
        }
        advices.quiet += 1;
        // Each touch to see whether memory is cold is one for nothing.
        let probes = advices.quiet.is_power_of_two();
        drop(advices);
        if self.look_at_all(probes) {
            let _ = self.advices.lock_soon().map(|mut advices| advices.quiet = 0);
        }
        Progress::Wait(LOOK_US)
    }

    /// Looks at every known mapping; whether anything came of it. The looks themselves take long and no lock.
    fn look_at_all(&self, probes: bool) -> bool {
        let mut changed = false;
        for place in 0..KNOWN {
            let seen = self.advices.lock_soon().and_then(|advices| advices.known[place]);
            let Some(seen) = seen.filter(|known| !known.cut) else { continue };
            let is_known = || {
                let advices = self.advices.lock_soon();
                advices.is_some_and(|advices| advices.known[place].is_some_and(|known| known.span == seen.span))
            };
            let look = || if seen.use_ == Use::Unknown { self.look(&seen) } else { seen.use_ };
            let Some(use_) = self.busy.enter(seen.span, is_known, look) else { continue };
            let cold = use_ != Use::Sparse
                && seen.span.bytes() >= LARGE * SLOT
                && if probes { self.finds_cold() } else { self.huge_cost.is_cold(self.now_ms()) == Some(true) };
            let Some(mut advices) = self.advices.lock_soon() else { continue };
            // The program may have unmapped it meanwhile, or another thread may have looked.
            let same = |k: &&mut Known| k.span == seen.span && k.use_ == seen.use_ && !k.cut;
            if let Some(known) = advices.known[place].as_mut().filter(same) {
                changed |= self.busy.enter(seen.span, || true, || self.learn(known, use_, cold)) == Some(true);
            }
        }
        changed
    }

    /// Acts on the use that was seen, and on whether huge pages are cold; whether anything changed.
    fn learn(&self, known: &mut Known, use_: Use, cold: bool) -> bool {
        let news = known.use_ != use_;
        known.use_ = use_;
        // All of it, so that it is one area again.
        let refuse = |known: &mut Known| {
            known.refused = true;
            self.sys.huge(known.span, Huge::Refused);
        };
        match use_ {
            Use::Dense if news => {
                self.budget.discharge(core::mem::take(&mut known.charged));
                // The slots left out are advised too.
                if known.depth == known.most() && !known.refused {
                    self.sys.huge(known.span, Huge::Advised);
                }
            }
            // Memory that is not touched yet shall get small pages.
            Use::Sparse if news && known.depth > 0 => refuse(known),
            _ => {}
        }
        let before = (known.depth, known.refused);
        match cold {
            // The program gets small pages where it has none yet, and huge ones once these are warm again. What it has
            // it keeps, so that counts.
            true if known.depth > 0 && !known.refused => refuse(known),
            true => {}
            false => {
                if known.refused && use_ != Use::Sparse {
                    known.refused = false;
                    known.pieces(0, known.depth).for_each(|piece| self.sys.huge(piece, Huge::Advised));
                }
                self.advise_known(known);
            }
        }
        news || before != (known.depth, known.refused)
    }

    /// How the program uses a mapping, as far as it can be told by now.
    fn look(&self, known: &Known) -> Use {
        let (mut dense, mut sparse) = (0, 0);
        for slot in known.left_out() {
            match self.sys.present_pages(slot) {
                0 => {}
                n if n >= SLOT_PAGES * 3 / 4 => dense += 1,
                n if n <= SLOT_PAGES / 4 => sparse += 1,
                _ => {}
            }
        }
        let slots = known.slots();
        let (mut filled, mut present) = (0, 0);
        for i in (1..slots).step_by((slots / SAMPLES).max(1)) {
            let slot = Span::new(known.span.start + i * SLOT, SLOT);
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
    /// The program has given up `gone`. What is left of a front or a back counts for its slots at most.
    fn lose(&mut self, gone: Span) {
        let span = self.span;
        if gone.start <= span.start {
            self.span.start = gone.end.min(span.end);
        }
        if gone.end >= span.end {
            self.span.end = gone.start.max(self.span.start);
        }
        self.cut = true;
        self.charged = self.charged.min(slots_around(self.span).n);
    }

    fn slots(&self) -> usize {
        self.span.bytes() / SLOT
    }

    fn group(&self) -> usize {
        self.slots().div_ceil(self.most_groups).max(GROUP)
    }

    /// The depth at which all but what is left out is advised.
    fn most(&self) -> usize {
        self.group().min(self.slots())
    }

    fn groups(&self) -> usize {
        self.slots().div_ceil(self.group())
    }

    /// The slots that stay without advice until the mapping is seen to be used densely: one of each group.
    fn left_out(&self) -> impl Iterator<Item = Span> + use<> {
        let (span, group) = (self.span, self.group());
        (span.start + group / 2 * SLOT..span.end).step_by(group * SLOT).map(|at| Span::new(at, SLOT))
    }

    /// The addresses of slots `from` to `to` of each group, without those left out.
    fn pieces(&self, from: usize, to: usize) -> impl Iterator<Item = Span> + use<> {
        let (span, group) = (self.span, self.group());
        let between = move |start: usize, from: usize, to: usize| {
            Span { start: start + from * SLOT, end: start + to * SLOT }.clip(span)
        };
        (span.start..span.end)
            .step_by(group * SLOT)
            .flat_map(move |start| {
                let left_out = group / 2;
                [between(start, from, to.min(left_out)), between(start, from.max(left_out + 1), to)]
            })
            .filter(|piece| !piece.is_empty())
    }

    fn bytes(&self, from: usize, to: usize) -> usize {
        self.pieces(from, to).map(|piece| piece.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::PAGE;
    use std::vec::Vec;

    fn known(slots: usize) -> Known {
        let (span, most_groups) = (Span::new(0, slots * SLOT), MOST_GROUPS);
        let (use_, refused, cut) = (Use::Unknown, false, false);
        Known { span, most_groups, depth: 0, charged: 0, share: 1, use_, refused, cut }
    }

    /// Which slots `spans` cover, each once.
    fn covered(slots: usize, spans: impl Iterator<Item = Span>) -> Vec<bool> {
        let mut seen = std::vec![false; slots];
        for i in spans.flat_map(|s| s.start / SLOT..s.end / SLOT) {
            assert!(!core::mem::replace(&mut seen[i], true), "slot {i} twice");
        }
        seen
    }

    #[test]
    fn the_pieces_of_all_depths_and_what_is_left_out_are_the_whole_mapping() {
        for slots in [2, 16, 17, 31, 32, 33, 100, 2048, 2049, 5000] {
            let k = known(slots);
            let most = k.most();
            assert!(k.groups() <= MOST_GROUPS);
            for cut in [0, 1, most / 2, most / 2 + 1, most] {
                let pieces = k.pieces(0, cut).chain(k.pieces(cut, most));
                let seen = covered(slots, pieces.chain(k.left_out()));
                assert!(seen.iter().all(|&s| s), "{slots} slots, cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_left_of_a_mapping_counts_for_its_slots_at_most() {
        let counts = |parts: &[(usize, usize)]| {
            let mut k = Known { charged: 6, ..known(8) };
            parts.iter().for_each(|&(start, end)| k.lose(Span { start: start * PAGE, end: end * PAGE }));
            assert!(k.cut);
            k.charged
        };
        let slot = SLOT_PAGES;
        assert_eq!(counts(&[(0, slot)]), 6);
        assert_eq!(counts(&[(0, 5 * slot)]), 3);
        assert_eq!(counts(&[(0, 5 * slot - 1)]), 4, "a page of the fifth is left");
        assert_eq!(counts(&[(7 * slot, 8 * slot), (0, 6 * slot)]), 1);
        assert_eq!(counts(&[(slot, 7 * slot)]), 6, "the front and the back are not told apart");
        assert_eq!(counts(&[(0, 8 * slot)]), 0);
    }

    #[test]
    fn every_part_of_a_large_mapping_gets_some_advice() {
        let k = known(1536);
        let seen = covered(1536, k.pieces(0, 8));
        assert!(seen.chunks(96).all(|part| part.iter().filter(|&&s| s).count() == 24));
    }
}
