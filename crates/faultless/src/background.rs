//! Work on memory that goes on in the background, with progress, an end to wait for, and a way to stop it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use faultless_base::sys::thread;

use crate::owner::Owner;
use crate::region::{Error, Masked};

/// A step: whether there is any use in more of them, or why it could not be done.
type Step = Box<dyn Fn(usize) -> Result<bool, Error> + Send + Sync>;

/// What several threads may do together.
struct Job {
    steps: usize,
    begun: AtomicUsize,
    done: AtomicUsize,
    ended: AtomicBool,
    error: OnceLock<Error>,
    step: Step,
}

impl Job {
    /// Does steps until all are begun, or somebody says that it is enough.
    fn work(&self) {
        let next = |n: usize| (n < self.steps).then_some(n + 1);
        while !self.ended.load(Ordering::Relaxed)
            && let Ok(n) = self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        {
            match (self.step)(n) {
                Ok(true) => drop(self.done.fetch_add(1, Ordering::Release)),
                Ok(false) => self.ended.store(true, Ordering::Relaxed),
                Err(error) => {
                    let _ = self.error.set(error);
                    self.ended.store(true, Ordering::Relaxed);
                }
            }
        }
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
    thread: Mutex<Option<JoinHandle<()>>>,
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
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            error: OnceLock::new(),
            step: Box::new(step),
        });
        let shared = job.clone();
        let work = move || {
            let _masked = Masked::new();
            thread::set_idle(priority == Priority::Idle);
            shared.work();
        };
        let thread = std::thread::Builder::new().name("faultless-fill".into()).spawn(work);
        let thread = Mutex::new(Some(thread.map_err(|_| Error::NoThread)?));
        Ok(Self { job, thread, step_bytes, owner: Owner::here() })
    }

    /// How many bytes it is to be in the end, rounded up.
    pub fn bytes(&self) -> usize {
        self.job.steps * self.step_bytes
    }

    /// How many bytes were made ready so far.
    pub fn ready(&self) -> usize {
        self.job.done.load(Ordering::Acquire) * self.step_bytes
    }

    /// Whether no more will be.
    pub fn is_done(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_forked() || thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Helps until all is ready, or no more is to be had; how many bytes are ready then.
    pub fn wait(&self) -> Result<usize, Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        {
            let _masked = Masked::new();
            self.job.work();
        }
        self.join();
        self.job.error.get().map_or_else(|| Ok(self.ready()), |error| Err(*error))
    }

    /// Ends it: what is ready stays so.
    pub fn cancel(&self) {
        self.job.ended.store(true, Ordering::Relaxed);
        if !self.is_forked() {
            self.join();
        }
    }

    /// The thread is the parent's.
    fn is_forked(&self) -> bool {
        !self.owner.is_here()
    }

    fn join(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        drop(thread.take().map(JoinHandle::join));
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Background({} of {} bytes)", self.ready(), self.bytes())
    }
}
