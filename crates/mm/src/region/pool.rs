//! The pool: huge pages that wait to be moved into regions, for all regions of a process. One pool has huge pages of
//! zeroes, another one those with old bytes.
//!
//! A pool that grows has its addresses in chunks, and gives empty chunks back. Each place of 2 MiB has two bits, so
//! that a signal handler takes a frame without waiting.
//!
//! | in use | ready | |
//! |---|---|---|
//! | 0 | 0 | a hole |
//! | 1 | 0 | in one thread's hands: it is being made, or moved |
//! | 1 | 1 | a huge page that waits |

use faultless_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use faultless_base::sync::{Futex, Words};
use faultless_base::{SLOT, Span};

/// Places that are reserved at a time. So a program with a limit of addresses, or one that locks all memory, pays for
/// the places in use and one chunk at most.
const CHUNK: usize = 16;
/// Chunks that are tried to be reserved: other threads may be at the first ones, or the kernel may refuse.
const TRIES: usize = 4;

/// Gives addresses to a pool that grows, at multiples of 2 MiB, and takes them back.
#[derive(Clone, Copy)]
pub struct Source {
    /// Finds this many bytes of addresses where nothing is mapped.
    pub reserve: fn(usize) -> Option<usize>,
    /// Takes them back.
    pub release: fn(Span),
}

/// Huge pages, and places for more.
pub struct Pool {
    places: usize,
    /// A word for each chunk: its places that are in use. All of them: one thread may be about to reserve the chunk,
    /// or to give it back.
    in_use: Words,
    ready: Words,
    /// Where each chunk is; 0: nowhere yet, or any more.
    at: Words,
    /// Chunks that there ever were.
    chunks: AtomicUsize,
    /// `None`: all chunks are there, from the beginning to the end.
    source: Option<Source>,
    /// How many are ready; for a moment it may differ.
    count: AtomicUsize,
    /// How many of them are to be kept until they are taken.
    owed: AtomicUsize,
    /// How many are to be ready for windows to come; a thread may sleep until that is not 0.
    asked: Futex,
}

impl Pool {
    /// A pool of holes, `bytes` of addresses that `reserve` finds, at a multiple of 2 MiB. `None` when it finds none,
    /// or when there is no memory for tables. The tables are made first, so that a failure leaves nothing reserved.
    pub fn new(bytes: usize, reserve: impl FnOnce(usize) -> Option<usize>) -> Option<Self> {
        let pool = Self::with_places(bytes / SLOT)?;
        let start = reserve(bytes)?;
        pool.at.iter().enumerate().for_each(|(i, at)| at.store(start + i * CHUNK * SLOT, Ordering::Relaxed));
        pool.chunks.store(pool.at.len(), Ordering::Relaxed);
        Some(pool)
    }

    /// One for up to `bytes`, which has its addresses from `source` when it needs them.
    pub fn growing(bytes: usize, source: Source) -> Option<Self> {
        Some(Self { source: Some(source), ..Self::with_places((bytes / SLOT).next_multiple_of(CHUNK))? })
    }

    fn with_places(places: usize) -> Option<Self> {
        let words = || Words::new(places.div_ceil(CHUNK));
        Some(Self {
            places,
            in_use: words()?,
            ready: words()?,
            at: words()?,
            chunks: AtomicUsize::new(0),
            source: None,
            count: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            asked: Futex::new(0),
        })
    }

    /// How many frames wait.
    pub fn ready(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Its addresses, if it does not grow.
    pub fn span(&self) -> Option<Span> {
        let start = self.source.is_none().then(|| self.at[0].load(Ordering::Relaxed))?;
        Some(Span::new(start, self.places * SLOT))
    }

    fn all(&self, chunk: usize) -> usize {
        (1 << CHUNK.min(self.places - chunk * CHUNK)) - 1
    }

    /// Chunks that there ever were.
    fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Acquire)
    }

    /// The address of a place that the caller holds.
    fn frame(&self, place: usize) -> usize {
        self.at[place / CHUNK].load(Ordering::Acquire) + place % CHUNK * SLOT
    }

    /// The place of a frame, whose holder keeps its chunk where it is.
    fn place(&self, frame: usize) -> usize {
        let offset = |chunk: usize| frame.wrapping_sub(self.at[chunk].load(Ordering::Acquire));
        let has_it = |chunk: &usize| offset(*chunk) < CHUNK * SLOT;
        let chunk = (0..self.chunks()).find(has_it).expect("a frame of this pool");
        debug_assert_eq!(offset(chunk) % SLOT, 0);
        chunk * CHUNK + offset(chunk) / SLOT
    }

    /// Sets or clears the bit of a place; whether it was another before.
    fn turn(words: &Words, place: usize, on: bool) -> bool {
        let (word, bit) = (&words[place / CHUNK], 1 << (place % CHUNK));
        // The next holder of the frame sees what was done to it before.
        let before =
            if on { word.fetch_or(bit, Ordering::AcqRel) } else { word.fetch_and(!bit, Ordering::AcqRel) };
        (before & bit != 0) != on
    }

    /// A frame that waits; it is the caller's until [`Self::put_back`] or [`Self::leave`].
    pub fn take(&self) -> Option<usize> {
        if self.ready() == 0 {
            return None;
        }
        for at in 0..self.chunks() {
            loop {
                let word = self.ready[at].load(Ordering::Relaxed);
                if word == 0 {
                    break;
                }
                let place = at * CHUNK + word.trailing_zeros() as usize;
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
        let place = self.place(frame);
        Self::turn(&self.in_use, place, false);
        // One chunk stays, so that not each fault maps and unmaps one.
        if place >= CHUNK {
            self.give_back(place / CHUNK);
        }
    }

    /// Gives the addresses of a chunk back, if none of its places is in use.
    fn give_back(&self, chunk: usize) {
        let (Some(source), word, all) = (self.source, &self.in_use[chunk], self.all(chunk)) else { return };
        if word.compare_exchange(0, all, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let at = self.at[chunk].swap(0, Ordering::AcqRel);
            if at != 0 {
                (source.release)(Span::new(at, CHUNK * SLOT));
            }
            word.store(0, Ordering::Release);
        }
    }

    /// Reserves the addresses of a chunk in which no place is in use; the first of its places is the caller's.
    fn reserve(&self, chunk: usize) -> Option<usize> {
        let (word, all) = (&self.in_use[chunk], self.all(chunk));
        word.compare_exchange(0, all, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let at = Some(self.at[chunk].load(Ordering::Acquire)).filter(|at| *at != 0);
        let at = at.or_else(|| (self.source?.reserve)(CHUNK * SLOT));
        if let Some(at) = at {
            self.at[chunk].store(at, Ordering::Release);
            self.chunks.fetch_max(chunk + 1, Ordering::AcqRel);
        }
        word.store(at.is_some() as usize, Ordering::Release);
        at
    }

    /// One or the other, as it is there or not.
    pub fn let_go(&self, frame: usize, is_there: bool) {
        if is_there { self.put_back(frame) } else { self.leave(frame) }
    }

    /// A place for another frame; it is the caller's as one that was taken.
    pub fn begin(&self) -> Option<usize> {
        let there = (0..self.chunks()).find_map(|chunk| self.begin_in(chunk));
        there.or_else(|| {
            let is_absent = |chunk: &usize| self.at[*chunk].load(Ordering::Acquire) == 0;
            let mut absent = (0..self.at.len()).filter(is_absent).take(TRIES);
            absent.find_map(|chunk| self.reserve(chunk).or_else(|| self.begin_in(chunk)))
        })
    }

    /// A place of a chunk that is there.
    fn begin_in(&self, chunk: usize) -> Option<usize> {
        loop {
            let used = self.in_use[chunk].load(Ordering::Acquire);
            let free = !used & self.all(chunk);
            if free == 0 || self.at[chunk].load(Ordering::Acquire) == 0 {
                return None;
            }
            let place = chunk * CHUNK + free.trailing_zeros() as usize;
            if Self::turn(&self.in_use, place, true) {
                // It may have been given back since that look.
                if self.at[chunk].load(Ordering::Acquire) != 0 {
                    return Some(self.frame(place));
                }
                Self::turn(&self.in_use, place, false);
            }
        }
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
        // First, so that another thread does not take it for one that need not be kept.
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

    /// A frame that need not be kept; it is taken as by [`Self::take`].
    pub fn take_unkept(&self) -> Option<usize> {
        let owed = self.owed.load(Ordering::Relaxed);
        let frame = if self.has_unkept() { self.take() } else { None };
        if frame.is_some() && owed > 0 {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }

    /// Asks for `frames` to be ready, beside those that are kept for something else.
    pub fn ask(&self, frames: usize) {
        if self.ready() < frames && self.asked.swap(frames as u32, Ordering::Relaxed) == 0 {
            self.asked.wake_all();
        }
    }

    /// How many are still asked for.
    pub fn missing(&self) -> usize {
        (self.asked.load(Ordering::Relaxed) as usize).saturating_sub(self.ready())
    }

    /// Nothing is asked for any more, until the next [`Self::ask`].
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

    /// Addresses of chunks, of which none is given out twice.
    static CHUNKS: std::sync::Mutex<(usize, BTreeSet<usize>)> = std::sync::Mutex::new((0, BTreeSet::new()));

    fn find(bytes: usize) -> Option<usize> {
        let mut chunks = CHUNKS.lock().unwrap();
        if chunks.1.len() == 3 {
            return None;
        }
        chunks.0 += bytes;
        let at = chunks.0;
        chunks.1.insert(at);
        Some(at)
    }

    fn give_back(span: Span) {
        assert!(CHUNKS.lock().unwrap().1.remove(&span.start), "it was given back");
    }

    #[test]
    fn a_pool_that_grows_has_what_it_uses() {
        let there = || CHUNKS.lock().unwrap().1.len();
        let pool = Pool::growing(100 * SLOT, Source { reserve: find, release: give_back }).unwrap();
        assert_eq!((there(), pool.take()), (0, None));
        assert!((0..CHUNK).all(|_| pool.make(|_| true)) && there() == 1);
        assert!(pool.make(|_| true) && there() == 2);
        while pool.make(|_| true) {}
        assert_eq!((pool.ready(), there()), (3 * CHUNK, 3), "no more is to be had");
        let all: BTreeSet<_> = core::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), 3 * CHUNK);
        all.iter().skip(1).for_each(|frame| pool.leave(*frame));
        assert_eq!(there(), 1);
        pool.put_back(*all.first().unwrap());
        // Where the others were, and with other addresses.
        assert!(
            (0..2 * CHUNK)
                .all(|_| pool.make(|frame| !all.contains(&frame) || frame < all.first().unwrap() + CHUNK * SLOT))
        );
        assert_eq!((pool.ready(), there()), (2 * CHUNK + 1, 3));
    }

    #[test]
    fn threads_that_take_and_leave_have_frames_for_themselves() {
        static TAKEN: std::sync::Mutex<BTreeSet<usize>> = std::sync::Mutex::new(BTreeSet::new());
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = |bytes| Some(NEXT.fetch_add(bytes, Ordering::Relaxed) + (1 << 40));
        let pool = Pool::growing(200 * SLOT, Source { reserve: next, release: |_| {} }).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..500 {
                        let own: std::vec::Vec<_> = (0..round % 40).filter_map(|_| pool.begin()).collect();
                        for frame in &own {
                            assert!(TAKEN.lock().unwrap().insert(*frame), "somebody else has it");
                        }
                        for frame in own {
                            TAKEN.lock().unwrap().remove(&frame);
                            pool.leave(frame);
                        }
                    }
                });
            }
        });
        assert!(pool.begin().is_some());
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
