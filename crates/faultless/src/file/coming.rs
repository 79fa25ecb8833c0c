//! The thread that brings what reads will need next, while the program uses what they brought before.
//!
//! There is one for all files of the process. It starts with the first request, and ends when there was none for a while.
//! A reader has one request at a time. It waits for that before it ends, so no file stays open for a request.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::file::shared::Shared;
use crate::process::masked::Masked;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// How long the thread waits for requests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of a file that a reader will need.
struct Request {
    shared: Arc<Shared>,
    reader: usize,
    range: Range<usize>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Whose request the thread has taken.
    running: Option<usize>,
    has_thread: bool,
}

#[derive(Default)]
struct Worker {
    state: Mutex<State>,
    /// A request has come, or one has ended.
    changed: Condvar,
}

/// A child makes its own: it has no thread of its parent's.
static WORKER: OfProcess<Worker> = OfProcess::new();

fn worker() -> &'static Worker {
    WORKER.get(Worker::default)
}

impl Worker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            let Some(request) = state.waiting.pop_front() else {
                let waited = self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                if waited.1.timed_out() && state.waiting.is_empty() {
                    state.has_thread = false;
                    return;
                }
                continue;
            };
            state.running = Some(request.reader);
            drop(state);
            // A reader that waits must not wait for ever.
            let _ = catch_unwind(AssertUnwindSafe(|| request.bring()));
            state = self.state();
            state.running = None;
            self.changed.notify_all();
        }
    }
}

impl Request {
    /// What cannot be had is left to the read that needs it, which gets the error.
    fn bring(self) {
        // It does not wait: who takes bytes away may wait for a reader that waits for this.
        let Some(_using) = self.shared.try_using() else { return };
        let engine = &self.shared.engine;
        let end = self.range.end.min(engine.length());
        if self.range.start < end {
            let _ = engine.prefetch([(self.range.start, end - self.range.start)].into_iter());
        }
    }
}

/// Has a part of a file come; whether it will. No: the reader has a request already, or no thread can be had.
pub(super) fn ask(shared: &Arc<Shared>, reader: usize, range: Range<usize>) -> bool {
    let _masked = Masked::new();
    let worker = worker();
    let mut state = worker.state();
    if state.is_asked(reader) {
        return false;
    }
    state.waiting.push_back(Request { shared: Arc::clone(shared), reader, range });
    if !state.has_thread {
        state.has_thread = Thread::start(c"faultless-ahead", || self::worker().work()).is_ok();
        if !state.has_thread {
            state.waiting.clear();
            return false;
        }
    }
    drop(state);
    worker.changed.notify_all();
    true
}

/// Waits for the end of a reader's request; whether it was made. One that has not begun is dropped.
pub(super) fn wait(reader: usize) -> bool {
    let _masked = Masked::new();
    let worker = worker();
    let mut state = worker.state();
    let before = state.waiting.len();
    state.waiting.retain(|request| request.reader != reader);
    let is_made = state.waiting.len() == before;
    while state.running == Some(reader) {
        state = worker.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    is_made
}

impl State {
    fn is_asked(&self, reader: usize) -> bool {
        self.running == Some(reader) || self.waiting.iter().any(|request| request.reader == reader)
    }
}
