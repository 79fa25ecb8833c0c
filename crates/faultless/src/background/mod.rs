//! Work on memory that goes on in the background, with progress, an end to wait for, and a way to stop it.

pub mod owner;
pub mod reserve;

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultless_base::sys::{raw, thread};

use crate::error::Error;
use crate::process::bell::Bell;
use crate::process::masked::Masked;
use crate::process::owner::Owner;
use crate::process::thread::Thread;

/// The end of a wait that has none, by the clock of [`raw::now_ns`].
const NEVER: u64 = u64::MAX;

/// What is done step by step, by several threads at a time.
pub(crate) trait Work: Send + Sync {
    /// When a step may begin, by the clock of [`raw::now_ns`]; or why none may any more.
    fn due(&self, _step: usize) -> Result<u64, Error> {
        Ok(0)
    }

    /// A step: whether there is any use in more of them, or why it could not be done.
    fn step(&self, step: usize) -> Result<bool, Error>;
}

impl<F: Fn(usize) -> Result<bool, Error> + Send + Sync> Work for F {
    fn step(&self, step: usize) -> Result<bool, Error> {
        self(step)
    }
}

struct Job {
    steps: usize,
    done: AtomicUsize,
    state: Mutex<State>,
    /// Rings when the last step has ended, and when a step that is not due will not be made.
    bell: Arc<Bell>,
}

struct State {
    begun: usize,
    running: usize,
    ended: bool,
    error: Option<Error>,
    /// Set as long as steps may begin. What it holds, a file for instance, goes with the last step, even while
    /// handles remain.
    work: Option<Arc<dyn Work>>,
    /// Whether it has gone.
    is_gone: bool,
}

/// The state of a job, with signals held back: a handler that asked for it would wait for its own thread.
struct Locked<'a> {
    // Goes first.
    state: MutexGuard<'a, State>,
    masked: Masked,
}

impl Locked<'_> {
    /// Lets the lock go, and holds signals back.
    fn into_mask(self) -> Masked {
        self.masked
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Job {
    fn state(&self) -> Locked<'_> {
        let masked = Masked::new();
        Locked { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), masked }
    }

    /// Does steps until all are begun, a caller ends it, or it is so late. Signals are held back in steps, and not between them: a
    /// program that waits for hours is to hear of them.
    fn work(&self, until: u64) {
        while let Some((n, work, _masked)) = self.begin(until) {
            // A thread that is lost would be waited for in vain.
            let step = catch_unwind(AssertUnwindSafe(|| work.step(n)));
            drop(work);
            self.end(step.unwrap_or(Err(Error::Kernel(libc::EIO))));
        }
    }

    /// The next step, when it is due, with signals held back: a handler that ended the work would wait for the step of
    /// its own thread.
    fn begin(&self, until: u64) -> Option<(usize, Arc<dyn Work>, Masked)> {
        loop {
            let rung = self.bell.rung();
            let left = left(until)?;
            let mut state = self.state();
            let work = match &state.work {
                Some(work) if !state.is_over(self.steps) => work.clone(),
                _ => {
                    self.settle(state);
                    return None;
                }
            };
            let n = state.begun;
            match work.due(n).map(|due| due.saturating_sub(raw::now_ns())) {
                Ok(0) => {
                    state.running += 1;
                    state.begun += 1;
                    return Some((n, work, state.into_mask()));
                }
                Ok(rest) => {
                    // Not after the lock: the next holder of it may take the work for the last one.
                    drop(work);
                    drop(state);
                    self.bell.wait(rung, Some(rest.min(left)));
                }
                // The next turn settles that.
                Err(error) => state.fail(error),
            }
        }
    }

    fn end(&self, step: Result<bool, Error>) {
        let mut state = self.state();
        match step {
            Ok(true) => drop(self.done.fetch_add(1, Ordering::Release)),
            Ok(false) => state.ended = true,
            Err(error) => state.fail(error),
        }
        state.running -= 1;
        self.settle(state);
    }

    /// Lets the work go if that was all of it, and then wakes the threads that wait for the end.
    fn settle(&self, mut state: Locked<'_>) {
        if state.running > 0 || !state.is_over(self.steps) {
            return;
        }
        if let Some(work) = state.work.take() {
            let _masked = state.into_mask();
            drop(work);
            self.state().is_gone = true;
            self.bell.ring();
        }
    }

    /// Waits until the work has gone. No step may begin any more, or there is an end to the wait.
    fn rest(&self, until: u64) -> Option<Locked<'_>> {
        loop {
            let rung = self.bell.rung();
            let state = self.state();
            if state.is_gone {
                return Some(state);
            }
            drop(state);
            self.bell.wait(rung, Some(left(until)?));
        }
    }
}

/// Nanoseconds until then. None: it is past.
fn left(until: u64) -> Option<u64> {
    until.checked_sub(raw::now_ns()).filter(|left| *left > 0)
}

impl State {
    /// Whether no step begins any more.
    fn is_over(&self, steps: usize) -> bool {
        self.ended || self.begun == steps
    }

    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.ended = true;
    }
}

/// How urgent it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// It has no lock that others wait for, and may stand back behind everything else.
    Idle,
    /// As the program itself.
    Ordinary,
}

/// Memory that is being made ready, or is. When this is dropped, that goes on.
pub struct Background {
    job: Arc<Job>,
    step_bytes: usize,
    owner: Owner,
}

impl Background {
    /// Starts `steps` steps of `step_bytes` each. The bell is to ring when that has to end early.
    pub(crate) fn start(
        priority: Priority,
        steps: usize,
        step_bytes: usize,
        bell: Arc<Bell>,
        work: impl Work + 'static,
    ) -> Result<Self, Error> {
        let work: Option<Arc<dyn Work>> = Some(Arc::new(work));
        let state = State { begun: 0, running: 0, ended: false, error: None, work, is_gone: false };
        let job = Arc::new(Job { steps, done: AtomicUsize::new(0), state: Mutex::new(state), bell });
        // There may be no step at all.
        job.settle(job.state());
        let work = |job: Arc<Job>| move || job.work(NEVER);
        if priority == Priority::Ordinary || !owner::start_with(work(job.clone())) {
            let shared = job.clone();
            let work = move || {
                if priority == Priority::Idle {
                    thread::set_idle();
                }
                shared.work(NEVER);
            };
            drop(Thread::start(c"faultless-fill", work)?);
        }
        Ok(Self { job, step_bytes, owner: Owner::here() })
    }

    /// How many bytes it is to be in the end, rounded up.
    pub fn bytes(&self) -> usize {
        self.job.steps.saturating_mul(self.step_bytes)
    }

    /// How many bytes were made ready so far.
    pub fn ready(&self) -> usize {
        self.job.done.load(Ordering::Acquire) * self.step_bytes
    }

    /// Whether no more will be.
    pub fn is_done(&self) -> bool {
        self.is_forked() || self.job.state().is_gone
    }

    /// Helps until all is ready, or no more can be made; how many bytes are ready then. Signals are held back while a
    /// step of 2 MiB is made, and not while there is none to make.
    ///
    /// The error is that of the step that failed first, or [`Error::Cancelled`].
    pub fn wait(&self) -> Result<usize, Error> {
        self.wait_until(NEVER).map(|ready| ready.unwrap_or_else(|| self.ready()))
    }

    /// The same for so long at most, and for the step that is under way then. `None`: it goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<usize>, Error> {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(NEVER);
        self.wait_until(raw::now_ns().saturating_add(timeout))
    }

    fn wait_until(&self, until: u64) -> Result<Option<usize>, Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        self.job.work(until);
        let Some(state) = self.job.rest(until) else { return Ok(None) };
        state.error.map_or_else(|| Ok(Some(self.ready())), Err)
    }

    /// Ends it, and waits for the steps under way. What is ready stays ready. From then on [`Background::wait`] is
    /// [`Error::Cancelled`] in any thread, unless all steps had begun or the work had ended otherwise.
    pub fn cancel(&self) {
        if !self.is_forked() {
            let mut state = self.job.state();
            if !state.is_over(self.job.steps) {
                state.fail(Error::Cancelled);
            }
            self.job.settle(state);
            drop(self.job.rest(NEVER));
        }
    }

    /// The thread is the parent's.
    fn is_forked(&self) -> bool {
        !self.owner.is_here()
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Background({} of {} bytes)", self.ready(), self.bytes())
    }
}
