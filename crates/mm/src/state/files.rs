//! Mappings of files that are read ahead of the program: a short table.
//!
//! A place is free, noted or ended. The program's threads make a free place noted, and a noted one ended. Only the
//! background thread makes one free again, noted or ended. So what it keeps beside the place, behind a lock that it
//! alone takes, belongs to one mapping throughout.

use faultless_base::Span;
use faultless_base::sync::atomic::{
    AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use faultless_base::sync::{TryGuard, TryLock};

use crate::predict::walks::Walks;
use crate::predict::worth::Worth;

/// Mappings that are looked after at a time.
pub(crate) const PLACES: usize = 8;

const FREE: u32 = 0;
/// A thread of the program writes to it.
const FILLED: u32 = 1;
const NOTED: u32 = 2;
/// It ended: the range is unmapped, or the program gave advice of its own.
const GONE: u32 = 3;
const ADVISED: u32 = 4;

/// Why a mapping is not looked after any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is unmapped.
    Gone,
    /// The program gave advice of its own.
    Advised,
}

#[derive(Debug, Default)]
struct Place {
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Faults of the process that had waited for a device when it was mapped.
    faults: AtomicUsize,
}

/// The background thread's part of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) walks: Walks,
    /// The file, and where its first byte would lie.
    pub(crate) file: ((u32, u32, u64), usize),
    /// Whether requests pay; and when that was last told of what the program read, in ns.
    pub(crate) worth: Worth,
    pub(crate) told_ns: u64,
    /// Bytes that were counted as used.
    pub(crate) used: usize,
    /// What one call may ask for.
    pub(crate) piece: usize,
    /// Whether the program has waited for a device since it was mapped.
    pub(crate) is_cold: bool,
    /// When to look again, in ms, and how long after the last look that is.
    pub(crate) next_ms: u32,
    pub(crate) wait_ms: u32,
    /// For how long nothing has changed, in ms.
    pub(crate) quiet_ms: u32,
}

/// The table.
#[derive(Default)]
pub(crate) struct Files {
    places: [Place; PLACES],
    watched: Own,
    /// What may be asked for now, and when that was found out, in ms.
    pub(crate) room: AtomicUsize,
    pub(crate) room_ms: AtomicU32,
}

/// What the background thread keeps beside the places.
struct Own(TryLock<[Option<Watched>; PLACES]>);

impl Default for Own {
    fn default() -> Self {
        Self(TryLock::new([None; PLACES]))
    }
}

impl Files {
    /// The program has mapped a file; whether there is room for it.
    pub(crate) fn note(&self, span: Span, faults: usize) -> bool {
        self.end(span, Ended::Gone);
        let is_free = |place: &&Place| place.state.compare_exchange(FREE, FILLED, Acquire, Relaxed).is_ok();
        let Some(place) = self.places.iter().find(is_free) else { return false };
        place.start.store(span.start, Relaxed);
        place.end.store(span.end, Relaxed);
        place.faults.store(faults, Relaxed);
        place.state.store(NOTED, Release);
        true
    }

    /// What is noted and begins in `span` ended; so did, where that is advice, what lies in it in part.
    pub(crate) fn end(&self, span: Span, how: Ended) {
        for place in self.places.iter().filter(|place| place.state.load(Relaxed) == NOTED) {
            let noted = Span { start: place.start.load(Relaxed), end: place.end.load(Relaxed) };
            let (is_in, state) = match how {
                Ended::Gone => (span.start <= noted.start && noted.end <= span.end, GONE),
                Ended::Advised => (span.start < noted.end && noted.start < span.end, ADVISED),
            };
            if is_in {
                let _ = place.state.compare_exchange(NOTED, state, Relaxed, Relaxed);
            }
        }
    }

    /// Whether nothing is there for the background thread.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.iter().all(|place| matches!(place.state.load(Relaxed), FREE | FILLED))
    }

    /// The background thread's part.
    pub(crate) fn watch(&self) -> Option<TryGuard<'_, [Option<Watched>; PLACES]>> {
        self.watched.0.try_lock()
    }

    /// A mapping that is noted, with the faults from before it.
    pub(crate) fn noted(&self, i: usize) -> Option<(Span, usize)> {
        let place = &self.places[i];
        (place.state.load(Acquire) == NOTED).then(|| {
            let span = Span { start: place.start.load(Relaxed), end: place.end.load(Relaxed) };
            (span, place.faults.load(Relaxed))
        })
    }

    /// By the background thread: how a mapping ended, if it did.
    pub(crate) fn ended(&self, i: usize) -> Option<Ended> {
        match self.places[i].state.load(Acquire) {
            GONE => Some(Ended::Gone),
            ADVISED => Some(Ended::Advised),
            _ => None,
        }
    }

    /// By the background thread: the place is free.
    pub(crate) fn free(&self, i: usize) {
        let state = &self.places[i].state;
        if matches!(state.load(Acquire), NOTED | GONE | ADVISED) {
            state.store(FREE, Release);
        }
    }

    /// In a forked child: none of it.
    pub(crate) fn forget(&self) {
        self.watched.0.force_unlock();
        self.places.iter().for_each(|place| place.state.store(FREE, Relaxed));
        if let Some(mut watched) = self.watch() {
            *watched = [None; PLACES];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_mapping_until_the_background_thread_frees_it() {
        let files = Files::default();
        let span = |i: usize| Span::new(i << 30, 1 << 30);
        assert!(files.is_empty() && (1..=PLACES).all(|i| files.note(span(i), i)));
        assert!(!files.note(span(20), 0), "all places are taken");
        assert_eq!((files.noted(2), files.ended(2)), (Some((span(3), 3)), None));
        files.end(Span::new(span(3).start, 1 << 29), Ended::Gone);
        assert_eq!(files.ended(2), None, "a part of it");
        files.end(span(3), Ended::Gone);
        files.end(Span::new(span(4).end - 4096, 4096), Ended::Advised);
        assert_eq!([2, 3, 4].map(|i| files.ended(i)), [Some(Ended::Gone), Some(Ended::Advised), None]);
        assert!(!files.note(span(20), 0), "not before the background thread has seen it");
        files.free(2);
        assert!(files.note(span(20), 7));
        assert_eq!(files.noted(2), Some((span(20), 7)));
        files.forget();
        assert!(files.is_empty() && files.note(span(1), 0));
    }

    #[test]
    fn a_mapping_over_another_one_ends_it() {
        let files = Files::default();
        let span = Span::new(1 << 30, 1 << 30);
        assert!(files.note(span, 1) && files.note(span, 2));
        assert_eq!((files.ended(0), files.noted(1)), (Some(Ended::Gone), Some((span, 2))));
    }
}
