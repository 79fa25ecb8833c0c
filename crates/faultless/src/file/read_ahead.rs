//! What a handle reads next, as far as its last reads say.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_base::sys::file_memory::UserMemory;
use faultless_base::{PAGE, SLOT};
use faultless_mm::cache::Cache;

use crate::file::local::LocalFile;
use crate::file::source::Source;

/// The largest window.
const MOST: usize = 32 << 20;
/// A file of which less is left is read in windows alone. What goes on between calls takes some ten ms to end, where the
/// process ends at once.
const LEAST_STREAMED: usize = 128 << 20;

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

/// Tells readers apart.
static READERS: AtomicUsize = AtomicUsize::new(1);

#[derive(Default)]
struct State {
    ahead: Ahead,
    /// Its number as a reader whose reads go on between calls; 0: it is none.
    reader: usize,
    /// Where the last read ended.
    next: usize,
    /// What was brought ahead ends there.
    end: usize,
    /// Bytes that are brought ahead at a time; 0 while reads do not follow each other.
    window: usize,
}

/// The reads of one handle.
#[derive(Default)]
pub(super) struct ReadAhead(Mutex<State>);

impl ReadAhead {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is from now on.
    pub(super) fn choose(&self, ahead: Ahead) {
        *self.state() = State { ahead, ..State::default() };
    }

    /// A read of this many bytes, all inside the file, begins. It is made in pieces, for each of which this is called;
    /// how many bytes of it are one. What is worth it comes before, with many requests at a time.
    pub(super) fn before_read(&self, engine: &Cache<UserMemory, Source>, at: usize, bytes: usize) -> usize {
        let unit = if engine.is_huge() { SLOT } else { PAGE };
        // What comes ahead must not drive out itself.
        let most = (engine.capacity() / 2).min(MOST).max(unit);
        let piece = bytes.min(most);
        let mut state = self.state();
        let follows = match state.ahead {
            Ahead::ByReads => at == state.next && at > 0,
            Ahead::Always => at == state.next || state.end == 0,
            Ahead::Never => false,
        };
        state.next = at + piece;
        if !follows {
            state.window = 0;
            state.end = 0;
        }
        if follows && at + piece <= state.end {
            return piece;
        }
        // The kernel reads ahead where its page cache is used, and other backings read one part after the other.
        if follows && engine.backing().local().is_some_and(LocalFile::is_direct) {
            let least = if state.ahead == Ahead::Always { most } else { 2 * unit };
            state.window = (2 * state.window).clamp(least, most.max(2 * unit));
        }
        if follows && engine.length() - at >= LEAST_STREAMED && state.reader == 0 {
            state.reader = READERS.fetch_add(1, Ordering::Relaxed);
        }
        if follows && state.reader > 0 {
            // What is there is used while the next is under way.
            let part = piece.min(SLOT - at % SLOT);
            let to = (at + part).next_multiple_of(SLOT).min(engine.length());
            let (reader, slots) = (state.reader, state.window.min(most) / SLOT);
            (state.next, state.end) = (at + part, to);
            drop(state);
            if engine.stream(reader, at, to - at, slots) {
                return part;
            }
            state = self.state();
            (state.next, state.end, state.reader) = (at + piece, at, 0);
        }
        let from = at.max(state.end);
        let to = (at + piece).next_multiple_of(unit).saturating_add(state.window).min(engine.length());
        // The other side of a half of what there is room for is for others.
        let to = to.min(from.saturating_add(most).max(at + piece));
        state.end = to;
        drop(state);
        if to - from > unit {
            // An error is the read's that needs those bytes.
            let _ = engine.prefetch([(from, to - from)].into_iter());
        }
        piece
    }
}
