//! Slots: aligned 2 MiB pieces of the arena, and what is known of each.
//!
//! ```text
//!          ┌──────────── discard ◄──────────┬────────────┐
//!          ▼                                │            │
//!  ┌──► Unbacked ──────────► InTransit ◄────── Dirty ◄───── Zeroed
//!  │                     │  ▲ │             ▲            ▲
//!  │      hand out       │  │ └─ free ──────┘── scrub ───┘
//!  │   (program thread)  ▼  │  (program thread)  (scrubber, toucher)
//!  └─ unmap ── Mapped · Block · Runs
//! ```
//!
//! A thread that holds the arena's lock moves a slot into or out of a free list (Unbacked, Dirty, Zeroed). A slot in
//! `InTransit` belongs to one thread, which moves it on without the lock. It goes to the program's side when it is
//! handed out, and to a free list when it is taken back. Any thread may add flags at any time: each change of a word is
//! one atomic step, so none is lost.
//!
//! A program may map something of its own over free slots. It says so by a flag ([`Slots::give_up`]), for which it needs
//! no lock. A thread that takes such a slot from the lists, or puts it back, drops it for good ([`flag::GIVEN_UP`]).

use faultless_base::Slot;
use faultless_base::sync::atomic::{AtomicU32, Ordering};

use crate::frame::extent::Extent;

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Free, without memory: the kernel fills it with zeroes at its first touch.
    Unbacked = 0,
    /// Free, its frame full of old bytes.
    Dirty = 1,
    /// Free, its frame all zero.
    Zeroed = 2,
    /// On its way: one thread owns it.
    InTransit = 3,
    /// The program's: wholly part of one of its mappings. In the arena, given up for good.
    Mapped = 4,
    /// Part of a large block of `malloc`.
    Block = 5,
    /// Carved into runs for `malloc`.
    Runs = 6,
}

impl State {
    fn of(word: u32) -> Self {
        match word & 0xF {
            0 => Self::Unbacked,
            1 => Self::Dirty,
            2 => Self::Zeroed,
            3 => Self::InTransit,
            4 => Self::Mapped,
            5 => Self::Block,
            _ => Self::Runs,
        }
    }

    /// Whether it is in a free list.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Unbacked | Self::Dirty | Self::Zeroed)
    }

    fn may_become(self, next: Self) -> bool {
        self == next || self == Self::InTransit || next == Self::InTransit
    }
}

/// What else is known of a slot: bits that may be combined.
pub mod flag {
    /// It was made accessible, once and for all.
    pub const OPEN: u32 = 1 << 8;
    /// Huge pages are advised for it.
    pub const ADVISED: u32 = 1 << 9;
    /// It was handed out without memory, so how much it has is not known.
    pub const FRESH: u32 = 1 << 10;
    /// Its huge page is charged to the budget until the program is seen to use it densely. A slot in use that is
    /// neither this nor `FRESH` counts as used.
    pub const CHARGED: u32 = 1 << 11;
    /// The program changed attributes of it: it goes back to the kernel, not to a free list.
    pub const TAINTED: u32 = 1 << 12;
    /// Shared with a forked process, copied on write: also goes back to the kernel.
    pub const FORKED: u32 = 1 << 13;
    /// On its way back, and found to have no memory worth keeping.
    pub const EMPTY: u32 = 1 << 14;
    /// It was handed out with old bytes and signatures among them; see [`faultless_base::sys::Sys::sign`].
    pub const SIGNED: u32 = 1 << 15;
    /// Its memory was brought before the program came to it: touched ahead, or moved in.
    pub const AHEAD: u32 = 1 << 16;
    /// On its way back, and not as the engine made it, as far as the kernel says.
    pub const ALTERED: u32 = 1 << 17;
    /// A block begins here, and what it has more than was asked for counts.
    pub const LOSES: u32 = 1 << 18;
    /// A block begins here that was asked for at the begin of a page.
    pub const ALIGNED: u32 = 1 << 19;
    /// It was handed out with memory, on a machine with several nodes; see [`crate::space`].
    pub const BROUGHT: u32 = 1 << 20;
    /// The program maps something where no block is, or unmaps it: once the slot is in no use it is not ours any more.
    pub const GIVEN_UP: u32 = 1 << 21;
    /// What is known of a slot only while it is in use.
    pub const IN_USE: u32 =
        FRESH | TAINTED | FORKED | EMPTY | SIGNED | AHEAD | ALTERED | LOSES | ALIGNED | BROUGHT;
}

/// Slots that one leaf of a sparse table covers (64 GiB of addresses), and leaves.
pub const LEAF: usize = if faultless_base::sync::CHECKED { 64 } else { 32 << 10 };
/// Leaves of a sparse table.
pub const LEAVES: usize = if faultless_base::sync::CHECKED { 8 } else { 32 };

/// The words of all slots of an arena, or of those slots of the whole address space that are of interest.
#[derive(Clone, Copy)]
pub struct Slots {
    words: &'static [AtomicU32],
    tail: &'static AtomicU32,
    /// Of a sparse table, for each leaf: the number of its piece of the address space and one more, 0 for none yet.
    keys: &'static [AtomicU32],
}

impl Slots {
    /// A table over `words`, one for each slot and one more; zero is a hole that was never opened.
    pub fn new(words: &'static [AtomicU32]) -> Self {
        let (tail, words) = words.split_last().expect("one word at least");
        Self { words, tail, keys: &[] }
    }

    /// A table over all addresses, in `words` for [`LEAVES`] leaves and their keys, and one more.
    pub fn sparse(words: &'static [AtomicU32]) -> Self {
        let (tail, words) = words.split_last().expect("one word at least");
        let (keys, words) = words.split_at(LEAVES);
        Self { words, tail, keys }
    }

    /// The words that [`Slots::sparse`] wants.
    pub const SPARSE_WORDS: usize = LEAVES * (LEAF + 1) + 1;

    /// Makes sure that slots of a sparse table have words; false when there are no more leaves.
    pub fn reach(&self, e: Extent) -> bool {
        let pieces = e.first.number() / LEAF..e.end().number().div_ceil(LEAF);
        if pieces.len() > LEAVES {
            return false;
        }
        pieces.into_iter().all(|piece| {
            let Ok(key) = u32::try_from(piece + 1) else { return false };
            self.keys.iter().any(|place| {
                let taken = place.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
                taken.is_ok() || taken == Err(key)
            })
        })
    }

    /// The word of slot `i`. In a sparse table slots that were never spoken of share one, which stays zero.
    #[inline]
    fn word(&self, i: Slot) -> &'static AtomicU32 {
        match self.keys.is_empty() {
            true => &self.words[i.number()],
            false => self.sparse_word(i.number()),
        }
    }

    #[inline(never)]
    fn sparse_word(&self, i: usize) -> &'static AtomicU32 {
        let key = i / LEAF + 1;
        let leaf = self.keys.iter().position(|place| place.load(Ordering::Acquire) as usize == key);
        leaf.map_or(self.tail, |leaf| &self.words[leaf * LEAF + i % LEAF])
    }

    /// The parts of a range, of whatever size, whose slots have words of their own in a sparse table.
    pub fn known(&self, e: Extent) -> impl Iterator<Item = Extent> + use<> {
        let keys = self.keys.iter().map(|place| place.load(Ordering::Acquire) as usize).filter(|&key| key != 0);
        let leaf = |key: usize| Slot::new((key - 1) * LEAF)..Slot::new(key * LEAF);
        let part = move |key| Extent::between(e.first.max(leaf(key).start), e.end().min(leaf(key).end));
        keys.map(part).filter(|part| !part.is_empty())
    }

    /// The slots that were ever used are those before this one.
    pub fn tail(&self) -> Slot {
        Slot::new(self.tail.load(Ordering::Acquire) as usize)
    }

    /// Moves the end of what was ever used; under the arena's lock.
    pub fn set_tail(&self, tail: Slot) {
        self.tail.store(tail.number() as u32, Ordering::Release);
    }

    /// All slots that were ever used.
    pub fn ever_used(&self) -> Extent {
        Extent::between(Slot::new(0), self.tail())
    }

    /// Those that were never used.
    pub fn never_used(&self) -> Extent {
        Extent::between(self.tail(), Slot::new(self.len()))
    }

    /// Whether there is no slot at all.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The state of slot `i`.
    pub fn state(&self, i: Slot) -> State {
        State::of(self.word(i).load(Ordering::SeqCst))
    }

    /// The state that slot `i` had before the present one.
    pub fn was(&self, i: Slot) -> State {
        State::of(self.word(i).load(Ordering::Relaxed) >> 4)
    }

    /// Whether slot `i` has any of `flags`.
    pub fn has(&self, i: Slot, flags: u32) -> bool {
        self.word(i).load(Ordering::SeqCst) & flags != 0
    }

    /// Moves slot `i` to `next`, keeping its flags.
    pub fn set(&self, i: Slot, next: State) {
        self.exchange(i, next);
    }

    /// Moves slot `i` into transit; whether it is not given up.
    pub fn take(&self, i: Slot) -> bool {
        self.exchange(i, State::InTransit) & flag::GIVEN_UP == 0
    }

    /// A function of its own: it has many callers.
    #[inline(never)]
    fn exchange(&self, i: Slot, next: State) -> u32 {
        self.update(i, |word| {
            let now = State::of(word);
            debug_assert!(now.may_become(next), "slot {i}: {now:?} may not become {next:?}");
            (word & !0xFF) | next as u32 | ((now as u32) << 4)
        })
    }

    /// Slot `i`, in transit, is out of use for good.
    pub fn lose(&self, i: Slot) {
        self.mark(i, flag::TAINTED | flag::FRESH);
        self.set(i, State::Mapped);
    }

    /// Slot `i`, in transit, was a hole and has a frame of old bytes now.
    pub fn fill(&self, i: Slot) {
        self.update(i, |word| {
            debug_assert!(State::of(word) == State::InTransit && State::of(word >> 4) == State::Unbacked);
            (word & !0xF0) | (State::Dirty as u32) << 4
        });
    }

    /// Moves slot `i` from `from` into transit; false when it is in another state, so that of two threads that try
    /// one succeeds.
    pub fn detach(&self, i: Slot, from: State) -> bool {
        let passage = |word: u32| {
            (State::of(word) == from).then_some((word & !0xFF) | State::InTransit as u32 | ((from as u32) << 4))
        };
        self.word(i).fetch_update(Ordering::SeqCst, Ordering::SeqCst, passage).is_ok()
    }

    /// Adds `flags` to slot `i`; the ones it had before.
    pub fn mark(&self, i: Slot, flags: u32) -> u32 {
        self.word(i).fetch_or(flags, Ordering::SeqCst)
    }

    /// Removes `flags` from slot `i`; whether it had all of them.
    pub fn clear(&self, i: Slot, flags: u32) -> bool {
        self.word(i).fetch_and(!flags, Ordering::SeqCst) & flags == flags
    }

    /// The same where few slots have them: a word that would not change is not written to.
    pub fn withdraw(&self, i: Slot, flags: u32) -> bool {
        self.has(i, flags) && self.clear(i, flags)
    }

    /// Gives slot `i` up if it is in no use. Where it is in transit then, another thread still has it.
    pub fn give_up(&self, i: Slot) {
        self.update(i, |word| match State::of(word) {
            State::Unbacked | State::Dirty | State::Zeroed | State::InTransit => word | flag::GIVEN_UP,
            State::Mapped | State::Block | State::Runs => word,
        });
    }

    /// Notes that slot `i` is charged and has these `flags`, if the program has it and it is not charged; whether that
    /// was so.
    pub fn charge(&self, i: Slot, flags: u32) -> bool {
        let with = |word: u32| {
            let in_use = matches!(State::of(word), State::Mapped | State::Block);
            (in_use && word & flag::CHARGED == 0).then_some(word | flags | flag::FRESH | flag::CHARGED)
        };
        self.word(i).fetch_update(Ordering::SeqCst, Ordering::SeqCst, with).is_ok()
    }

    /// Makes slot `i` count as used if the program has it and it is charged; whether that was so.
    pub fn confirm(&self, i: Slot) -> bool {
        let without = |word: u32| {
            let in_use = matches!(State::of(word), State::Mapped | State::Block | State::Runs);
            (in_use && word & flag::CHARGED != 0).then_some(word & !(flag::CHARGED | flag::FRESH))
        };
        self.word(i).fetch_update(Ordering::SeqCst, Ordering::SeqCst, without).is_ok()
    }

    /// Changes a word: what it was.
    fn update(&self, i: Slot, change: impl Fn(u32) -> u32) -> u32 {
        let changed = self.word(i).fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(change(word)));
        changed.unwrap_or_else(|word| word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn slots(n: usize) -> Slots {
        Slots::new(Box::leak((0..n + 1).map(|_| AtomicU32::new(0)).collect()))
    }

    #[test]
    fn a_slot_remembers_where_it_came_from_and_keeps_its_flags() {
        let s = slots(2);
        let (zero, one) = (Slot::new(0), Slot::new(1));
        assert_eq!(s.state(zero), State::Unbacked);
        s.mark(zero, flag::OPEN | flag::ADVISED);
        s.set(zero, State::InTransit);
        assert_eq!(s.was(zero), State::Unbacked);
        s.set(zero, State::Mapped);
        assert!(s.has(zero, flag::OPEN) && s.has(zero, flag::ADVISED) && !s.has(zero, flag::TAINTED));
        assert!(!s.clear(zero, flag::TAINTED));
        assert!(s.clear(zero, flag::ADVISED));
        assert_eq!(s.state(one), State::Unbacked);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "may not become")]
    fn a_lent_slot_does_not_jump_into_a_free_list() {
        let (s, zero) = (slots(1), Slot::new(0));
        s.set(zero, State::InTransit);
        s.set(zero, State::Mapped);
        s.set(zero, State::Zeroed);
    }
}
