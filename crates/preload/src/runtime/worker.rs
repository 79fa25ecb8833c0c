//! The background thread: started when there is work, ended when there is none.
//!
//! It runs at idle priority, with every signal blocked, and calls the engine's steps. `wake` starts it; only the thread
//! itself ends it, when there is nothing to do or when `stop` asks for it.

use core::sync::atomic::{AtomicU32, Ordering};

use faultless_base::sync::{Found, Presence};
use faultless_base::sys::raw::{self, futex_wait, futex_wake};
use faultless_base::sys::thread;
use faultless_base::zero::dsa;
use faultless_mm::Progress;
use faultless_page::stats::Counter;

use crate::runtime::engine::{self, Engine};

static PRESENCE: Presence = Presence::new();
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
    match PRESENCE.find() {
        Found::Absent => start(engine),
        Found::Asleep if engine.space.is_worker_wanted_now() => rouse(),
        _ => {}
    }
}

fn rouse() {
    if PRESENCE.rouse() {
        futex_wake(PRESENCE.word(), 1);
    }
}

#[cold]
fn start(engine: &'static Engine) {
    // In a child of vfork a thread would end with the child.
    if !raw::may_call() || is_stopping() || engine.is_retired() || !engine::is_home() {
        return;
    }
    if PRESENCE.claim() {
        // Asked again, because `stop` may have found the thread absent just before.
        if !is_stopping() && thread::spawn(work) {
            engine.count(Counter::WorkerStarts);
        } else {
            // No thread can be made now: memory is zeroed at its hand-out, and nothing is touched ahead.
            PRESENCE.note_absent();
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
        !PRESENCE.is_absent() || thread::is_alive()
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
    PRESENCE.note_absent();
    thread::forget();
    dsa::forget();
}

extern "C" fn work() -> ! {
    thread::be_idle(c"faultless");
    // A first thread of the program that has ended already was not its last one.
    let _ = thread::left_alone();
    if let Some(engine) = engine::running() {
        engine.space.new_worker();
        loop {
            dsa::open();
            run(engine);
            dsa::close();
            let is_wanted = || !is_stopping() && !engine.is_retired() && engine.space.is_worker_wanted();
            if PRESENCE.is_ending(is_wanted) {
                if let Some(code) = thread::left_alone() {
                    thread::exit_as(code);
                }
                thread::end_if(PRESENCE.end());
            }
        }
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
    let is_wanted = || engine.space.is_worker_wanted_now() || is_stopping();
    PRESENCE.sleep(is_wanted, |word, asleep| futex_wait(word, asleep, Some(us * 1000)));
    if us >= LONG_US
        && let Some(code) = thread::left_alone()
    {
        thread::exit_as(code);
    }
}

/// After a sleep of this length or more, the thread checks that the program's threads are still there. They may have
/// ended one by one, and then the process ends with this thread.
const LONG_US: u64 = 5_000;
