//! A process apart, for work that has to come to its end also when the program is killed, or becomes another program
//! by `exec`.
//!
//! It has the memory of the program and the descriptors of the thread that starts it. That thread waits meanwhile and
//! lends it its thread-local variables, those of the C library above all. So the process may do whatever the thread
//! might.
//!
//! The program is not told of it: no signal says that it has ended, and `wait` does not find it unless it is asked
//! for such processes (`__WALL`). Signals do not reach it, and it is in no process group of the program's; nor does
//! it keep the program's directory in use.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw::{self, syscall};
use faultless_base::{Errno, PAGE};

use crate::events::{filter, remote_fill};

const STACK_BYTES: usize = 256 << 10;
/// Between two tries to wait for the process.
const WAIT_NS: u64 = 1_000_000;
/// Of `pidfd_open`: a thread, and not a process; it has the value of another flag.
const PIDFD_THREAD: c_int = libc::O_EXCL;

/// What is to be done; it is given a descriptor that can be read as soon as the thread that started it is no more.
pub type Work<'a> = dyn FnMut(c_int) + Send + 'a;

struct Task<'a, 'b> {
    work: &'a mut Work<'b>,
    starter: c_int,
    is_done: AtomicBool,
}

/// Does `work` in a process apart, and waits until it has ended. Whether the work was done then, and the process was
/// not killed. `None`: nothing was done, because there can be no such process.
pub fn run(work: &mut Work<'_>) -> Option<bool> {
    // SAFETY: a new descriptor of our own; kernels before 6.9 do not know the flag.
    let starter =
        unsafe { syscall(libc::SYS_pidfd_open, [libc::gettid() as usize, PIDFD_THREAD as usize, 0, 0, 0, 0]) };
    let starter = starter.ok()? as c_int;
    let done = Stack::new().and_then(|stack| {
        let mut task = Task { work, starter, is_done: AtomicBool::new(false) };
        let flags = libc::CLONE_VM | libc::CLONE_FILES;
        // SAFETY: the stack and the task are there until the process has ended, which is waited for. This thread does
        // nothing meanwhile that needs what both have. The process begins with all signals blocked.
        let process = raw::without_signals(|| unsafe {
            libc::clone(enter, stack.top() as *mut c_void, flags, (&raw mut task).cast())
        });
        (process > 0).then(|| {
            wait(process);
            task.is_done.load(Ordering::Acquire)
        })
    });
    remote_fill::close(starter);
    done
}

extern "C" fn enter(task: *mut c_void) -> c_int {
    // SAFETY: a task that no other thread touches until this process has ended.
    let task = unsafe { &mut *task.cast::<Task<'_, '_>>() };
    // SAFETY: this process has both for itself.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
    }
    filter::begin();
    let done = catch_unwind(AssertUnwindSafe(|| (task.work)(task.starter))).is_ok();
    task.is_done.store(done, Ordering::Release);
    0
}

/// Waits for the end of a process. Not by the C library, which would write to a variable that the process has at that
/// time.
fn wait(process: c_int) {
    let args = [process as usize, 0, libc::__WCLONE as usize, 0, 0, 0];
    // SAFETY: no status is asked for.
    while !matches!(unsafe { syscall(libc::SYS_wait4, args) }, Ok(_) | Err(Errno::ECHILD)) {
        // The program may have forbidden the call, and the process uses what is on the stack of this thread.
        raw::sleep_ns(WAIT_NS);
    }
}

/// A stack that ends at a page which cannot be accessed.
struct Stack(*mut c_void);

impl Stack {
    fn new() -> Option<Self> {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK);
        // SAFETY: a new mapping, of which the first page is taken out of use.
        unsafe {
            let at = libc::mmap(null_mut(), STACK_BYTES, prot, flags, -1, 0);
            (at != libc::MAP_FAILED).then(|| Self(at)).filter(|_| libc::mprotect(at, PAGE, libc::PROT_NONE) == 0)
        }
    }

    /// Where it begins; it grows down.
    fn top(&self) -> usize {
        self.0 as usize + STACK_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: it is not used any more.
        unsafe { libc::munmap(self.0, STACK_BYTES) };
    }
}
