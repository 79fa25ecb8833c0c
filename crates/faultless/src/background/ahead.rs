//! The thread that makes huge pages ready while a stream of faults goes on, so that the next window finds them.
//!
//! There is one for all regions of a process. It has idle priority: on a busy machine it does nothing, and faults
//! make what they need themselves.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultless_base::sys::{frames, raw, thread};
use faultless_mm::region::pool::Pool;

use crate::background::reserve::pool;
use crate::process::masked::Masked;

/// For how long frames that were made ready wait for a region to take them.
const LASTS: Duration = Duration::from_millis(200);

/// Starts it, unless it runs; whether it does.
pub fn start() -> bool {
    /// The process in which it was: it is not in a forked child.
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let Some(pool) = pool() else { return false };
    let pid = std::process::id();
    if STARTED.swap(pid, Ordering::Relaxed) == pid {
        return true;
    }
    let work = move || {
        let _masked = Masked::new();
        thread::set_idle();
        loop {
            work(pool);
        }
    };
    let started = std::thread::Builder::new().name("faultless-ahead".into()).spawn(work).is_ok();
    if !started {
        STARTED.store(0, Ordering::Relaxed);
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
