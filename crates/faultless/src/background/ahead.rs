//! The thread that makes huge pages ready while a stream of faults goes on, so that the next window finds them.
//!
//! There is one for all regions of a process. It has idle priority: on a busy machine it does nothing, and faults
//! make what they need themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultless_base::sys::{frames, raw, thread};
use faultless_mm::region::pool::Pool;

use crate::background::reserve::pool;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// For how long frames that were made ready wait for a region to take them.
const LASTS: Duration = Duration::from_millis(200);

/// Starts it, unless it runs; whether it does.
pub fn start() -> bool {
    /// Whether it was: it is not in a forked child.
    static STARTED: OfProcess<AtomicBool> = OfProcess::new();
    let Some(pool) = pool() else { return false };
    let has_started = STARTED.get(AtomicBool::default);
    if has_started.swap(true, Ordering::Relaxed) {
        return true;
    }
    let work = move || {
        thread::set_idle();
        loop {
            work(pool);
        }
    };
    let started = Thread::start(c"faultless-ahead", work).is_ok();
    if !started {
        has_started.store(false, Ordering::Relaxed);
    }
    started
}

/// Does what was asked for; gives back frames that no region took.
fn work(pool: &Pool) {
    let unkept = pool.missing() == 0 && pool.has_unkept();
    if pool.missing() > 0 {
        if !pool.make(frames::fill) {
            pool.answer();
        }
        return;
    }
    pool.answer();
    let timeout = unkept.then_some(LASTS.as_nanos() as u64);
    raw::futex_wait(pool.asked(), 0, timeout);
    if unkept && pool.missing() == 0 {
        while let Some(frame) = pool.take_unkept() {
            frames::drop_pages(frame);
            pool.leave(frame);
        }
    }
}
