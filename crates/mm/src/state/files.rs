//! Mappings of files that are read ahead of the program, or brought: a short table.
//!
//! A place is free, noted or ended. The program's threads make a free place noted, and a noted one ended. Only the
//! background thread makes one free again, noted or ended. So what it keeps beside the place, behind a lock that it
//! alone takes, belongs to one mapping throughout.

use faultless_base::Span;
use faultless_base::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use faultless_base::sync::{TryGuard, TryLock};

use faultless_base::sys::FileArea;

use crate::predict::sweep::Sweep;
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
    /// The program gave advice of its own, by which it needs less than all of it, or none.
    Advised,
    /// The same, by which it needs all of it soon: it is still brought.
    Needed,
}

/// What is done for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// It is read ahead. These are the process's faults that had waited for a device when it was mapped.
    Follow { faults: usize },
    /// All of it is brought.
    Bring,
}

#[derive(Debug, Default)]
struct Place {
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Whether it is brought, and not followed.
    is_brought: AtomicBool,
    faults: AtomicUsize,
}

impl Place {
    fn task(&self) -> Task {
        match self.is_brought.load(Relaxed) {
            true => Task::Bring,
            false => Task::Follow { faults: self.faults.load(Relaxed) },
        }
    }
}

/// The background thread's part of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watched {
    Followed(Followed),
    Brought(Brought),
}

/// A mapping that is brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brought {
    pub(crate) span: Span,
    pub(crate) area: FileArea,
    /// What one call may ask for.
    pub(crate) each: usize,
    pub(crate) sweep: Sweep,
    /// Bytes that were brought, and those of the mapping that the program's page tables had at the last look.
    pub(crate) bytes: usize,
    pub(crate) used: usize,
    /// When to look again where the program is, and how long it was waited for the last time, in ms.
    pub(crate) next_ms: u32,
    pub(crate) wait_ms: u32,
}

/// A mapping that is followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
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
    /// What may be asked for now, and brought.
    pub(crate) room: Room,
    pub(crate) room_to_bring: Room,
}

/// A number of bytes, and when that was found out, in ms.
#[derive(Default)]
pub(crate) struct Room {
    bytes: AtomicUsize,
    ms: AtomicU32,
}

impl Room {
    /// The bytes, which `find` finds out anew where the last time was longer ago than this.
    pub(crate) fn get(&self, now: u32, every_ms: u32, find: impl FnOnce() -> usize) -> usize {
        let now = now | 1;
        if now.wrapping_sub(self.ms.load(Relaxed)) > every_ms {
            self.bytes.store(find(), Relaxed);
            self.ms.store(now, Relaxed);
        }
        self.bytes.load(Relaxed)
    }
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
    pub(crate) fn note(&self, span: Span, task: Task) -> bool {
        self.end(span, Ended::Gone);
        let is_free = |place: &&Place| place.state.compare_exchange(FREE, FILLED, Acquire, Relaxed).is_ok();
        let Some(place) = self.places.iter().find(is_free) else { return false };
        place.start.store(span.start, Relaxed);
        place.end.store(span.end, Relaxed);
        place.is_brought.store(task == Task::Bring, Relaxed);
        if let Task::Follow { faults } = task {
            place.faults.store(faults, Relaxed);
        }
        place.state.store(NOTED, Release);
        true
    }

    /// What is noted and begins in `span` ended; so did, where that is advice, what lies in it in part.
    pub(crate) fn end(&self, span: Span, how: Ended) {
        for place in self.places.iter().filter(|place| place.state.load(Relaxed) == NOTED) {
            let noted = Span { start: place.start.load(Relaxed), end: place.end.load(Relaxed) };
            let touches = span.start < noted.end && noted.start < span.end;
            let (is_in, state) = match how {
                Ended::Gone => (span.start <= noted.start && noted.end <= span.end, GONE),
                Ended::Advised => (touches, ADVISED),
                Ended::Needed => (touches && place.task() != Task::Bring, ADVISED),
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

    /// A mapping that is noted, and what is to be done for it.
    pub(crate) fn noted(&self, i: usize) -> Option<(Span, Task)> {
        let place = &self.places[i];
        (place.state.load(Acquire) == NOTED).then(|| {
            let span = Span { start: place.start.load(Relaxed), end: place.end.load(Relaxed) };
            (span, place.task())
        })
    }

    /// By the background thread: what was to be done for the mapping of this place.
    pub(crate) fn task(&self, i: usize) -> Task {
        self.places[i].task()
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
            watched.iter_mut().for_each(|file| *file = None);
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
        let follow = |faults| Task::Follow { faults };
        assert!(files.is_empty() && (1..=PLACES).all(|i| files.note(span(i), follow(i))));
        assert!(!files.note(span(50), Task::Bring), "all places are taken");
        assert_eq!((files.noted(2), files.ended(2)), (Some((span(3), follow(3))), None));
        files.end(Span::new(span(3).start, 1 << 29), Ended::Gone);
        assert_eq!(files.ended(2), None, "a part of it");
        files.end(span(3), Ended::Gone);
        files.end(Span::new(span(4).end - 4096, 4096), Ended::Advised);
        assert_eq!([2, 3, 4].map(|i| files.ended(i)), [Some(Ended::Gone), Some(Ended::Advised), None]);
        assert!(!files.note(span(50), Task::Bring), "not before the background thread has seen it");
        files.free(2);
        assert!(files.note(span(50), Task::Bring));
        files.end(span(50), Ended::Needed);
        assert_eq!((files.noted(2), files.ended(2)), (Some((span(50), Task::Bring)), None));
        files.end(span(50), Ended::Advised);
        assert_eq!(files.ended(2), Some(Ended::Advised));
        files.end(span(5), Ended::Needed);
        assert_eq!(files.ended(4), Some(Ended::Advised));
        files.forget();
        assert!(files.is_empty() && files.note(span(1), follow(0)));
    }

    #[test]
    fn a_mapping_over_another_one_ends_it() {
        let files = Files::default();
        let span = Span::new(1 << 30, 1 << 30);
        assert!(files.note(span, Task::Follow { faults: 1 }) && files.note(span, Task::Bring));
        assert_eq!((files.ended(0), files.noted(1)), (Some(Ended::Gone), Some((span, Task::Bring))));
    }
}
