//! The snapshots of one region or file, by age, and which pages each of them has copies of.
//!
//! A snapshot has a number, a span of whole slots, and reserved memory of the same length: the copy of a page lies at
//! the same place there. A bit for each page says whether the snapshot has its own bytes there; where nothing was
//! copied these are zero. What a snapshot does not have itself, the next newer one has that has anything of the page,
//! or else the region itself has it still, unchanged. So a page has no list of owners: they are computed. Of a file, what
//! the region has is what the file has, in memory or not.
//!
//! | word | |
//! |---|---|
//! | `START`, `END`, `AT` | the span, and where its copies are |
//! | `STATE` | `LIVING`, or `LEAVING`: it is being dropped, and others may still need what it has |
//! | `NEWER`, `OLDER` | its neighbours; of a free number, `NEWER` is the next free one |
//! | `HELD` | how many pages it has |
//! | `AGE` | higher ones are newer |
//! | `INCOMPLETE` | 1: it lacks bytes, because there was no memory for a copy |
//! | `CUT`, `CUT_AGE` | from there on it has only what it and snapshots up to this age had when others took the rest away |
//!
//! Owners are found from a tree of all spans ([`Spans`]): few snapshots cover a slot where blocks or arrays have
//! snapshots of their own. Where more than `FEW` cover it, the list by age is walked. Either way the bits are looked
//! at.
//!
//! All of this changes with the lock `ends`, which is held for some steps. Bits of a slot change with the lock of the
//! slot's entry. A snapshot comes while all areas of its span are changing. So a thread that has an entry, and has
//! seen that its area does not change, knows all snapshots of this slot.

use core::ops::ControlFlow;

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sync::{Late, Lock, Words};
use faultless_base::{SLOT, Span};

use super::pages::{PageSet, WORDS};
use crate::owner::Walks;
use crate::owner::open::Open;
use crate::owner::spans::Spans;

/// Snapshots of a region at a time.
pub const MOST: usize = 1024;
/// Snapshots whose bits lie together.
const TOGETHER: usize = 16;

const START: usize = 0;
const END: usize = 1;
const AT: usize = 2;
const STATE: usize = 3;
const NEWER: usize = 4;
const OLDER: usize = 5;
const HELD: usize = 6;
pub(super) const AGE: usize = 7;
const INCOMPLETE: usize = 8;
pub(super) const CUT: usize = 9;
pub(super) const CUT_AGE: usize = 10;
const FIELDS: usize = 11;

/// Up to this number, snapshots of a slot are put in order one by one.
const FEW: usize = 16;

const LIVING: usize = 1;
const LEAVING: usize = 2;
/// No snapshot's number.
const NONE: usize = 0;

struct Ends {
    newest: usize,
    oldest: usize,
    /// The first number that was never used.
    fresh: usize,
    free: usize,
    spans: Spans,
    /// How many there ever were.
    ages: usize,
}

/// Which snapshots are looked at, and in which order.
#[derive(Clone, Copy)]
enum From {
    /// The newest, and then older ones.
    Newest,
    /// This one, and then newer ones.
    On(usize),
    /// Those older than this one, from the newest of them.
    Before(usize),
}

/// The snapshots of a region.
pub struct Chain {
    base: usize,
    slots: usize,
    fields: Words,
    bits: [Late<Words>; MOST / TOGETHER],
    ends: Lock<Ends>,
    /// How many there are: mostly none.
    count: AtomicUsize,
    /// Slots of a region that a snapshot protects without a question.
    pub open: Open,
    /// Where copies go on that no write waits for, up to the end of the slot; 0: nowhere. Any value does no harm.
    rest: AtomicUsize,
}

/// What a write to a slot has to leave alone.
pub struct Need {
    /// The snapshot that gets the copies.
    pub id: usize,
    /// Where its copies of this slot go.
    pub at: usize,
    /// Pages of which no copy is needed any more.
    pub settled: PageSet,
}

impl Chain {
    /// None yet, of a region. `None` when there is no memory for them.
    pub fn new(region: Span) -> Option<Self> {
        Some(Self {
            base: region.start,
            slots: region.bytes().div_ceil(SLOT),
            fields: Words::new((MOST + 1) * FIELDS)?,
            bits: core::array::from_fn(|_| Late::new()),
            ends: Lock::new(Ends {
                newest: NONE,
                oldest: NONE,
                fresh: 1,
                free: NONE,
                spans: Spans::new(MOST)?,
                ages: 0,
            }),
            count: AtomicUsize::new(0),
            open: Open::new(region)?,
            rest: AtomicUsize::new(0),
        })
    }

    /// Copies are to go on from this page, and no longer elsewhere.
    pub fn go_on_from(&self, page: usize) {
        self.rest.store(page, Ordering::Relaxed);
    }

    /// Where copies are to go on.
    pub fn rest(&self) -> Option<usize> {
        Some(self.rest.load(Ordering::Relaxed)).filter(|page| *page != 0)
    }

    /// They went on from one page, up to the next; or they are at an end. Whether there is more.
    pub fn went_on(&self, from: usize, next: Option<usize>) -> bool {
        let done = self.rest.compare_exchange(from, next.unwrap_or(0), Ordering::Relaxed, Ordering::Relaxed);
        done.map_or_else(|other| other != 0, |_| next.is_some())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn get(&self, id: usize, field: usize) -> usize {
        self.fields[id * FIELDS + field].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, id: usize, field: usize, value: usize) {
        self.fields[id * FIELDS + field].store(value, Ordering::Relaxed);
    }

    /// Its span.
    pub fn span(&self, id: usize) -> Span {
        Span { start: self.get(id, START), end: self.get(id, END) }
    }

    /// Where its copies of a slot are.
    pub fn copies(&self, id: usize, slot: usize) -> usize {
        self.get(id, AT) + (slot - self.get(id, START))
    }

    /// How many pages it has.
    pub fn held(&self, id: usize) -> usize {
        self.get(id, HELD)
    }

    fn words(&self, id: usize, slot: usize) -> &[AtomicUsize] {
        let words: &[AtomicUsize] = self.bits[(id - 1) / TOGETHER].get().map_or(&[], |words| words);
        let first = ((id - 1) % TOGETHER * self.slots + (slot - self.base) / SLOT) * WORDS;
        &words[first..first + WORDS]
    }

    /// The pages of a slot that it has.
    pub fn own(&self, id: usize, slot: usize) -> PageSet {
        let words = self.words(id, slot);
        // Pairs with `take`: the copies are there.
        PageSet(core::array::from_fn(|i| words[i].load(Ordering::Acquire)))
    }

    /// It has these now, too. The caller has the entry of the slot.
    pub fn take(&self, id: usize, slot: usize, pages: PageSet) {
        let new = pages - self.own(id, slot);
        let words = self.words(id, slot);
        words.iter().zip(new.0).for_each(|(word, bits)| _ = word.fetch_or(bits, Ordering::Release));
        self.fields[id * FIELDS + HELD].fetch_add(new.count(), Ordering::Relaxed);
    }

    /// It has nothing of a slot any more. The caller has the entry of the slot.
    pub fn leave(&self, id: usize, slot: usize) {
        let had = self.own(id, slot).count();
        self.words(id, slot).iter().for_each(|word| word.store(0, Ordering::Release));
        self.fields[id * FIELDS + HELD].fetch_sub(had, Ordering::Relaxed);
    }

    /// A number for a new snapshot; `None` if there are too many, or no memory for its bits.
    pub fn number(&self) -> Option<usize> {
        let id = {
            let mut ends = self.ends.lock();
            match ends.free {
                NONE if ends.fresh > MOST => return None,
                NONE => {
                    ends.fresh += 1;
                    ends.fresh - 1
                }
                free => {
                    ends.free = self.get(free, NEWER);
                    free
                }
            }
        };
        let bits = &self.bits[(id - 1) / TOGETHER];
        if bits.get().is_none() {
            // Not with the lock. Another thread may be faster.
            match Words::new(TOGETHER * self.slots * WORDS) {
                Some(words) => _ = bits.set(words),
                None => {
                    self.free(id);
                    return None;
                }
            }
            while bits.get().is_none() {
                faultless_base::sync::pause();
            }
        }
        Some(id)
    }

    /// A number is not used any more.
    pub fn free(&self, id: usize) {
        let mut ends = self.ends.lock();
        self.set(id, NEWER, ends.free);
        ends.free = id;
    }

    /// It is the newest from now on. All areas of its span are changing.
    pub fn push(&self, id: usize, span: Span, at: usize) {
        let mut ends = self.ends.lock();
        ends.ages += 1;
        ends.spans.insert(id, span);
        let fields = [(START, span.start), (END, span.end), (AT, at), (STATE, LIVING), (HELD, 0)];
        let fields = fields.into_iter().chain([
            (AGE, ends.ages),
            (INCOMPLETE, 0),
            (CUT, usize::MAX),
            (CUT_AGE, usize::MAX),
        ]);
        fields.for_each(|(field, value)| self.set(id, field, value));
        self.set(id, NEWER, NONE);
        self.set(id, OLDER, ends.newest);
        match ends.newest {
            NONE => ends.oldest = id,
            newest => self.set(newest, NEWER, id),
        }
        ends.newest = id;
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// It gets nothing any more, and only has what others need.
    pub fn begin_to_drop(&self, id: usize) {
        let _ends = self.ends.lock();
        self.set(id, STATE, LEAVING);
    }

    /// How many there ever were: the age of the newest, or more.
    pub(super) fn newest_age(&self) -> usize {
        self.ends.lock().ages
    }

    /// It is gone. It has nothing any more; the memory of its copies is the caller's.
    pub fn remove(&self, id: usize) -> Span {
        let copies = self.memory(id);
        {
            let mut ends = self.ends.lock();
            debug_assert_eq!((self.get(id, STATE), self.held(id)), (LEAVING, 0));
            ends.spans.remove(id);
            let (newer, older) = (self.get(id, NEWER), self.get(id, OLDER));
            match newer {
                NONE => ends.newest = older,
                newer => self.set(newer, OLDER, older),
            }
            match older {
                NONE => ends.oldest = newer,
                older => self.set(older, NEWER, newer),
            }
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        self.free(id);
        copies
    }

    /// All memory of its copies.
    pub fn memory(&self, id: usize) -> Span {
        Span::new(self.get(id, AT), self.span(id).bytes())
    }

    /// Looks at snapshots of this slot until `f` has an answer. `f` counts one as stale that covers the slot and is no
    /// answer.
    fn find<T>(
        &self,
        from: From,
        slot: usize,
        walks: &mut Walks,
        mut f: impl FnMut(usize, &mut u64) -> Option<T>,
    ) -> Option<T> {
        let mut ends = self.ends.lock();
        let Ends { newest, spans, .. } = &mut *ends;
        walks.computed += 1;
        let mut look = |id: usize| {
            walks.walked += 1;
            f(id, &mut walks.stale)
        };
        let (mut few, mut count) = ([NONE; FEW], 0);
        spans.covering(slot, |id| {
            if count == FEW {
                count += 1;
                return ControlFlow::Break(());
            }
            few[count] = id;
            count += 1;
            ControlFlow::Continue(())
        });
        if count <= FEW {
            let few = &mut few[..count];
            few.sort_unstable_by_key(|id| self.get(*id, AGE));
            let all = few.iter().copied();
            return match from {
                From::Newest => all.rev().find_map(look),
                From::On(id) => all.filter(|other| self.get(*other, AGE) >= self.get(id, AGE)).find_map(look),
                From::Before(id) => {
                    all.rev().filter(|other| self.get(*other, AGE) < self.get(id, AGE)).find_map(look)
                }
            };
        }
        let (first, field) = match from {
            From::Newest => (*newest, OLDER),
            From::On(id) => (id, NEWER),
            From::Before(id) => (self.get(id, OLDER), OLDER),
        };
        let some = |id: usize| (id != NONE).then_some(id);
        let all = core::iter::successors(some(first), |id| some(self.get(*id, field)));
        all.filter(|id| self.span(*id).contains(slot)).find_map(&mut look)
    }

    /// What a write to a slot needs, if any snapshot needs anything of it. The caller has the entry of the slot.
    pub fn need(&self, slot: usize, walks: &mut Walks) -> Option<Need> {
        if self.is_empty() {
            return None;
        }
        let mut settled = PageSet::default();
        self.find(From::Newest, slot, walks, |id, stale| {
            settled = settled | self.own(id, slot);
            let settled = settled | self.gone(id, slot);
            let is_living = self.get(id, STATE) == LIVING;
            *stale += u64::from(!is_living);
            is_living.then(|| Need { id, at: self.copies(id, slot), settled })
        })
    }

    /// The first snapshot from `id` on, of those that came later, that has some of these pages of a slot: where its
    /// copies are, and which it has.
    pub fn owner(&self, id: usize, slot: usize, wanted: PageSet, walks: &mut Walks) -> Option<(usize, PageSet)> {
        self.find(From::On(id), slot, walks, |other, stale| {
            let has = (self.own(other, slot) & wanted) - self.kept_from(id, other, slot);
            *stale += u64::from(has.is_empty());
            (!has.is_empty()).then(|| (self.copies(other, slot), has))
        })
    }

    /// Who needs pages of a slot that `id` has: the next older one that is not being dropped, and which pages. The
    /// caller has the entry of the slot.
    pub fn heir(&self, id: usize, slot: usize, walks: &mut Walks) -> Option<(usize, PageSet)> {
        let mut others = PageSet::default();
        self.find(From::Before(id), slot, walks, |older, stale| {
            others = others | self.own(older, slot);
            let is_living = self.get(older, STATE) == LIVING;
            *stale += u64::from(!is_living);
            is_living.then(|| (older, self.own(id, slot) - others - self.kept_from(older, id, slot)))
        })
    }

    /// It lacks bytes of a slot from now on, and so do the older ones, which might have read them from it; how many that
    /// is. The caller has the entry of the slot, and takes the pages afterwards.
    pub fn spoil(&self, id: usize, slot: usize) -> usize {
        let (age, mut count) = (self.get(id, AGE), 0);
        self.find(From::Newest, slot, &mut Walks::default(), |other, _| {
            if self.get(other, AGE) <= age && !self.is_incomplete(other) {
                self.set(other, INCOMPLETE, 1);
                count += 1;
            }
            None::<()>
        });
        count
    }

    /// Whether it lacks bytes. Who has seen that it has a page sees this of the page, too.
    pub fn is_incomplete(&self, id: usize) -> bool {
        self.get(id, INCOMPLETE) == 1
    }

    /// All that there are, and their spans.
    pub fn each(&self, mut f: impl FnMut(usize, Span)) {
        let ends = self.ends.lock();
        let mut id = ends.oldest;
        while id != NONE {
            f(id, self.memory(id));
            id = self.get(id, NEWER);
        }
    }
}
