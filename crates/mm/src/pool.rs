//! The pool: huge pages that wait to be moved into regions, for all regions of a process. One has those of zeroes, and another one those
//! with old bytes.
//!
//! Each place of 2 MiB has two bits, so that whoever takes a frame in a signal handler waits for nobody.
//!
//! | in use | ready | |
//! |---|---|---|
//! | 0 | 0 | a hole |
//! | 1 | 0 | somebody's: it is being made, or moved |
//! | 1 | 1 | a huge page, nobody's |

use faultless_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use faultless_base::sync::{Futex, Words};
use faultless_base::{SLOT, Span};

const BITS: usize = usize::BITS as usize;

/// Huge pages, and places for more.
pub struct Pool {
    span: Span,
    in_use: Words,
    ready: Words,
    /// How many are ready; for a moment it may differ.
    count: AtomicUsize,
    /// How many of them somebody asked to be kept until they are taken.
    owed: AtomicUsize,
    /// How many are to be ready for windows to come; somebody may sleep until that is not 0.
    asked: Futex,
}

impl Pool {
    /// A pool of holes, `bytes` of addresses that `reserve` finds, at a multiple of 2 MiB. `None` when it finds none, or when there
    /// is no memory for tables, which are made first: nothing is reserved for nobody.
    pub fn new(bytes: usize, reserve: impl FnOnce(usize) -> Option<usize>) -> Option<Self> {
        let words = (bytes / SLOT).div_ceil(BITS);
        let (in_use, ready) = (Words::new(words)?, Words::new(words)?);
        Some(Self {
            span: Span::new(reserve(bytes)?, bytes),
            in_use,
            ready,
            count: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            asked: Futex::new(0),
        })
    }

    /// How many frames wait.
    pub fn ready(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    fn places(&self) -> usize {
        self.span.bytes() / SLOT
    }

    fn frame(&self, place: usize) -> usize {
        self.span.start + place * SLOT
    }

    fn place(&self, frame: usize) -> usize {
        debug_assert!(self.span.contains(frame) && frame % SLOT == 0);
        (frame - self.span.start) / SLOT
    }

    /// Sets or clears the bit of a place; whether it was another before.
    fn turn(words: &Words, place: usize, on: bool) -> bool {
        let (word, bit) = (&words[place / BITS], 1 << (place % BITS));
        // What was done to the frame before is seen by whoever takes it over.
        let before =
            if on { word.fetch_or(bit, Ordering::AcqRel) } else { word.fetch_and(!bit, Ordering::AcqRel) };
        (before & bit != 0) != on
    }

    /// A frame that waits; it is the caller's until [`Self::put_back`] or [`Self::leave`].
    pub fn take(&self) -> Option<usize> {
        if self.ready() == 0 {
            return None;
        }
        for at in 0..self.places().div_ceil(BITS) {
            loop {
                let word = self.ready[at].load(Ordering::Relaxed);
                if word == 0 {
                    break;
                }
                let place = at * BITS + word.trailing_zeros() as usize;
                if Self::turn(&self.ready, place, false) {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    self.owe_less();
                    return Some(self.frame(place));
                }
            }
        }
        None
    }

    /// A frame that was taken waits again.
    pub fn put_back(&self, frame: usize) {
        self.count.fetch_add(1, Ordering::Relaxed);
        Self::turn(&self.ready, self.place(frame), true);
    }

    /// A frame that was taken is not there any more: it was moved, or dropped.
    pub fn leave(&self, frame: usize) {
        Self::turn(&self.in_use, self.place(frame), false);
    }

    /// One or the other, as it is there or not.
    pub fn let_go(&self, frame: usize, is_there: bool) {
        if is_there { self.put_back(frame) } else { self.leave(frame) }
    }

    /// A place for another frame; it is the caller's as one that was taken.
    pub fn begin(&self) -> Option<usize> {
        let free = (0..self.places()).find(|place| {
            let free = self.in_use[place / BITS].load(Ordering::Relaxed) >> (place % BITS) & 1 == 0;
            free && Self::turn(&self.in_use, *place, true)
        });
        free.map(|place| self.frame(place))
    }

    /// Has one frame more made by `make`; whether there was a place and it could.
    pub fn make(&self, make: impl FnOnce(usize) -> bool) -> bool {
        let Some(frame) = self.begin() else { return false };
        let made = make(frame);
        self.let_go(frame, made);
        made
    }

    /// The same, and it is to be kept until it is taken.
    pub fn make_kept(&self, make: impl FnOnce(usize) -> bool) -> bool {
        // First, so that nobody takes it for one that need not be kept.
        self.owed.fetch_add(1, Ordering::Relaxed);
        let made = self.make(make);
        if !made {
            self.owe_less();
        }
        made
    }

    fn owe_less(&self) {
        let less = |owed: usize| owed.checked_sub(1);
        let _ = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Whether more wait than are to be kept.
    pub fn has_unkept(&self) -> bool {
        self.ready() > self.owed.load(Ordering::Relaxed)
    }

    /// One that nobody asked to be kept; as if it was taken.
    pub fn take_unkept(&self) -> Option<usize> {
        let owed = self.owed.load(Ordering::Relaxed);
        let frame = if self.has_unkept() { self.take() } else { None };
        if frame.is_some() && owed > 0 {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }

    /// Asks for so many to be ready, beside those that are kept for something else.
    pub fn ask(&self, frames: usize) {
        if self.ready() < frames && self.asked.swap(frames as u32, Ordering::Relaxed) == 0 {
            self.asked.wake_all();
        }
    }

    /// How many are still asked for.
    pub fn missing(&self) -> usize {
        (self.asked.load(Ordering::Relaxed) as usize).saturating_sub(self.ready())
    }

    /// Nothing is asked for any more, until somebody asks again.
    pub fn answer(&self) {
        self.asked.store(0, Ordering::Relaxed);
    }

    /// The word that is not 0 while something is asked for: a place to sleep.
    pub fn asked(&self) -> &AtomicU32 {
        &self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SPAN: Span = Span { start: 7 * SLOT, end: 107 * SLOT };

    fn pool() -> Pool {
        Pool::new(SPAN.bytes(), |_| Some(SPAN.start)).unwrap()
    }

    #[test]
    fn what_is_kept_goes_to_those_who_take_it() {
        let pool = pool();
        (0..3).for_each(|_| assert!(pool.make_kept(|_| true)));
        assert!(pool.make(|_| true) && !pool.make_kept(|_| false));
        assert!(pool.has_unkept() && pool.take_unkept().is_some());
        assert_eq!((pool.take_unkept(), pool.ready()), (None, 3));
        assert!(pool.take().is_some());
        assert_eq!((pool.take_unkept(), pool.ready()), (None, 2));
    }

    #[test]
    fn what_is_asked_for_is_missing_until_it_is_ready() {
        let pool = pool();
        pool.ask(2);
        assert_eq!((pool.missing(), pool.asked().load(Ordering::Relaxed)), (2, 2));
        assert!(pool.make(|_| true) && pool.missing() == 1 && pool.make(|_| true));
        assert_eq!(pool.missing(), 0);
        pool.answer();
        pool.ask(2);
        assert_eq!(pool.asked().load(Ordering::Relaxed), 0, "they are there");
        pool.take();
        assert_eq!(pool.missing(), 0, "nobody asks for more");
    }

    #[test]
    fn each_frame_is_in_one_place() {
        let pool = pool();
        assert_eq!(pool.take(), None);
        let mut made = BTreeSet::new();
        while pool.make(|frame| made.insert(frame)) {}
        assert_eq!((made.len(), pool.ready()), (100, 100));
        let taken: BTreeSet<_> = core::iter::from_fn(|| pool.take()).collect();
        assert_eq!((taken, pool.ready()), (made.clone(), 0));
        assert!(!pool.make(|_| true), "none is a hole before it is left");
        pool.leave(50 * SLOT);
        pool.put_back(60 * SLOT);
        assert!(!pool.make(|frame| frame != 50 * SLOT), "that one cannot be made");
        assert_eq!((pool.take(), pool.take()), (Some(60 * SLOT), None));
        assert!(pool.make(|frame| frame == 50 * SLOT), "but may be tried again");
        assert_eq!((pool.take(), pool.take()), (Some(50 * SLOT), None));
    }
}
