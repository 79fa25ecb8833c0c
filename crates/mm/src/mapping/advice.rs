//! Mappings that stay with the kernel, at the program's own addresses: memory committed inside a reservation.
//!
//! Large ones get huge-page advice, as far as the budget goes, in groups that leave one slot out each
//! (`state/known.rs`). From time to time a look finds out how densely the program uses a mapping: page by page in the
//! slots left out, by the content in the others. Content shows nothing where the program writes zeroes, so only the
//! slots left out can tell that use is sparse. What is used densely is no longer charged, and gives room for more
//! advice. A mapping of which much was used densely is trusted beyond the budget; one that is used sparsely gets no
//! more advice.
//!
//! The program may unmap such memory at any time by ways that are not seen here, so it is only ever read by means
//! that cannot fault, and never written.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, SLOT_PAGES, Span, UNIT};

use crate::mapping::moved::moved_place;
use crate::mapping::near::Groups;
use crate::predict::huge_cost::LARGE;
use crate::space::Space;
use crate::space::account::SAMPLED_PAGES;
use crate::space::progress::Progress;
use crate::state::advices::{Emptying, KNOWN};
use crate::state::announced::expected;
use crate::state::known::{Known, LeftOut, MOST_PARTS, Use, count};
use faultless_page::stats::Counter;

/// Slots from which a mapping is worth it.
const LEAST_SLOTS: usize = 2;
/// Where a mapping continues those that earned trust, one slot is charged for this many.
const TRUSTED_SHARE: u8 = 4;
/// Slots of either kind that are enough to tell.
const ENOUGH: usize = 2;
/// Slots looked at in one look.
const SAMPLES: usize = 256;
/// Slots with memory whose content is looked at in one look.
const PEEKS: usize = 16;
/// Time between two looks, at least and at most.
const LOOK_US: u64 = 5_000;
const LOOK_MOST_US: u64 = 100_000;
/// A look takes one part of the time in so many.
const LOOK_SHARE: u64 = 20;
/// One part of the budget in so many is for where the program begins in its mappings.
const BEGINS: usize = 4;
/// Slots that the program's thread looks at where a part was unmapped.
const LEFT_SLOTS: usize = 64;

impl<S: Sys> Space<S> {
    /// The program has mapped readable, writable private anonymous memory at an address of its own.
    pub fn committed(&self, span: Span) {
        let inner = span.aligned_inside(SLOT);
        if inner.bytes() / SLOT < LEAST_SLOTS || !self.goes_ahead() || self.is_looked_at() {
            return;
        }
        // The background thread may not have had a processor for a while: what it would see gives room now.
        self.look_at_all(true);
        let told = expected(inner.bytes() / SLOT, 0);
        self.announce(told);
        let cold = inner.bytes() >= LARGE * SLOT && self.finds_cold();
        let Some(mut table) = self.advices.lock() else { return };
        let Some(place) = table.place(|_| true).or_else(|| table.join()) else { return };
        let unused = inner.bytes() / SLOT + table.on_trust();
        let share = if self.budget.trusts(table.used_beside(inner), unused) { TRUSTED_SHARE } else { 1 };
        let groups = table.all().map(Known::groups).sum();
        self.advices.widen(inner);
        let number = table.number();
        let mut known = Known::new(number, inner, share, groups);
        known.told = count(told);
        let trusted = table.on_trust();
        table.set(place, known, &self.budget);
        if let Some(known) = table.at_mut(place).filter(|_| !cold) {
            self.advise_known(known, trusted, None);
        }
        table.note_new(place);
        drop(table);
        self.want_worker();
    }

    /// The program drops the content of `span`. Where it used memory densely, that says nothing of what it does next: it
    /// begins anew. The caller keeps the answer until the content is gone, so that no thread takes it for new content.
    pub fn emptied(&self, span: Span) -> Emptying<'_> {
        let span = span.aligned_inside(SLOT);
        if !self.may_have_committed(span) || self.is_looked_at() {
            return Emptying::nothing();
        }
        let emptying = self.advices.begin_emptying();
        let Some(mut table) = self.advices.lock() else { return emptying };
        for place in 0..KNOWN {
            let Some(known) = table.at(place).filter(|k| !k.cut) else { continue };
            let part = known.span.clip(span);
            let is_all = part == known.span;
            let is_trusted = known.use_ == Use::Dense || is_all && known.share > 1;
            // By itself, inside of this one.
            let has_begun = |k: &Known| !k.cut && k.span.clip(part) == part && known.span.clip(k.span) == k.span;
            let others = || (0..KNOWN).filter(|other| *other != place).filter_map(|other| table.at(other));
            if part.is_empty() || !is_trusted || others().any(|k| has_begun(&k)) {
                continue;
            }
            // A part that begins anew is areas of its own, so few do.
            let at = match is_all {
                true => Some(place),
                false if known.parts < MOST_PARTS => table.place(|k| k.use_ != Use::Dense),
                false => None,
            };
            let number = table.number();
            if let Some(known) = table.at_mut(place) {
                known.parts = known.parts.saturating_add(u8::from(!is_all));
                if at.is_none() {
                    // Small pages from now on; what is there stays.
                    (known.number, known.use_) = (number, Use::Sparse);
                    self.refuse(known);
                }
            }
            if let Some(at) = at {
                self.sys.huge(part, Huge::Refused);
                table.set(at, known.again(number, part), &self.budget);
                let trusted = table.on_trust();
                if let Some(again) = table.at_mut(at) {
                    self.advise_known(again, trusted, None);
                }
            }
            table.note_change();
            self.want_worker();
        }
        emptying
    }

    /// The slots of a mapping that have memory, as far as those count: parts of it may be unmapped. All may have in one
    /// that is too large to look at while the program waits.
    fn left_of(&self, known: &Known) -> usize {
        if known.slots() > LEFT_SLOTS {
            return known.charged;
        }
        let pieces =
            |slot: usize| (slot..slot + SLOT).step_by(UNIT).map(|at| Span::new(at, UNIT).clip(known.span));
        let is_there = |piece: Span| !piece.is_empty() && self.sys.present_pages(piece) > 0;
        let first = known.span.start / SLOT * SLOT;
        let slots = (first..known.span.end).step_by(SLOT).filter(|slot| pieces(*slot).any(is_there));
        slots.take(known.charged).count()
    }

    /// `span` with the mappings there of which parts are known; `None`: there are none.
    pub(crate) fn known_around(&self, span: Span) -> Option<Span> {
        if !self.may_have_committed(span) {
            return None;
        }
        let table = self.advices.lock()?;
        let meeting = table.all().map(|known| known.span).filter(|known| !known.clip(span).is_empty());
        meeting.fold(None, |all, known| {
            let all = all.unwrap_or(span);
            Some(Span { start: all.start.min(known.start), end: all.end.max(known.end) })
        })
    }

    /// One of the mappings of which something is known.
    pub(crate) fn any_known(&self) -> Option<Span> {
        self.advices.lock()?.all().map(|known| known.span).next()
    }

    /// The program has unmapped or replaced `span`, outside the arena.
    pub fn uncommitted(&self, span: Span) {
        if !self.may_have_committed(span) {
            return;
        }
        let Some(mut table) = self.advices.lock() else { return };
        for place in 0..KNOWN {
            let Some(known) = table.at(place).filter(|k| !k.span.clip(span).is_empty()) else { continue };
            if let (Some((front, back)), Some(free)) = (known.split_before(span), table.free()) {
                // First what is new: at no time does it look like the program's own.
                table.set(free, back, &self.budget);
                table.set(place, front, &self.budget);
                table.note_change();
                continue;
            }
            let mut left = known.without(span);
            if known.cut {
                // Holes are not noted.
                left.charged = self.left_of(&left);
            }
            table.set(place, left, &self.budget);
        }
    }

    /// The program says itself whether huge pages come to `span`, which is outside the arena: what was advised there
    /// counts on, and gets no more advice. Beside `span` small pages come from now on: nobody will look what the program
    /// does there.
    pub fn advised_by_program(&self, span: Span) {
        if !self.may_have_committed(span) {
            return;
        }
        let Some(mut table) = self.advices.lock() else { return };
        for place in 0..KNOWN {
            if let Some(known) = table.at(place).filter(|k| !k.cut && !k.span.clip(span).is_empty()) {
                let mut known = known.only_counts_as_before();
                let front = Span { end: span.start.max(known.span.start), ..known.span };
                let back = Span { start: span.end.min(known.span.end), ..known.span };
                if known.is_advised() && !known.refused && !(front.is_empty() && back.is_empty()) {
                    let beside = [front, back].into_iter().filter(|part| !part.is_empty());
                    beside.for_each(|part| self.sys.huge(part, Huge::Refused));
                    (known.refused, known.left) = (true, LeftOut::Small);
                }
                table.set(place, known, &self.budget);
            }
        }
    }

    /// The kernel has moved memory of the program's from `from` to `to`: what is charged for it stays so.
    pub fn carried(&self, from: Span, to: Span) {
        if !self.may_have_committed(from) {
            return;
        }
        let Some(mut table) = self.advices.lock() else { return };
        for place in 0..KNOWN {
            let Some(known) = table.at(place).filter(|k| !k.span.clip(from).is_empty()) else { continue };
            let part = known.span.clip(from);
            let moved = known.only_counts(moved_place(part, from, to));
            let left = known.without(part);
            self.advices.widen(moved.span);
            if left.span.is_empty() {
                table.set(place, moved, &self.budget);
            } else if let Some(free) = table.free() {
                // First what is new: at no time does it look like the program's own.
                table.set(free, moved, &self.budget);
                table.set(place, left, &self.budget);
            } else {
                // It counts as a whole where it was.
                let counts = if moved.charged > 0 { known.only_counts_as_before() } else { left };
                table.set(place, counts, &self.budget);
            }
        }
    }

    /// Whether a mapping of which parts are known lies, or ever lay, near `span`. Takes no lock.
    pub fn may_have_committed(&self, span: Span) -> bool {
        self.advices.may_have(span)
    }

    /// Advises as much more of a mapping as the budget allows for slots without memory; the slots left out, too, where
    /// it is used densely. Others have `on_trust` slots for which nothing was charged.
    fn advise_known(&self, known: &mut Known, on_trust: usize, look: Option<&Look>) {
        if known.use_ == Use::Sparse || known.is_whole() {
            return;
        }
        let (before, most, bytes) = (known.depth, known.most(), known.advised_bytes());
        let unused = known.unused();
        let is_dense = known.use_ == Use::Dense;
        let trusted = is_dense && self.budget.trusts(known.used as usize, unused + on_trust);
        if is_dense && look.is_some() && known.left == LeftOut::Small {
            let missing = unused.saturating_sub(known.charged);
            let granted = self.budget.charge_up_to(missing);
            if granted == missing || trusted {
                known.charged += granted;
                (known.depth, known.left, known.refused) = (most, LeftOut::Advised, false);
                self.sys.huge(known.span, Huge::Advised);
            } else {
                self.budget.discharge(granted);
            }
        }
        if before == 0 && known.full == 0 {
            self.keep_whole(known.span.start);
        }
        match look.filter(|_| is_dense && !trusted) {
            Some(look) => self.advise_near(known, &look.groups),
            None => self.deepen(known, trusted),
        }
        self.program().count(Counter::BytesAdvised, known.advised_bytes().saturating_sub(bytes));
    }

    /// Advises more of each group of a mapping.
    fn deepen(&self, known: &mut Known, trusted: bool) {
        let (before, most) = (known.depth, known.most());
        if before == most {
            return;
        }
        let (slots, unused, share) = (known.slots(), known.unused(), usize::from(known.share));
        let cost = |depth: usize| (depth * known.groups() * unused).div_ceil(slots * share);
        let (all, room) = (cost(most - before), self.budget.room());
        // Some is for where the program begins.
        let kept = if trusted || all <= room { 0 } else { self.budget.limit() / BEGINS };
        let granted = self.budget.charge_up_to(all.min(room.saturating_sub(kept)));
        let affordable = granted * slots * share / (known.groups() * unused).max(1);
        let more = if trusted { most - before } else { affordable.min(most - before) };
        let paid = cost(more).min(granted);
        self.budget.discharge(granted - paid);
        known.charged += paid;
        known.depth += more;
        known.pieces(before, known.depth).for_each(|piece| self.sys.huge(piece, Huge::Advised));
        if before == 0 && known.depth < most {
            self.advise_ends(known);
        }
    }

    /// Looks at how the advised mappings are used.
    pub(crate) fn advice_step(&self) -> Progress {
        let Some(mut table) = self.advices.lock() else { return Progress::Wait(LOOK_US) };
        let Some(look) = table.begin_look() else { return Progress::Idle };
        drop(table);
        let begun = self.sys.thread_ns();
        // Each touch to see whether memory is cold is one for nothing.
        if self.look_at_all(look.is_power_of_two())
            && let Some(mut table) = self.advices.lock()
        {
            table.note_change();
        }
        let took_us = self.sys.thread_ns().saturating_sub(begun) / 1000;
        Progress::Wait((took_us * LOOK_SHARE).clamp(LOOK_US, LOOK_MOST_US))
    }

    /// Looks at every known mapping; whether anything came of it. The looks themselves take long and no lock.
    fn look_at_all(&self, probes: bool) -> bool {
        let mut changed = false;
        for place in 0..KNOWN {
            if self.is_looked_at() {
                return false;
            }
            let seen = self.advices.lock().and_then(|table| table.at(place));
            // What is used sparsely stays so: a look would tell nothing.
            let Some(seen) = seen.filter(|known| !known.cut && known.use_ != Use::Sparse) else { continue };
            if seen.use_ == Use::Unknown && self.advices.is_emptying() {
                continue;
            }
            let is_known = || {
                let known = self.advices.lock().and_then(|table| table.at(place));
                known.is_some_and(|known| known.span == seen.span)
            };
            let Some(look) = self.busy.enter(seen.span, is_known, || self.look(&seen)) else { continue };
            let (use_, told) = (look.use_, count(expected(seen.slots(), look.there)).max(seen.told));
            let cold = use_ != Use::Sparse
                && seen.span.bytes() >= LARGE * SLOT
                && if probes { self.finds_cold() } else { self.huge_cost.is_cold(self.now_ms()) == Some(true) };
            let Some(mut table) = self.advices.lock() else { continue };
            // The program may have unmapped or emptied it meanwhile, or another thread may have looked.
            let same =
                |k: &&mut Known| (k.number, k.span, k.use_) == (seen.number, seen.span, seen.use_) && !k.cut;
            let all = table.on_trust();
            if let Some(known) = table.at_mut(place).filter(same) {
                let others = all - known.on_trust();
                let learn = || self.learn(known, &look, (others, cold));
                changed |= self.busy.enter(seen.span, || true, learn) == Some(true);
                let more = told.saturating_sub(known.told);
                known.told += more;
                drop(table);
                changed |= more > 0;
                self.announce(more as usize);
            }
        }
        changed
    }

    /// Acts on the use that was seen, and on whether huge pages are cold, beside what others have on trust; whether
    /// anything changed.
    fn learn(&self, known: &mut Known, look: &Look, (on_trust, cold): (usize, bool)) -> bool {
        if self.is_looked_at() {
            return false;
        }
        let before = (known.depth, known.full, known.refused, known.left, known.use_, known.used);
        known.use_ = look.use_;
        if look.doubts && known.is_whole() {
            self.leave_out_again(known);
            known.left_out().for_each(|slot| self.sys.huge(slot, Huge::Refused));
        }
        match known.use_ {
            Use::Dense => {
                let more = count(look.used).saturating_sub(known.used);
                known.used += more;
                self.budget.note_use(more as usize, 0);
                let paid = known.charged.saturating_sub(known.waiting() + look.ends);
                known.charged -= paid;
                self.budget.discharge(paid);
            }
            // Memory that is not touched yet shall get small pages.
            Use::Sparse if known.is_advised() && !known.refused => {
                self.budget.note_use(0, 1);
                self.refuse(known);
            }
            _ => {}
        }
        match cold {
            // The program gets small pages where it has none yet, and huge ones once these are warm again. What it has
            // it keeps, so that counts.
            true if known.is_advised() && !known.refused => self.refuse(known),
            true => {}
            false if known.use_ == Use::Sparse => {}
            false => {
                if known.refused {
                    known.refused = false;
                    known.advised().for_each(|piece| self.sys.huge(piece, Huge::Advised));
                }
                self.advise_known(known, on_trust, Some(look));
            }
        }
        before != (known.depth, known.full, known.refused, known.left, known.use_, known.used)
    }

    /// Has small pages come to all of a mapping from now on: it is one area again.
    fn refuse(&self, known: &mut Known) {
        self.leave_out_again(known);
        known.refused = true;
        self.sys.huge(known.span, Huge::Refused);
    }

    /// The slots left out get small pages from now on, if they were advised: they show again how they are used.
    fn leave_out_again(&self, known: &mut Known) {
        if known.is_whole() {
            let full = known.left_out().filter(|slot| is_full(self.sys.present_pages(*slot))).count();
            known.left = LeftOut::Again(u8::try_from(full).unwrap_or(u8::MAX));
        }
    }

    /// What is seen of a mapping by now.
    fn look(&self, known: &Known) -> Look {
        let (mut dense, mut sparse) = (0, 0);
        // Once they are advised, too, a page there is a huge one.
        for slot in known.left_out().filter(|_| !known.is_whole()) {
            match self.sys.present_pages(slot) {
                0 => {}
                n if is_full(n) => dense += 1,
                n if n <= SLOT_PAGES / 4 => sparse += 1,
                _ => {}
            }
        }
        let telling = match known.left {
            LeftOut::Again(full) => dense - dense.min(full.into()),
            LeftOut::Small | LeftOut::Advised => dense,
        };
        let slots = known.slots();
        let apart = slots.div_ceil(SAMPLES).max(1);
        let samples = || (apart / 2..slots).step_by(apart).map(|i| known.span.start + i * SLOT);
        let mut present = [false; SAMPLES];
        present.iter_mut().zip(samples()).for_each(|(is, at)| *is = self.sys.present(at));
        let mut groups = Groups::default();
        samples().zip(present).for_each(|(at, is)| groups.note(known.group_at(at), is));
        let there = present.iter().filter(|is| **is).count();
        let with_memory = samples().zip(present).filter(|(_, is)| *is).map(|(at, _)| Span::new(at, SLOT));
        // Of all parts of it: the first ones do not tell of the last.
        let peeked = with_memory.step_by(there.div_ceil(PEEKS).max(1));
        let (mut filled, mut peeks) = (0, 0);
        for slot in peeked {
            peeks += 1;
            filled += (self.sys.peek_nonzero_pages(slot, SAMPLED_PAGES) * 2 >= SAMPLED_PAGES) as usize;
        }
        let by_pages = telling > 4 * sparse && telling >= ENOUGH;
        let by_content = filled * 4 > peeks * 3 && filled >= ENOUGH * 2;
        let doubts = filled * 2 < peeks && peeks >= ENOUGH * 2;
        let use_ = if by_pages || by_content {
            Use::Dense
        } else if sparse > telling && sparse >= ENOUGH * 2 {
            Use::Sparse
        } else {
            known.use_
        };
        let there = (there * apart).min(slots);
        // Slots left out may lie where a program does not come. So they do not give room for more.
        let used = there * filled / peeks.max(1);
        let ends = groups.waiting(known, filled, peeks);
        Look { use_, used, there, doubts, groups, ends }
    }
}

/// Whether a slot with so many pages is used densely.
fn is_full(pages: usize) -> bool {
    pages >= SLOT_PAGES * 3 / 4
}

/// What a look has shown of a mapping.
struct Look {
    use_: Use,
    /// Slots that are used densely, as far as samples tell.
    used: usize,
    /// Slots that have memory.
    there: usize,
    /// Whether content says that use is sparse; it may be zeroes.
    doubts: bool,
    groups: Groups,
    /// Slots at the end of full groups that were not seen to be used densely.
    ends: usize,
}
