//! The pool: frames that lie apart from the arena, at places that no forked child has, because the kernel moves no
//! page that two processes share. Regions take frames from here, and give theirs back.
//!
//! A place is a slot like those of the arena, with the same states ([`State`]). No lock protects it: who moves it out
//! of `Unbacked`, `Dirty` or `Zeroed` owns it ([`Slots::detach`]), until it puts it back. So a signal handler takes a
//! frame without waiting.
//!
//! The pool has its addresses in chunks. So a program with a limit of addresses, or one that locks all memory,
//! pays for the places in use and one chunk at most. A chunk without users goes back. Its count of users says who
//! may do that: who takes a place first counts itself in.

use faultless_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use faultless_base::sync::{self, Words};
use faultless_base::{SLOT, Slot, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::slot::{Slots, State};

/// Places of a chunk.
pub const CHUNK: usize = 16;
/// Absent chunks that are tried: other threads may be at the first ones, or the kernel may refuse.
const TRIES: usize = 4;
/// Users of a chunk whose addresses come or go right now.
const CHANGING: usize = usize::MAX;

/// Frames, and places for more.
pub struct Pool {
    slots: Slots,
    /// When each frame came back, in ms; written by its owner before it lets go.
    stamps: &'static [AtomicU32],
    /// Of each chunk: its places that are not free holes, or [`CHANGING`].
    users: Words,
    /// Of each chunk: where it is; 0: nowhere. It stays there while a thread has a place of it.
    at: Words,
    /// Chunks that there ever were.
    chunks: AtomicUsize,
    /// Free frames, dirty and zeroed; for a moment it may differ.
    free: [AtomicUsize; 2],
}

fn index(kind: Kind) -> Option<usize> {
    (kind as usize).checked_sub(1)
}

/// The chunk of a place.
fn chunk_of(place: Slot) -> usize {
    place.number() / CHUNK
}

impl Pool {
    /// Places for up to `bytes`, without addresses yet. `None` when there is no memory for tables.
    pub fn new(bytes: usize) -> Option<Self> {
        let places = (bytes / SLOT).next_multiple_of(CHUNK);
        let words = || Words::new(places / CHUNK);
        let none = || AtomicUsize::new(0);
        Some(Self {
            slots: Slots::new(sync::words(places + 1)?),
            stamps: sync::words(places)?,
            users: words()?,
            at: words()?,
            chunks: none(),
            free: [none(), none()],
        })
    }

    /// Free frames of a kind that has memory.
    pub fn free(&self, kind: Kind) -> usize {
        index(kind).map_or(0, |kind| self.free[kind].load(Ordering::Relaxed))
    }

    /// All places of chunks that there ever were.
    fn places(&self) -> impl Iterator<Item = Slot> + use<> {
        Extent { first: Slot::new(0), n: self.chunks.load(Ordering::Acquire) * CHUNK }.slots()
    }

    /// The address of a place that the caller has.
    fn address(&self, place: Slot) -> usize {
        self.at[chunk_of(place)].load(Ordering::Acquire) + place.number() % CHUNK * SLOT
    }

    /// The place at an address; `None`: no place of this pool that is in use.
    pub fn place(&self, at: usize) -> Option<Slot> {
        let offset = |chunk: usize| at.wrapping_sub(self.at[chunk].load(Ordering::Acquire));
        let has_it = |chunk: &usize| offset(*chunk) < CHUNK * SLOT;
        let chunk = (0..self.chunks.load(Ordering::Acquire)).find(has_it)?;
        Some(Slot::new(chunk * CHUNK) + offset(chunk) / SLOT)
    }

    /// The first free frame that is meant, of so many; it is the caller's until [`Pool::give`]. The others stay as old as
    /// they are.
    pub fn take_if(&self, kind: Kind, most: usize, is_meant: impl Fn(usize) -> bool) -> Option<usize> {
        if self.free(kind) == 0 {
            return None;
        }
        let mut free = self.places().filter(|place| self.detach(*place, kind)).take(most);
        free.find_map(|place| {
            let at = self.address(place);
            if is_meant(at) {
                return Some(at);
            }
            self.attach(place, kind);
            None
        })
    }

    /// The same for the frame that came back first, if that was `age` ms ago or more.
    pub fn take_older(&self, kind: Kind, now_ms: u32, age_ms: u32) -> Option<usize> {
        if self.free(kind) == 0 {
            return None;
        }
        let age = |place: Slot| now_ms.wrapping_sub(self.stamps[place.number()].load(Ordering::Relaxed));
        let is_free = |place: &Slot| self.slots.state(*place) == kind.state();
        let oldest = self.places().filter(is_free).max_by_key(|place| age(*place))?;
        (age(oldest) >= age_ms && self.detach(oldest, kind)).then(|| self.address(oldest))
    }

    fn detach(&self, place: Slot, kind: Kind) -> bool {
        let state = kind.state();
        let taken = self.slots.state(place) == state && self.slots.detach(place, state);
        if taken && let Some(kind) = index(kind) {
            self.free[kind].fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// What has memory is free.
    fn attach(&self, place: Slot, kind: Kind) {
        if let Some(kind) = index(kind) {
            self.free[kind].fetch_add(1, Ordering::Relaxed);
        }
        self.slots.set(place, kind.state());
    }

    /// A place without memory; it is the caller's until [`Pool::give`]. Where there is none left, `reserve` finds
    /// addresses for more, open and with huge pages advised.
    pub fn hole(&self, reserve: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let there = (0..self.chunks.load(Ordering::Acquire)).find_map(|chunk| self.hole_in(chunk));
        there.or_else(|| {
            let is_absent = |chunk: &usize| self.at[*chunk].load(Ordering::Acquire) == 0;
            let mut absent = (0..self.at.len()).filter(is_absent).take(TRIES);
            absent.find_map(|chunk| self.reserve(chunk, &reserve).or_else(|| self.hole_in(chunk)))
        })
    }

    /// A place of a chunk that is there.
    fn hole_in(&self, chunk: usize) -> Option<usize> {
        let is_there = || self.at[chunk].load(Ordering::Acquire) != 0;
        let one_more = |users: usize| (users < CHUNK).then(|| users + 1);
        if !is_there() || self.users[chunk].fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return None;
        }
        // It may have gone since that look.
        if !is_there() {
            self.users[chunk].fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(self.claim(chunk))
    }

    /// The place of a thread that has counted itself in: there are as many holes as users that have none yet.
    fn claim(&self, chunk: usize) -> usize {
        loop {
            let mut places = Extent { first: Slot::new(chunk * CHUNK), n: CHUNK }.slots();
            if let Some(place) = places.find(|place| self.detach(*place, Kind::Unbacked)) {
                return self.address(place);
            }
        }
    }

    /// Reserves the addresses of a chunk without users; a place of it is the caller's.
    fn reserve(&self, chunk: usize, reserve: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        self.begin_change(chunk).then_some(())?;
        let at = Some(self.at[chunk].load(Ordering::Acquire)).filter(|at| *at != 0);
        let at = at.or_else(|| reserve(CHUNK * SLOT));
        if let Some(at) = at {
            self.at[chunk].store(at, Ordering::Release);
            self.chunks.fetch_max(chunk + 1, Ordering::AcqRel);
        }
        self.users[chunk].store(at.is_some() as usize, Ordering::SeqCst);
        at.map(|_| self.claim(chunk))
    }

    fn begin_change(&self, chunk: usize) -> bool {
        self.users[chunk].compare_exchange(0, CHANGING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The caller is done with a place, and this is what is in it now. Addresses that are not in use go back by `release`.
    pub fn give(&self, place: Slot, kind: Kind, now_ms: u32, release: impl FnOnce(Span)) {
        debug_assert_eq!(self.slots.state(place), State::InTransit);
        self.stamps[place.number()].store(now_ms, Ordering::Relaxed);
        self.attach(place, kind);
        let chunk = chunk_of(place);
        let is_last = kind == Kind::Unbacked && self.users[chunk].fetch_sub(1, Ordering::SeqCst) == 1;
        // One chunk stays, so that not each fault maps and unmaps one.
        if is_last && chunk > 0 && self.begin_change(chunk) {
            let at = self.at[chunk].swap(0, Ordering::AcqRel);
            if at != 0 {
                release(Span::new(at, CHUNK * SLOT));
            }
            self.users[chunk].store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::vec::Vec;

    const KINDS: [Kind; 2] = [Kind::Dirty, Kind::Zeroed];

    /// Addresses that are there, and where the next ones are.
    struct Addresses(Mutex<(BTreeSet<usize>, usize)>);

    impl Addresses {
        fn new() -> Self {
            Self(Mutex::new((BTreeSet::new(), 1 << 40)))
        }

        fn reserve(&self, bytes: usize) -> Option<usize> {
            let mut all = self.0.lock().unwrap();
            let at = all.1;
            all.1 += bytes;
            all.0.insert(at);
            Some(at)
        }

        fn release(&self, span: Span) {
            assert!(self.0.lock().unwrap().0.remove(&span.start), "released twice");
        }

        fn count(&self) -> usize {
            self.0.lock().unwrap().0.len()
        }
    }

    fn take(pool: &Pool, kind: Kind) -> Option<usize> {
        pool.take_if(kind, 1, |_| true)
    }

    fn give(pool: &Pool, addresses: &Addresses, at: usize, kind: Kind, now: u32) {
        pool.give(pool.place(at).unwrap(), kind, now, |span| addresses.release(span));
    }

    #[test]
    fn each_frame_is_in_one_place_and_addresses_follow_use() {
        let (pool, addresses) = (Pool::new(3 * CHUNK * SLOT).unwrap(), Addresses::new());
        let hole = || pool.hole(|bytes| addresses.reserve(bytes));
        assert!(KINDS.iter().all(|kind| take(&pool, *kind).is_none()) && addresses.count() == 0);
        let all: BTreeSet<usize> = core::iter::from_fn(hole).collect();
        assert_eq!((all.len(), addresses.count()), (3 * CHUNK, 3));
        for (i, at) in all.iter().enumerate() {
            give(&pool, &addresses, *at, KINDS[i % 2], 0);
        }
        assert_eq!(KINDS.map(|kind| pool.free(kind)), [3 * CHUNK / 2; 2]);
        assert_eq!(hole(), None, "none is a hole before it is given as one");
        let next = || KINDS.into_iter().find_map(|kind| take(&pool, kind));
        let taken: BTreeSet<usize> = core::iter::from_fn(next).collect();
        assert_eq!(taken, all);
        taken.iter().for_each(|at| give(&pool, &addresses, *at, Kind::Unbacked, 0));
        assert_eq!(addresses.count(), 1, "one chunk stays");
    }

    #[test]
    fn the_oldest_comes_first() {
        let (pool, addresses) = (Pool::new(CHUNK * SLOT).unwrap(), Addresses::new());
        let frames: Vec<usize> = (0..3).map(|_| pool.hole(|bytes| addresses.reserve(bytes)).unwrap()).collect();
        for (at, now) in frames.iter().zip([20, 10, 30]) {
            give(&pool, &addresses, *at, Kind::Dirty, now);
        }
        assert_eq!(pool.take_older(Kind::Dirty, 40, 31), None);
        // Those that are looked at are no younger for that.
        assert_eq!(pool.take_if(Kind::Dirty, 2, |at| at == frames[2]), None);
        assert_eq!(pool.take_if(Kind::Dirty, 3, |at| at == frames[2]), Some(frames[2]));
        give(&pool, &addresses, frames[2], Kind::Dirty, 30);
        assert_eq!(pool.take_older(Kind::Dirty, 40, 30), Some(frames[1]));
        assert_eq!(pool.take_older(Kind::Dirty, 40, 0), Some(frames[0]));
        assert_eq!(pool.take_older(Kind::Zeroed, 40, 0), None);
    }

    #[test]
    fn threads_that_take_and_give_have_frames_for_themselves() {
        let taken = Mutex::new(BTreeSet::new());
        let (pool, addresses) = (Pool::new(200 * SLOT).unwrap(), Addresses::new());
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (pool, addresses, taken) = (&pool, &addresses, &taken);
                scope.spawn(move || {
                    for round in 0..500 {
                        let take = |i: usize| match (i + thread) % 3 {
                            0 => take(pool, Kind::Dirty),
                            1 => take(pool, Kind::Zeroed),
                            _ => pool.hole(|bytes| addresses.reserve(bytes)),
                        };
                        let own: Vec<usize> = (0..round % 40).filter_map(take).collect();
                        own.iter()
                            .for_each(|at| assert!(taken.lock().unwrap().insert(*at), "somebody else has it"));
                        for (i, at) in own.iter().enumerate() {
                            taken.lock().unwrap().remove(at);
                            let kind = [Kind::Unbacked, Kind::Dirty, Kind::Zeroed][(i + round) % 3];
                            give(pool, addresses, *at, kind, 0);
                        }
                    }
                });
            }
        });
        for kind in KINDS {
            let mut n = 0;
            while let Some(at) = take(&pool, kind) {
                give(&pool, &addresses, at, Kind::Unbacked, 0);
                n += 1;
            }
            assert_eq!((pool.free(kind), n <= 200), (0, true));
        }
        assert_eq!(addresses.count(), 1);
    }
}
