//! The background thread: started when there is work, ended when there is none.
//!
//! It runs at idle priority, with every signal blocked, and calls the engine's steps. States: absent, awake,
//! asleep. `wake` makes it from absent; only the thread itself makes it absent again.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use faultless_base::sys::raw::{futex_wait, futex_wake, syscall};
use faultless_mm::Progress;
use faultless_mm::stats::Counter;

use crate::engine::{self, Engine};
use crate::inside::Inside;

const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
const STACK_BYTES: usize = 128 << 10;

/// There is work: starts the thread, or wakes it if the work is urgent.
pub fn wake(engine: &'static Engine) {
    let urgent = engine.space.worker_wanted_now();
    match STATE.load(Ordering::Acquire) {
        ABSENT if STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() => {
            if start() {
                engine.count(Counter::WorkerStarts);
            } else {
                // No thread to be had: memory is zeroed at its hand-out, and nothing is touched ahead.
                STATE.store(ABSENT, Ordering::Release);
            }
        }
        ASLEEP if urgent && STATE.swap(AWAKE, Ordering::AcqRel) == ASLEEP => futex_wake(&STATE, 1),
        _ => {}
    }
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    STATE.store(ABSENT, Ordering::Release);
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
    let Some(engine) = engine::running() else { return core::ptr::null_mut() };
    loop {
        match engine.space.step() {
            Progress::Worked => {}
            Progress::Wait(us) => sleep(us),
            Progress::Idle => {
                STATE.store(ABSENT, Ordering::Release);
                // What came up since is this thread's work still, unless another one was started for it.
                let more = engine.space.worker_wanted();
                if !more || STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    return core::ptr::null_mut();
                }
            }
        }
    }
}

fn sleep(us: u64) {
    if STATE.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        futex_wait(&STATE, ASLEEP, Some(us * 1000));
        STATE.store(AWAKE, Ordering::Release);
    }
}
