//! Threads of the library's own.
//!
//! They hold back signals from their first instruction on. A handler of the program's that ran in one of them
//! would wait for itself. A signal that the program waits for (`sigwait`) must find no thread that takes it. The
//! exception is SIGBUS: what such a thread touches may be memory of a region with signal delivery (an allocator's,
//! say). While a thread reads a backing, all signals come through that the reading itself may cause (`masked.rs`).
//!
//! They are not `std`'s. Threads of `std` begin with the mask of the thread that starts them. They read the
//! environment under a lock that a fork may leave held. Where there is no memory for their signal stack, they
//! panic.

use std::ffi::{CStr, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::process::owner::Owner;

/// As `std` has it: a backing may need it.
const STACK: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

struct Start {
    name: &'static CStr,
    work: Work,
    has_ended: Arc<AtomicBool>,
}

/// A thread, which goes on when this is dropped.
pub struct Thread {
    id: libc::pthread_t,
    has_ended: Arc<AtomicBool>,
    owner: Owner,
    is_joined: bool,
}

impl Thread {
    /// Starts one. A panic of `work` ends it.
    pub fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> Result<Self, Error> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let start = Box::new(Start { name, work: Box::new(work), has_ended: has_ended.clone() });
        let start = Box::into_raw(start);
        match create(start) {
            Some(id) => Ok(Self { id, has_ended, owner: Owner::here(), is_joined: false }),
            None => {
                // SAFETY: made above, and no thread has it.
                drop(unsafe { Box::from_raw(start) });
                Err(Error::NoThread)
            }
        }
    }

    /// Whether its work is done, or has ended by a panic.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits for its end.
    pub fn join(mut self) {
        if self.owner.is_here() {
            // SAFETY: a thread of this process, which is neither joined nor detached yet.
            unsafe { libc::pthread_join(self.id, null_mut()) };
        }
        self.is_joined = true;
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // In a forked child the number is that of no thread, and may come to be another's.
        if !self.is_joined && self.owner.is_here() {
            // SAFETY: as in `join`.
            unsafe { libc::pthread_detach(self.id) };
        }
    }
}

/// Does work in a thread of its own, which holds back all signals but SIGBUS. No handler of the program's runs there.
///
/// ```
/// let (tells, told) = std::sync::mpsc::channel();
/// faultless::aside(move || tells.send(6 * 7).unwrap())?;
/// assert_eq!(told.recv(), Ok(42));
/// # Ok::<(), faultless::region::Error>(())
/// ```
pub fn aside(work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    Thread::start(c"faultless-aside", work).map(drop)
}

/// The number of the new thread, which has `start` from now on; `None` if there is none.
fn create(start: *mut Start) -> Option<libc::pthread_t> {
    let mut attributes = MaybeUninit::uninit();
    let mut id = 0;
    // SAFETY: attributes that are made and ended here; zero bytes are a value of a set of signals. The C library leaves
    // out of the mask the signals that it needs itself, for `setuid` and the like. A thread begins with the mask of the
    // thread that starts it, which has its own back afterwards.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return None;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let (mut all, mut before) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::sigdelset(&mut all, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut refused = libc::pthread_create(&mut id, attributes.as_ptr(), enter, start.cast());
        if refused == libc::EINVAL {
            // The program's thread-local variables do not fit into such a stack.
            refused = libc::pthread_create(&mut id, null(), enter, start.cast());
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (refused == 0).then_some(id)
    }
}

extern "C" fn enter(start: *mut c_void) -> *mut c_void {
    // SAFETY: what `create` was given, which is this thread's alone.
    let Start { name, work, has_ended } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: a name that ends with a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // The message is the panic's own.
    let _ = catch_unwind(AssertUnwindSafe(work));
    has_ended.store(true, Ordering::Release);
    null_mut()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;

    use super::*;

    /// The mask of this thread, as the kernel has it.
    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn it_holds_back_all_signals_but_those_that_have_to_come() {
        let before = blocked();
        let (tell, told) = channel();
        let thread = Thread::start(c"faultless-test", move || tell.send(blocked()).unwrap()).unwrap();
        let to_come = 1 << (libc::SIGBUS - 1) | 1 << (32 - 1) | 1 << (33 - 1);
        let never = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        assert_eq!(told.recv().unwrap() | never, !to_come);
        thread.join();
        assert_eq!(blocked(), before);
    }

    #[test]
    fn one_that_panics_has_ended() {
        let thread = Thread::start(c"faultless-test", || panic!("as a test")).unwrap();
        let has_ended = thread.has_ended.clone();
        thread.join();
        assert!(has_ended.load(Ordering::Acquire));
    }
}
