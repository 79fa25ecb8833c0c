//! Fork, by the C library's own hooks: they run for fork, forkpty and daemon, but not for vfork and posix_spawn,
//! which share memory and need nothing.
//!
//! Hooks of other libraries run before and after these, in any order, and may ask for memory: no lock is held across
//! them. A child that was forked without the hooks finds out at its next large request (`engine::adopt`).

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::behind::{self, Function};
use crate::runtime::inside::Inside;
use crate::runtime::{engine, inside, page, worker};

type Hook = Option<unsafe extern "C" fn()>;
/// The C library's `__register_atfork`.
type Register = unsafe extern "C" fn(prepare: Hook, parent: Hook, child: Hook, library: *mut c_void) -> i32;

/// How long a fork waits for the background thread to end.
const STOP_US: u64 = 5_000;

/// Has the hooks called from now on. Before those of other libraries if that can be had: then theirs run before ours
/// at a fork, and after ours behind it. Not in a call of the program's that may come out of a hook: some C libraries
/// hold a lock of their hooks while they run them.
pub fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    let register = behind::next(Function::RegisterAtfork);
    if register != 0 && !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function of that name. The hooks live as long as the process: a preloaded library is never unloaded.
        unsafe {
            let register = core::mem::transmute::<usize, Register>(register);
            register(Some(prepare), Some(parent), Some(child), core::ptr::null_mut())
        };
    }
}

unsafe extern "C" fn prepare() {
    // The child could not undo what a thread of the parent has made of an engine.
    engine::wait_while_made();
    // A handler that interrupted the engine forks without us, and its child is as one of a bare fork.
    if let Some(engine) = engine::settled()
        && let Some(_inside) = Inside::enter()
    {
        // Python and others look for a second thread when they fork.
        let _stopped = worker::stop_within(STOP_US);
        engine.space.fork_prepare();
    }
}

unsafe extern "C" fn parent() {
    let Some(engine) = engine::settled() else { return };
    engine.space.fork_parent();
    // Memory that other threads freed meanwhile is to go back to the kernel in time. A program without other threads
    // has none.
    if engine.space.has_idle_memory()
        && let Some(_inside) = Inside::enter()
    {
        engine.space.want_worker();
        worker::wake(engine);
    }
}

unsafe extern "C" fn child() {
    engine::note_home();
    inside::leave_vfork();
    let _ = engine::settled();
}

/// What a child needs besides its memory.
pub fn become_child() {
    inside::forget();
    worker::forget();
    page::detach();
}
