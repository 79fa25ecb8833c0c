//! The owner of all frames of this process, and its background thread.
//!
//! Regions, arenas and [`crate::reserve`] have their frames from it: what one of them gave back serves another, under
//! one budget. The thread makes the frames that streams of faults ask for, zeroes what came back, and gives back what
//! was idle for too long, or all of it when memory is short. It has idle priority: on a busy machine it does nothing,
//! and faults make what they need themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sync::TryLock;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Sys, raw, thread};
use faultless_mm::{Progress, Space};
use faultless_page::stats::BLOCKS;

use crate::page::page;
use crate::process::limits;
use crate::process::once::Once;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// Addresses for blocks of arenas, where the machine has less than half as much memory (64 GiB).
const BLOCKS_BYTES: usize = 64 << 30;
/// Addresses for blocks, and for frames, where the kernel refuses more.
const LESS: usize = 64 << 20;
/// The part of a limit of addresses that either may take: what the program itself asks for has to fit beside them.
const PART_OF_LIMIT: usize = 64;

/// The owner, and who does its background work.
struct Owned {
    space: Space<Linux>,
    /// Held by the thread that makes a step.
    steps: TryLock<()>,
    /// Whether the thread was started.
    started: AtomicBool,
}

/// A child makes its own: the frames of its parent are not in its memory.
static OWNED: OfProcess<Once<Option<Owned>>> = OfProcess::new();

fn owned() -> Option<&'static Owned> {
    OWNED.get(Once::new).get(make).as_ref()
}

fn make() -> Option<Owned> {
    // What the parent of a forked process kept open is about its memory.
    Linux.forked();
    let memory = limits::of_machine()?;
    let most = limits::memory().map_or(usize::MAX, |limit| limit / PART_OF_LIMIT);
    let page = page();
    // Apart from the counters of `faultless run`, which may have this page, too.
    let counters = &page.block[BLOCKS - 1..];
    let with = |blocks: usize, frames: usize| {
        Space::new(Linux, blocks.min(most), 1, counters, &page.knobs)?.with_frames_apart(frames.min(most))
    };
    let space = with((2 * memory).max(BLOCKS_BYTES), memory).or_else(|| with(LESS, LESS))?;
    Some(Owned { space, steps: TryLock::new(()), started: AtomicBool::new(false) })
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
    let Some(owned) = owned() else { return false };
    if owned.started.swap(true, Ordering::Relaxed) {
        return true;
    }
    let work = || {
        thread::set_idle();
        loop {
            owned.serve();
        }
    };
    let started = Thread::start(c"faultless-memory", work).is_ok();
    if !started {
        owned.started.store(false, Ordering::Relaxed);
    }
    started
}

impl Owned {
    /// One step, unless another thread makes one.
    fn step(&self) -> Progress {
        let Some(_turn) = self.steps.try_lock() else { return Progress::Idle };
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
