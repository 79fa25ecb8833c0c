//! What a handle reads next, as far as its last reads say.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_base::{PAGE, SLOT};

use crate::file::coming;
use crate::file::local::LocalFile;
use crate::file::shared::Shared;

/// The largest window.
const MOST: usize = 32 << 20;

/// The smallest window.
const LEAST: usize = 64 << 10;

/// When reads bring what comes next.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Where they follow each other.
    #[default]
    ByReads,
    /// From the first on.
    Always,
    Never,
}

#[derive(Default)]
struct State {
    ahead: Ahead,
    /// Where the last read ended.
    next: usize,
    /// What was brought ahead ends there.
    end: usize,
    /// What is on its way ends there; 0: nothing is.
    coming: usize,
    /// Bytes that are brought ahead at a time; 0 while reads do not follow each other.
    window: usize,
}

/// The reads of one handle.
pub(super) struct ReadAhead {
    state: Mutex<State>,
    /// Its number among those that ask for parts to come.
    reader: usize,
    has_asked: AtomicBool,
}

/// How many there have been.
static READERS: AtomicUsize = AtomicUsize::new(0);

impl ReadAhead {
    pub(super) fn new() -> Self {
        let reader = READERS.fetch_add(1, Ordering::Relaxed);
        Self { state: Mutex::default(), reader, has_asked: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is from now on.
    pub(super) fn choose(&self, ahead: Ahead) {
        self.stop();
        *self.state() = State { ahead, ..State::default() };
    }

    /// Waits until nothing comes any more.
    pub(super) fn stop(&self) {
        if self.has_asked.load(Ordering::Relaxed) {
            coming::wait(self.reader);
        }
    }

    /// A read of this many bytes, all inside the file, begins. It is made in pieces, for each of which this is called;
    /// how many bytes of it are one. What is worth it is in memory then, or on its way, with many requests at a time.
    pub(super) fn before_read(&self, shared: &Arc<Shared>, at: usize, bytes: usize) -> usize {
        let engine = &shared.engine;
        let unit = if engine.is_huge() { SLOT } else { PAGE };
        // What came before, a piece, and what comes behind it have room together.
        let most = (engine.capacity() / 4).min(MOST).max(unit);
        let piece = bytes.min(most);
        let needed = at + piece;
        let mut state = self.state();
        let follows = match state.ahead {
            Ahead::ByReads => at == state.next && at > 0,
            Ahead::Always => at == state.next || state.end == 0,
            Ahead::Never => false,
        };
        if !follows {
            *state = State { ahead: state.ahead, end: at, ..State::default() };
        }
        state.next = needed;
        let mut is_late = false;
        if needed > state.end && state.coming > state.end {
            (state, is_late) = self.wait(state);
        }
        if needed > state.end {
            let from = at.max(state.end);
            state.end = needed.next_multiple_of(unit).min(engine.length());
            let range = from..state.end;
            drop(state);
            if range.len() > unit {
                bring(shared, range);
            }
            state = self.state();
        }
        // The rest of this read will be needed, whatever comes after it.
        let rest = if state.ahead == Ahead::Never { 0 } else { bytes - piece };
        // The kernel reads ahead where its page cache is used, and other backings read one part after the other.
        let is_direct = engine.backing().local().is_some_and(LocalFile::is_direct);
        if is_direct && (follows || rest > 0) && state.next == needed && state.coming <= state.end {
            let least = if state.ahead == Ahead::Always { most } else { LEAST.max(2 * unit) };
            state.window = (2 * state.window).max(least).max(rest).min(most);
            let range = state.end..(state.end + state.window).min(engine.length());
            if !is_late && !range.is_empty() && coming::ask(shared, self.reader, range.clone()) {
                state.coming = range.end;
                self.has_asked.store(true, Ordering::Relaxed);
            } else {
                state.end = range.end;
                drop(state);
                bring(shared, range);
            }
        }
        piece
    }

    /// Waits for what is on its way; whether it comes too late, because others go first.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let awaited = state.coming;
        // Other threads read meanwhile.
        drop(state);
        let has_come = coming::wait(self.reader);
        let mut state = self.state();
        if state.coming == awaited {
            (state.end, state.coming) = if has_come { (awaited, 0) } else { (state.end, 0) };
        }
        (state, !has_come)
    }
}

/// An error is the read's that needs those bytes.
fn bring(shared: &Shared, range: Range<usize>) {
    if !range.is_empty() {
        let _ = shared.engine.prefetch([(range.start, range.len())].into_iter());
    }
}
