//! Machines with several nodes (NUMA): a page that a handler brings lies where the kernel would have put it for the
//! thread that missed it. The handler takes that thread's policy over, and goes to its node
//! ([`faultless_base::sys::placement`]).
//!
//! The kernel says in files what a thread's policy is, and where it runs. One thread of the process reads them, which
//! has descriptors of its own. In the program's table each file would take a number, if only for a moment, that another
//! thread may expect to be free. A handler asks it before each fault, and waits for its answer. It waits for the kernel
//! alone.
//!
//! On a machine with one node there is no such thread, and no handler asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faultless_base::sys::placement::{self, Follower, Placement};

use crate::error::Error;
use crate::process::descriptors::own_files;
use crate::process::mailbox::Mailbox;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// That of this process, while handlers have it.
static ASKED: OfProcess<Mutex<Weak<Asked>>> = OfProcess::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What lies before the thread that reads.
#[derive(Default)]
struct Desk {
    thread: Option<u32>,
    answer: Option<Option<Placement>>,
    is_ready: bool,
    is_over: bool,
}

/// The thread that reads; it ends with this.
pub struct Asked {
    /// Held by the thread that asks.
    turn: Mutex<()>,
    desk: Arc<Mailbox<Desk>>,
    thread: Option<Thread>,
}

/// No more answers come, however the thread has ended.
struct Over(Arc<Mailbox<Desk>>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.put(|desk| desk.is_over = true);
    }
}

impl Asked {
    /// The one of this process. `None` where it is of no use, or cannot be had: then pages lie where handlers run.
    pub fn of_process() -> Option<Arc<Self>> {
        placement::is_needed().then_some(())?;
        let mut known = lock(ASKED.get(Mutex::default));
        known.upgrade().or_else(|| {
            let new = Arc::new(Self::start().ok()?);
            *known = Arc::downgrade(&new);
            Some(new)
        })
    }

    fn start() -> Result<Self, Error> {
        let desk = Arc::<Mailbox<Desk>>::default();
        let over = Over(desk.clone());
        let work = move || {
            if own_files(&[]).is_ok() {
                placement::learn();
                over.0.put(|desk| desk.is_ready = true);
                answer(&over.0);
            }
        };
        let thread = Some(Thread::start(c"faultless-nodes", work)?);
        // It allocates no more from then on: a thread whose fault waits for it may have the allocator's locks.
        desk.wait(None, |desk| (desk.is_ready || desk.is_over).then_some(()));
        Ok(Self { turn: Mutex::default(), desk, thread })
    }

    fn ask(&self, thread: u32) -> Option<Placement> {
        let _turn = lock(&self.turn);
        self.desk.put(|desk| (desk.thread, desk.answer) = (Some(thread), None));
        let answer = |desk: &mut Desk| desk.answer.take().or(desk.is_over.then_some(None));
        self.desk.wait(None, answer).flatten()
    }
}

/// Answers until the end.
fn answer(desk: &Mailbox<Desk>) {
    let next = |desk: &mut Desk| (desk.thread.is_some() || desk.is_over).then(|| desk.thread.take());
    while let Some(thread) = desk.wait(None, next).flatten() {
        let answer = Placement::of(thread);
        desk.put(|desk| desk.answer = Some(answer));
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.desk.put(|desk| desk.is_over = true);
        self.thread.take().into_iter().for_each(Thread::join);
    }
}

/// A handler on such a machine, as it is now. It is made in the handler.
pub struct Near {
    asked: Arc<Asked>,
    follower: Follower,
}

impl Near {
    pub fn new(asked: Arc<Asked>) -> Self {
        Self { asked, follower: Follower::new() }
    }

    /// Brings pages as for this thread from now on.
    pub fn follow(&mut self, thread: u32) {
        self.follower.follow(thread, self.asked.ask(thread).as_ref());
    }

    /// It waits for other faults from now on, and may run everywhere.
    pub fn rest(&mut self) {
        self.follower.rest();
    }
}
