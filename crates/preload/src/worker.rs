//! The background thread: started when there is work, ended when there is none.
//!
//! It runs at idle priority, with every signal blocked, and calls the engine's steps. States: absent, awake,
//! asleep. `wake` makes it from absent; only the thread itself makes it absent again, when there is nothing to do or
//! when `stop` asks for it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use faultless_base::sys::raw::{futex_wait, futex_wake, sleep_ns, syscall};
use faultless_mm::Progress;
use faultless_mm::stats::Counter;

use crate::engine::{self, Engine};
use crate::inside::Inside;

const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
/// The thread's number while it lives, as the kernel counts.
static THREAD: AtomicU32 = AtomicU32::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// Times that no thread could be made; after a few it is not tried again.
static FAILURES: AtomicU32 = AtomicU32::new(0);
const MAX_FAILURES: u32 = 4;
const STACK_BYTES: usize = 128 << 10;

/// There is work: starts the thread, or wakes it if the work is urgent.
pub fn wake(engine: &'static Engine) {
    if engine.is_retired() || FAILURES.load(Ordering::Relaxed) >= MAX_FAILURES {
        return;
    }
    let urgent = engine.space.worker_wanted_now();
    match STATE.load(Ordering::Acquire) {
        ABSENT if STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() => {
            if start() {
                engine.count(Counter::WorkerStarts);
            } else {
                // No thread to be had: memory is zeroed at its hand-out, and nothing is touched ahead.
                FAILURES.fetch_add(1, Ordering::Relaxed);
                STATE.store(ABSENT, Ordering::Release);
            }
        }
        ASLEEP if urgent && STATE.swap(AWAKE, Ordering::AcqRel) == ASLEEP => futex_wake(&STATE, 1),
        _ => {}
    }
}

/// Ends the thread and waits until the kernel no longer counts it, for `wait_us` microseconds at most: it runs at
/// idle priority and may have to wait for a processor.
pub fn stop(wait_us: u64) {
    let thread = THREAD.load(Ordering::Acquire);
    if STATE.load(Ordering::Acquire) == ABSENT && thread == 0 {
        return;
    }
    STOPPING.store(true, Ordering::Release);
    if STATE.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
        futex_wake(&STATE, 1);
    }
    const PAUSE_US: u64 = 20;
    for _ in 0..wait_us / PAUSE_US {
        let alive = THREAD.load(Ordering::Acquire);
        // SAFETY: signal 0 only asks whether the thread exists.
        if alive == 0 && unsafe { syscall(libc::SYS_tgkill, [process(), thread as usize, 0, 0, 0, 0]) }.is_err() {
            break;
        }
        sleep_ns(PAUSE_US * 1000);
    }
    STOPPING.store(false, Ordering::Release);
}

fn process() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::getpid() as usize }
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    STATE.store(ABSENT, Ordering::Release);
    THREAD.store(0, Ordering::Release);
}

fn start() -> bool {
    // SAFETY: plain use of the C library's thread functions with local, initialised structures.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = 0;
        libc::sigfillset(&mut all);
        if libc::pthread_attr_init(&mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let created = libc::pthread_create(&mut thread, &attributes, work, core::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        created == 0
    }
}

extern "C" fn work(_: *mut c_void) -> *mut c_void {
    if let Some(inside) = Inside::enter() {
        inside.stay();
    }
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: this thread's own scheduling and name; failures only cost speed.
    unsafe {
        let _ = syscall(
            libc::SYS_sched_setscheduler,
            [0, libc::SCHED_IDLE as usize, &raw const idle as usize, 0, 0, 0],
        );
        libc::prctl(libc::PR_SET_NAME, c"faultless".as_ptr());
    }
    // SAFETY: no arguments.
    THREAD.store(unsafe { libc::gettid() } as u32, Ordering::Release);
    if let Some(engine) = engine::running() {
        while !run(engine) {}
    }
    core::ptr::null_mut()
}

/// Works until there is nothing to do; whether the thread is absent now.
fn run(engine: &'static Engine) -> bool {
    while !STOPPING.load(Ordering::Acquire) && !engine.is_retired() {
        match engine.space.step() {
            Progress::Worked => {}
            Progress::Wait(us) => sleep(us),
            Progress::Idle => break,
        }
    }
    THREAD.store(0, Ordering::Release);
    STATE.store(ABSENT, Ordering::Release);
    // What came up since is this thread's work still, unless another one was started for it.
    let more = !STOPPING.load(Ordering::Acquire) && !engine.is_retired() && engine.space.worker_wanted();
    if more && STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: no arguments.
        THREAD.store(unsafe { libc::gettid() } as u32, Ordering::Release);
        return false;
    }
    true
}

fn sleep(us: u64) {
    if STATE.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        futex_wait(&STATE, ASLEEP, Some(us * 1000));
        STATE.store(AWAKE, Ordering::Release);
    }
}
