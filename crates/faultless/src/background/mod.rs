//! Work on memory that goes on in the background, with progress, an end to wait for, and a way to stop it.

pub mod owner;
pub mod reserve;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use faultless_base::sys::thread;

use crate::error::Error;
use crate::process::masked::Masked;
use crate::process::owner::Owner;
use crate::process::thread::Thread;

/// A step: whether there is any use in more of them, or why it could not be done.
type Step = Box<dyn Fn(usize) -> Result<bool, Error> + Send + Sync>;

struct Job {
    steps: usize,
    done: AtomicUsize,
    state: Mutex<State>,
    /// A step has ended, and no other is under way.
    rests: Condvar,
    step: Step,
}

#[derive(Default)]
struct State {
    begun: usize,
    running: usize,
    ended: bool,
    error: Option<Error>,
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does steps until all are begun, or a caller ends it.
    fn work(&self) {
        while let Some(n) = self.begin() {
            // A thread that is lost would be waited for in vain.
            let step = catch_unwind(AssertUnwindSafe(|| (self.step)(n)));
            self.end(step.unwrap_or(Err(Error::Kernel(libc::EIO))));
        }
    }

    fn begin(&self) -> Option<usize> {
        let mut state = self.state();
        if state.ended || state.begun == self.steps {
            return None;
        }
        state.running += 1;
        state.begun += 1;
        Some(state.begun - 1)
    }

    fn end(&self, step: Result<bool, Error>) {
        let mut state = self.state();
        match step {
            Ok(true) => drop(self.done.fetch_add(1, Ordering::Release)),
            Ok(false) => state.ended = true,
            Err(error) => {
                state.error.get_or_insert(error);
                state.ended = true;
            }
        }
        state.running -= 1;
        if state.running == 0 {
            self.rests.notify_all();
        }
    }

    fn rest(&self) -> MutexGuard<'_, State> {
        let rest = self.rests.wait_while(self.state(), |state| state.running > 0);
        rest.unwrap_or_else(PoisonError::into_inner)
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
    /// Starts `steps` steps of `step_bytes` each.
    pub(crate) fn start(
        priority: Priority,
        steps: usize,
        step_bytes: usize,
        step: impl Fn(usize) -> Result<bool, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let job = Arc::new(Job {
            steps,
            done: AtomicUsize::new(0),
            state: Mutex::default(),
            rests: Condvar::new(),
            step: Box::new(step),
        });
        let work = |job: Arc<Job>| move || job.work();
        if priority == Priority::Ordinary || !owner::start_with(work(job.clone())) {
            let shared = job.clone();
            let work = move || {
                if priority == Priority::Idle {
                    thread::set_idle();
                }
                shared.work();
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
        self.is_forked() || {
            let state = self.job.state();
            state.running == 0 && (state.ended || state.begun == self.job.steps)
        }
    }

    /// Helps until all is ready, or no more can be made; how many bytes are ready then.
    pub fn wait(&self) -> Result<usize, Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        {
            let _masked = Masked::new();
            self.job.work();
        }
        self.job.rest().error.map_or_else(|| Ok(self.ready()), Err)
    }

    /// Ends it: what is ready stays so.
    pub fn cancel(&self) {
        if !self.is_forked() {
            self.job.state().ended = true;
            drop(self.job.rest());
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
