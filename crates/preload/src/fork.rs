//! Fork, by the C library's own hooks: they run for fork, forkpty and daemon, but not for vfork and posix_spawn,
//! which share memory and need nothing.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{self, Engine};
use crate::inside::Inside;
use crate::{page, worker};

unsafe extern "C" {
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut c_void,
    ) -> i32;
}

/// How long a fork waits for the background thread to end.
const STOP_US: u64 = 5_000;

/// Has the hooks called from now on.
pub fn watch() {
    // SAFETY: the hooks live as long as the process: a preloaded library is never unloaded.
    unsafe { __register_atfork(Some(prepare), Some(parent), Some(child), core::ptr::null_mut()) };
}

/// Which thread has the engine held, by the address of its flag, which is the same in a forked child; 0: none.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Runs `f` with the engine, if `prepare` held it for this thread.
fn held(f: impl Fn(&'static Engine)) {
    let mine = HELD.load(Ordering::Acquire) == Inside::thread();
    if let Some(engine) = engine::running().filter(|_| mine) {
        HELD.store(0, Ordering::Release);
        f(engine);
        Inside::leave();
    }
}

unsafe extern "C" fn prepare() {
    let Some(engine) = engine::settled() else { return };
    // Until the fork is over this thread's large requests go to the kernel: the engine's locks are taken. A handler
    // that interrupted the engine forks without us, and its child is as one of a bare fork.
    if let Some(inside) = Inside::enter() {
        inside.stay();
        // Python and others look for a second thread when they fork.
        let _stopped = worker::stop_within(STOP_US);
        engine.space.fork_prepare();
        HELD.store(Inside::thread(), Ordering::Release);
    }
}

unsafe extern "C" fn parent() {
    held(|engine| engine.space.fork_parent());
}

unsafe extern "C" fn child() {
    held(|engine| {
        engine.settle_in();
        engine.space.fork_child();
        become_child();
    });
}

/// What a child needs besides its memory.
pub fn become_child() {
    worker::forget();
    page::detach();
}
