//! A mapping of the program that was advised, or of which a part was: how it is divided, and what it counts for.
//!
//! Where the program begins is not known: a JVM allocates from the end of its heap, or from two thirds on. So a mapping
//! is divided into groups. Each group gets the same part of the budget, and one slot of each is left out.

use faultless_base::{SLOT, Span};

use crate::frame::extent::Extent;

/// Least slots of a group, most groups of a mapping, and most groups of all. A group is up to three areas to the
/// kernel, and a program may have 65 530.
const GROUP: usize = 32;
pub(crate) const MOST_GROUPS: u8 = 64;
const GROUPS_OF_ALL: usize = 128;

/// Parts of a mapping that begin anew, each by itself, after the program dropped their content.
pub(crate) const MOST_PARTS: u8 = 8;
/// The end of a mapping is one part in so many.
const NEAR: usize = 16;

/// A number of slots as it is kept: the table is copied as a whole where the engine is made.
pub(crate) fn count(slots: usize) -> u32 {
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// How many slots make a group.
fn group_of(span: Span, most_groups: u8) -> u32 {
    count((span.bytes() / SLOT).div_ceil(most_groups.into()).max(GROUP))
}

/// A mapping of the program.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// Tells it from one before it at the same place, and from itself before its content was dropped.
    pub(crate) number: u32,
    /// Its whole slots.
    pub(crate) span: Span,
    /// Groups that it may be divided into: each costs areas.
    most_groups: u8,
    /// Slots of a group.
    group: u32,
    /// How many slots of each of its groups have been advised.
    pub(crate) depth: usize,
    /// Its groups that are advised to their end, a bit each.
    pub(crate) full: u64,
    /// Slots charged for it: one for `share` slots that were advised, and one for each at the end of full groups.
    pub(crate) charged: usize,
    pub(crate) share: u8,
    /// How many of its slots the warm reserve was told.
    pub(crate) told: u32,
    /// How many of its slots were seen to be used densely, at most.
    pub(crate) used: u32,
    pub(crate) use_: Use,
    /// How many parts of it have begun anew.
    pub(crate) parts: u8,
    /// What became of the slots left out.
    pub(crate) left: LeftOut,
    /// Whether huge pages are refused there for now, because they are cold.
    pub(crate) refused: bool,
    /// Whether the program has given up a part of it. Then it only counts, until all of it is gone.
    pub(crate) cut: bool,
}

/// What becomes of the slots left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// They get small pages, and so show how the program uses them.
    Small,
    /// They are advised, too: the mapping is one area.
    Advised,
    /// They get small pages again. So many were full then, and show nothing.
    Again(u8),
}

/// How the program uses a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It has not shown yet.
    Unknown,
    /// Most pages of what it touches.
    Dense,
    /// A page here and there.
    Sparse,
}

impl Known {
    /// One that is not advised yet, and is charged once for `share` slots, while others have `groups` groups.
    pub(crate) fn new(number: u32, span: Span, share: u8, groups: usize) -> Self {
        let more = GROUPS_OF_ALL.saturating_sub(groups);
        let most_groups = u8::try_from(more).unwrap_or(MOST_GROUPS).clamp(1, MOST_GROUPS);
        let group = group_of(span, most_groups);
        let (use_, left, refused, cut) = (Use::Unknown, LeftOut::Small, false, false);
        let (depth, full, charged, told, used, parts) = (0, 0, 0, 0, 0, 0);
        Self {
            number,
            span,
            most_groups,
            group,
            depth,
            full,
            charged,
            share,
            told,
            used,
            use_,
            parts,
            left,
            refused,
            cut,
        }
    }

    /// The part `span` of it, which is new to the program again. The kernel has that memory: the reserve is told of none.
    /// A part that is not all of it has few areas, and no parts of its own.
    pub(crate) fn again(self, number: u32, span: Span) -> Self {
        let is_all = span == self.span;
        let most_groups = if is_all { self.most_groups } else { self.most_groups.div_ceil(MOST_PARTS) };
        let (group, told) = (group_of(span, most_groups), count(span.bytes() / SLOT));
        let parts = if is_all { self.parts } else { MOST_PARTS };
        let anew = Self { depth: 0, full: 0, charged: 0, share: 1, used: 0, ..self };
        let (use_, left) = (Use::Unknown, LeftOut::Small);
        Self { number, span, most_groups, group, told, parts, use_, left, ..anew }
    }

    /// What goes on as before when the program has given up `gone` near the end, as a JVM that maps an archive there,
    /// and what only counts from there on. `None`: `gone` is not that near.
    pub(crate) fn split_before(self, gone: Span) -> Option<(Self, Self)> {
        let at = gone.clip(self.span).start / SLOT * SLOT;
        let (front, back) = (Span { end: at, ..self.span }, Span { start: at, ..self.span });
        if self.cut || back.is_empty() || back.bytes() > self.span.bytes() / NEAR {
            return None;
        }
        let advised: usize = self.advised().map(|piece| piece.clip(back).bytes() / SLOT).sum();
        let counts = Self { charged: advised.min(self.charged), ..self.only_counts(back) };
        let left = Self { span: front, charged: self.charged - counts.charged, ..self };
        Some((Self { depth: left.depth.min(left.most()), ..left }, counts))
    }

    /// The same at `span` as one that only counts, for its slots at most.
    pub(crate) fn only_counts(self, span: Span) -> Self {
        Self { span, charged: self.charged.min(Extent::around(span).n), cut: true, ..self }
    }

    /// The same as one that only counts, for as much as before: it is not known where.
    pub(crate) fn only_counts_as_before(self) -> Self {
        Self { cut: true, ..self }
    }

    /// What is left when the program has given up `gone`: a front or a back.
    pub(crate) fn without(self, gone: Span) -> Self {
        let mut left = self.span;
        if gone.start <= left.start {
            left.start = gone.end.min(left.end);
        }
        if gone.end >= left.end {
            left.end = gone.start.max(left.start);
        }
        self.only_counts(left)
    }

    pub(crate) fn slots(&self) -> usize {
        self.span.bytes() / SLOT
    }

    /// Slots of it that were not seen to be used.
    pub(crate) fn unused(&self) -> usize {
        self.slots().saturating_sub(self.used as usize)
    }

    /// How many of its advised slots have no memory, if each group was used alike.
    pub(crate) fn waiting(&self) -> usize {
        let slots = self.slots();
        let advised = if self.is_whole() { slots } else { self.bytes(0, self.depth) / SLOT };
        (advised * self.unused()).div_ceil(slots.max(1))
    }

    /// Whether the slots left out are advised, too.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == LeftOut::Advised
    }

    /// Whether some of it has advice of ours.
    pub(crate) fn is_advised(&self) -> bool {
        self.depth > 0 || self.full != 0 || self.is_whole() || self.refused
    }

    /// The two of them as one, if the other one begins where this ends, and both are used throughout: they are one area
    /// to the kernel, and count for nothing.
    pub(crate) fn joined(&self, other: &Self) -> Option<Self> {
        let is_full = |k: &Self| k.use_ == Use::Dense && k.is_whole() && !k.refused && !k.cut && k.charged == 0;
        if self.span.end != other.span.start || !is_full(self) || !is_full(other) {
            return None;
        }
        let span = Span { end: other.span.end, ..self.span };
        let group = group_of(span, self.most_groups);
        let (told, used) = (self.told.saturating_add(other.told), self.used.saturating_add(other.used));
        let joined = Self { span, group, full: 0, told, used, parts: self.parts.max(other.parts), ..*self };
        Some(Self { depth: joined.most(), ..joined })
    }

    /// Whether it was seen to be used throughout.
    pub(crate) fn is_dense(&self) -> bool {
        !self.cut && self.use_ == Use::Dense
    }

    /// How many of these nothing was charged for.
    pub(crate) fn on_trust(&self) -> usize {
        if self.cut || self.refused { 0 } else { self.waiting().saturating_sub(self.charged) }
    }

    /// The depth at which all but what is left out is advised.
    pub(crate) fn most(&self) -> usize {
        self.group().min(self.slots())
    }

    /// What is advised of it, as long as slots are left out.
    pub(crate) fn advised(&self) -> impl Iterator<Item = Span> + use<> {
        let known = *self;
        let ends = (0..known.groups()).filter(move |group| known.is_full(*group));
        known.pieces(0, known.depth).chain(ends.flat_map(move |group| known.rest(group)))
    }

    pub(crate) fn advised_bytes(&self) -> usize {
        self.advised().map(|piece| piece.bytes()).sum()
    }

    pub(crate) fn is_full(&self, group: usize) -> bool {
        self.full & 1 << group != 0
    }

    /// What a full group has beyond what all have.
    pub(crate) fn rest(&self, group: usize) -> impl Iterator<Item = Span> + use<> {
        self.pieces_of(group, self.depth, self.most())
    }

    pub(crate) fn rest_slots(&self, group: usize) -> usize {
        self.rest(group).map(|piece| piece.bytes() / SLOT).sum()
    }

    /// The group of a slot.
    pub(crate) fn group_at(&self, addr: usize) -> usize {
        (addr - self.span.start) / SLOT / self.group()
    }

    fn group(&self) -> usize {
        self.group as usize
    }

    pub(crate) fn groups(&self) -> usize {
        self.slots().div_ceil(self.group())
    }

    /// The slots that stay without advice until the mapping is seen to be used densely: one of each group.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = Span> + use<> {
        let (span, group) = (self.span, self.group());
        (span.start + group / 2 * SLOT..span.end).step_by(group * SLOT).map(|at| Span::new(at, SLOT))
    }

    /// The addresses of slots `from` to `to` of each group, without those left out.
    pub(crate) fn pieces(&self, from: usize, to: usize) -> impl Iterator<Item = Span> + use<> {
        let known = *self;
        (0..known.groups()).flat_map(move |group| known.pieces_of(group, from, to))
    }

    fn pieces_of(&self, group: usize, from: usize, to: usize) -> impl Iterator<Item = Span> + use<> {
        let (span, start, left_out) = (self.span, self.span.start + group * self.group() * SLOT, self.group() / 2);
        let between = |from: usize, to: usize| {
            Span { start: start + from * SLOT, end: start + to.max(from) * SLOT }.clip(span)
        };
        let pieces = [between(from, to.min(left_out)), between(from.max(left_out + 1), to)];
        pieces.into_iter().filter(|piece| !piece.is_empty())
    }

    pub(crate) fn bytes(&self, from: usize, to: usize) -> usize {
        self.pieces(from, to).map(|piece| piece.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::{PAGE, SLOT_PAGES};
    use std::vec::Vec;

    fn known(slots: usize) -> Known {
        Known::new(0, Span::new(0, slots * SLOT), 1, 0)
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
            assert!(k.groups() <= MOST_GROUPS.into());
            for cut in [0, 1, most / 2, most / 2 + 1, most] {
                let pieces = k.pieces(0, cut).chain(k.pieces(cut, most));
                let seen = covered(slots, pieces.chain(k.left_out()));
                assert!(seen.iter().all(|&s| s), "{slots} slots, cut at {cut}");
            }
        }
    }

    #[test]
    fn what_begins_anew_has_no_advice() {
        let all = Known { depth: 3, full: 0b101, charged: 9, left: LeftOut::Again(1), ..known(200) };
        for span in [all.span, Span::new(40 * SLOT, 100 * SLOT)] {
            let anew = all.again(1, span);
            assert_eq!((anew.advised_bytes(), anew.charged, anew.is_advised()), (0, 0, false));
        }
    }

    #[test]
    fn what_is_left_of_a_mapping_counts_for_its_slots_at_most() {
        let counts = |parts: &[(usize, usize)]| {
            let mut k = Known { charged: 6, ..known(8) };
            parts.iter().for_each(|&(start, end)| k = k.without(Span { start: start * PAGE, end: end * PAGE }));
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
    fn a_mapping_goes_on_before_what_is_given_up_at_its_end() {
        for (slots, depth) in [(1536, 13), (5000, 40), (5000, 79), (32, 31)] {
            let mut all = known(slots);
            all.depth = depth;
            all.charged = all.bytes(0, depth) / SLOT;
            let gone = Span::new((slots - 2) * SLOT + PAGE, PAGE);
            let (left, counts) = all.split_before(gone).unwrap();
            assert_eq!(left.charged + counts.charged, all.charged);
            assert_eq!((left.slots(), counts.slots(), counts.cut, left.cut), (slots - 2, 2, true, false));
            // The same slots are advised, and left out, as before.
            let before = covered(slots, all.pieces(0, all.depth));
            assert_eq!(covered(slots, left.pieces(0, left.depth))[..slots - 2], before[..slots - 2]);
            assert_eq!(counts.charged, before[slots - 2..].iter().filter(|&&advised| advised).count());
            let out = |k: &Known| k.left_out().filter(|slot| slot.start < (slots - 2) * SLOT).count();
            assert_eq!(out(&left), out(&all));
            assert!(all.split_before(Span::new(slots / 2 * SLOT, PAGE)).is_none(), "not near the end");
            assert!(counts.split_before(gone).is_none(), "it only counts");
        }
    }

    #[test]
    fn every_part_of_a_large_mapping_gets_some_advice() {
        let k = known(1536);
        let seen = covered(1536, k.pieces(0, 8));
        assert!(seen.chunks(96).all(|part| part.iter().filter(|&&s| s).count() == 24));
    }
}
