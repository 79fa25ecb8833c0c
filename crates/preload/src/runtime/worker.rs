//! The background thread: started when there is work, ended when there is none.
//!
//! It runs at idle priority, with every signal blocked, and calls the engine's steps. States: absent, awake,
//! asleep. `wake` makes it from absent; only the thread itself makes it absent again, when there is nothing to do or
//! when `stop` asks for it.
//!
//! Work is noted in the engine (`want_worker`), before the state is looked at. The thread takes the notes when it
//! begins a step, and looks for new ones after it has said that it sleeps, or is absent. So either the waker sees the
//! state, or the thread sees the note.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use faultless_base::sys::raw::{self, futex_wait, futex_wake};
use faultless_base::sys::thread;
use faultless_base::zero::dsa;
use faultless_mm::Progress;
use faultless_page::stats::Counter;

use crate::runtime::engine::{self, Engine};

const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
/// How many want it stopped; see [`stop`].
static STOPPING: AtomicU32 = AtomicU32::new(0);

/// There is work, which is noted: starts the thread, or wakes it if the work is urgent.
#[inline]
pub fn wake(engine: &'static Engine) {
    // A handler that interrupted this may have forked: the child makes the engine its own first.
    if engine.is_retired() || !engine.is_settled() {
        return;
    }
    // The thread may not have a processor before this one ends, and then it tells how the process ends.
    if !engine::is_first_thread() && raw::may_call() {
        thread::note_outlived();
    }
    match STATE.load(Ordering::SeqCst) {
        ABSENT => start(engine),
        ASLEEP if engine.space.is_worker_wanted_now() => rouse(),
        // It looks again before it sleeps or ends.
        _ => {}
    }
}

fn rouse() {
    if STATE.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        futex_wake(&STATE, 1);
    }
}

#[cold]
fn start(engine: &'static Engine) {
    // In a child of vfork a thread would end with the child.
    if !raw::may_call() || is_stopping() || engine.is_retired() || !engine::is_home() {
        return;
    }
    if STATE.compare_exchange(ABSENT, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
        // Asked again, because `stop` may have found the thread absent just before.
        if !is_stopping() && thread::spawn(work) {
            engine.count(Counter::WorkerStarts);
        } else {
            // No thread can be made now: memory is zeroed at its hand-out, and nothing is touched ahead.
            STATE.store(ABSENT, Ordering::Release);
        }
    }
}

/// While this exists there is no thread, and none is started.
pub struct Stopped(());

impl Drop for Stopped {
    fn drop(&mut self) {
        STOPPING.fetch_sub(1, Ordering::SeqCst);
    }
}

fn is_stopping() -> bool {
    STOPPING.load(Ordering::SeqCst) != 0
}

/// Ends the thread and waits until the kernel no longer counts it. It runs at idle priority, so that may take a
/// while.
pub fn stop() -> Stopped {
    const STOP_US: u64 = 5_000_000;
    /// The thread's number may be another thread's by now.
    const COUNTED_US: u64 = 1_000_000;
    /// A program with threads of its own always has company.
    const COMPANY_US: u64 = 500;
    let stopped = stop_within(STOP_US);
    if thread::is_counted() {
        wait_while(thread::is_counted, COUNTED_US);
        wait_while(thread::has_company, COMPANY_US);
    }
    stopped
}

/// Ends the thread and waits for that, `wait_us` microseconds at most.
pub fn stop_within(wait_us: u64) -> Stopped {
    STOPPING.fetch_add(1, Ordering::SeqCst);
    let stopped = Stopped(());
    let is_there = || {
        // Again and again: it gives itself a low priority when it begins, and when a wait for it has ended.
        thread::hurry();
        rouse();
        STATE.load(Ordering::SeqCst) != ABSENT || thread::is_alive()
    };
    wait_while(is_there, wait_us);
    stopped
}

fn wait_while(what: impl Fn() -> bool, wait_us: u64) {
    const LOOK_US: u64 = 20;
    let mut waited = 0;
    while what() && waited < wait_us {
        raw::sleep_ns(LOOK_US * 1000);
        waited += LOOK_US;
    }
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    STOPPING.store(0, Ordering::Release);
    STATE.store(ABSENT, Ordering::Release);
    thread::forget();
    dsa::forget();
}

extern "C" fn work() -> ! {
    thread::be_idle(c"faultless");
    // A first thread of the program that has ended already was not its last one.
    let _ = thread::left_alone();
    if let Some(engine) = engine::running() {
        dsa::open();
        engine.space.new_worker();
        loop {
            run(engine);
            STATE.store(ABSENT, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // New work since then is still this thread's, unless another one is being started for it.
            let more = !is_stopping() && !engine.is_retired() && engine.space.is_worker_wanted();
            if !more || STATE.compare_exchange(ABSENT, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                break;
            }
        }
        dsa::close();
    }
    thread::exit_as(thread::left_alone().unwrap_or(0))
}

fn run(engine: &'static Engine) {
    while !is_stopping() && !engine.is_retired() {
        thread::calm();
        engine.space.take_notes();
        match engine.space.step() {
            Progress::Worked => {}
            Progress::Wait(us) => sleep(engine, us),
            Progress::Idle => return,
        }
    }
}

fn sleep(engine: &'static Engine, us: u64) {
    if STATE.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
        fence(Ordering::SeqCst);
        if !engine.space.is_worker_wanted_now() && !is_stopping() {
            futex_wait(&STATE, ASLEEP, Some(us * 1000));
        }
        STATE.store(AWAKE, Ordering::Release);
    }
    if us >= LONG_US
        && let Some(code) = thread::left_alone()
    {
        thread::exit_as(code);
    }
}

/// After a sleep of this length or more, the thread checks that the program's threads are still there. They may have
/// ended one by one, and then the process ends with this thread.
const LONG_US: u64 = 5_000;
