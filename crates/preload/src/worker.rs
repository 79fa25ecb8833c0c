//! The background thread: started when there is work, ended when there is none.
//!
//! It runs at idle priority, with every signal blocked, and calls the engine's steps. States: absent, awake,
//! asleep. `wake` makes it from absent; only the thread itself makes it absent again, when there is nothing to do or
//! when `stop` asks for it.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use faultless_base::sys::raw::{futex_wait, futex_wake};
use faultless_base::sys::thread;
use faultless_mm::Progress;
use faultless_mm::stats::Counter;

use crate::engine::{self, Engine};

const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
static STOPPING: AtomicBool = AtomicBool::new(false);

/// There is work: starts the thread, or wakes it if the work is urgent.
pub fn wake(engine: &'static Engine) {
    // SAFETY: no arguments.
    let here = unsafe { libc::getpid() } as u32 == engine.page.pid.load(Ordering::Relaxed);
    if !here || engine.is_retired() || engine.is_frozen() {
        // In a child of vfork, for one, a thread would end with the child.
        return;
    }
    if STOPPING.load(Ordering::Acquire) {
        return engine.space.want_worker();
    }
    let urgent = engine.space.worker_wanted_now();
    match STATE.load(Ordering::Acquire) {
        ABSENT if STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() => {
            if thread::spawn(work) {
                engine.count(Counter::WorkerStarts);
            } else {
                // No thread to be had now: memory is zeroed at its hand-out, and nothing is touched ahead.
                STATE.store(ABSENT, Ordering::Release);
                engine.space.want_worker();
            }
        }
        ASLEEP if urgent && STATE.swap(AWAKE, Ordering::AcqRel) == ASLEEP => futex_wake(&STATE, 1),
        _ => {}
    }
}

/// Ends the thread and waits until the kernel no longer counts it, for `wait_us` microseconds at most: it runs at
/// idle priority and may have to wait for a processor.
pub fn stop(wait_us: u64) {
    if !thread::is_alive() {
        return;
    }
    STOPPING.store(true, Ordering::Release);
    if STATE.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        futex_wake(&STATE, 1);
    }
    thread::wait_gone(wait_us);
    STOPPING.store(false, Ordering::Release);
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    STATE.store(ABSENT, Ordering::Release);
    thread::forget();
}

extern "C" fn work() -> ! {
    thread::be_idle(c"faultless");
    if let Some(engine) = engine::running() {
        engine.space.new_worker();
        loop {
            run(engine);
            STATE.store(ABSENT, Ordering::SeqCst);
            // What came up since is this thread's work still, unless another one is being started for it.
            let more = !STOPPING.load(Ordering::Acquire) && engine.space.worker_wanted();
            if !more || STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                break;
            }
        }
    }
    thread::exit()
}

/// Works until there is nothing to do.
fn run(engine: &'static Engine) {
    while !STOPPING.load(Ordering::Acquire) && !engine.is_retired() {
        match engine.space.step() {
            Progress::Worked => {}
            Progress::Wait(us) => sleep(us),
            Progress::Idle => return,
        }
    }
}

fn sleep(us: u64) {
    if STATE.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        futex_wait(&STATE, ASLEEP, Some(us * 1000));
        STATE.store(AWAKE, Ordering::Release);
    }
}
