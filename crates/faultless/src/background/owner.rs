//! The owner of all frames of this process, and its background thread.
//!
//! Regions, arenas and [`crate::reserve`] have their frames from it: what one of them gave back serves another,
//! under one budget. The thread makes the frames that streams of faults ask for, and zeroes what came back. It
//! gives back what was idle for too long, or all of it when memory is short. It has idle priority: on a busy
//! machine it does nothing, and faults make what they need themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sync::TryLock;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Sys, raw, thread};
use faultless_mm::{Progress, Space};
use faultless_page::knobs::Sharer;
use faultless_page::stats::{BLOCKS, Block};

use crate::page::page;
use crate::process::limits;
use crate::process::once::Once;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// Addresses of an arena where the kernel refuses more, at least.
const LESS: usize = 64 << 20;

/// How long the background thread rests while another thread makes a step.
const TURN_US: u64 = 1000;

/// The owner, and who does its background work.
struct Owned {
    space: Space<Linux>,
    /// Held by the thread that makes a step.
    steps: TryLock<()>,
    /// Whether the thread was started.
    started: AtomicBool,
    /// Whether addresses for arenas were asked for.
    arena: Once<()>,
}

/// A child makes its own: the frames of its parent are not in its memory.
static OWNED: OfProcess<Once<Option<Owned>>> = OfProcess::new();

fn owned() -> Option<&'static Owned> {
    OWNED.get(Once::new).get(make).as_ref()
}

fn make() -> Option<Owned> {
    // What the parent of a forked process kept open is about its memory.
    Linux.forked();
    let page = page();
    page.knobs.share_budget(Sharer::Library);
    let space = Space::without_arena(Linux, counters(), &page.knobs)?.with_pool(limits::of_machine()?)?;
    // What the program maps and allocates itself is not seen here.
    space.budget().be_strict();
    Some(Owned { space, steps: TryLock::new(()), started: AtomicBool::new(false), arena: Once::new() })
}

/// Apart from those of `faultless run`, which may have this page, too.
pub(crate) fn counters() -> &'static Block {
    &page().block[BLOCKS - 1]
}

/// The owner with addresses for blocks of arenas, if it has as many as `bytes`. The first call decides how many.
pub(crate) fn with_arena(bytes: usize) -> Option<&'static Space<Linux>> {
    let owned = owned()?;
    owned.arena.get(|| {
        let counters = std::slice::from_ref(counters());
        let most = limits::of_machine().map_or(bytes, |memory| (2 * memory).next_power_of_two().max(bytes));
        let _ = owned.space.add_arena(most, 1, counters) || owned.space.add_arena(bytes.max(LESS), 1, counters);
        give_back_before_forks();
    });
    (owned.space.span().bytes() >= bytes).then_some(&owned.space)
}

/// A child would have the idle memory of the arena, and no thread that gives it back.
fn give_back_before_forks() {
    extern "C" fn give_back() {
        if let Some(space) = known() {
            space.press_arena();
        }
    }
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: a function that takes no lock it would have to wait for. Where there is no room for it, a child has
        // more memory than it needs.
        unsafe { libc::pthread_atfork(Some(give_back), None, None) };
    }
}

/// The owner of all frames. `None` where the kernel refuses the addresses.
pub(crate) fn frames() -> Option<&'static Space<Linux>> {
    owned().map(|owned| &owned.space)
}

/// The same if it was made, without making it.
pub(crate) fn known() -> Option<&'static Space<Linux>> {
    OWNED.known()?.known()?.as_ref().map(|owned| &owned.space)
}

/// Does all background work that there is now, in the calling thread; what another thread has begun it leaves to that.
pub(crate) fn work() {
    let Some(owned) = owned() else { return };
    while owned.step() == Progress::Worked {}
}

/// Starts the background thread, unless it runs; whether it does.
pub(crate) fn start() -> bool {
    owned().is_some_and(|owned| owned.is_started() || owned.start(|| {}))
}

/// Starts it with `work` to do first; false where it runs already, or cannot be started. A thread more would take
/// addresses for a heap of its own.
pub(crate) fn start_with(work: impl FnOnce() + Send + 'static) -> bool {
    owned().is_some_and(|owned| !owned.is_started() && owned.start(work))
}

impl Owned {
    fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn start(&'static self, first: impl FnOnce() + Send + 'static) -> bool {
        if self.started.swap(true, Ordering::Relaxed) {
            return false;
        }
        let work = move || {
            thread::set_idle();
            first();
            loop {
                self.serve();
            }
        };
        let is_started = Thread::start(c"faultless-memory", work).is_ok();
        if !is_started {
            self.started.store(false, Ordering::Relaxed);
        }
        is_started
    }

    /// One step, unless another thread makes one: that may leave something to be done later.
    fn step(&self) -> Progress {
        let Some(_turn) = self.steps.try_lock() else { return Progress::Wait(TURN_US) };
        match self.space.answer_requests() {
            true => Progress::Worked,
            false => self.space.step(),
        }
    }

    /// One turn of the background thread.
    fn serve(&self) {
        self.space.take_requests();
        self.space.take_notes();
        let timeout = match self.step() {
            Progress::Worked => return,
            Progress::Wait(us) => Some(us * 1000),
            Progress::Idle => None,
        };
        raw::futex_wait(self.space.bell(), 0, timeout);
    }
}
