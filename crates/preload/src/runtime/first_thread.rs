//! Before the program's first thread: afterwards no file can be put in its table of descriptors without another
//! thread seeing that (`base/src/sys/open.rs`). So what the engine needs there for the program's threads is opened
//! here, whether or not it has started. A program may start a thread past these functions. So the engine opens
//! the same when it starts, if there is no other thread yet.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

use faultless_base::sys::{linux, stack};

use crate::kernel::behind::{self, Function};
use crate::kernel::call::pid;
use crate::runtime::{engine, settings};

/// The process in which that was done.
static PREPARED: AtomicI32 = AtomicI32::new(0);

fn prepare() {
    let process = pid();
    if PREPARED.swap(process, Ordering::Relaxed) != process && !engine::is_retired() {
        // The program's thread may have little stack.
        let done = stack::with_room(|| {
            if settings::may_serve() {
                linux::keep_descriptors();
            }
        });
        if done.is_none() {
            // Threads that are in the engine have all stacks: before the next one.
            PREPARED.store(0, Ordering::Relaxed);
        }
    }
}

/// The next function of a name. Older C libraries have it in a library of its own, which may be a part of the program that
/// comes later.
pub fn next(function: Function, name: &CStr) -> usize {
    match behind::next(function) {
        0 if behind::is_known() => behind::ask(name),
        at => at,
    }
}

macro_rules! starts {
    ($($name:ident, $function:ident, $text:literal, ($($arg:ident: $type:ty),+), $fails:expr;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(3).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),+) -> c_int {
            prepare();
            match next(Function::$function, $text) {
                0 => $fails,
                // SAFETY: the function of that name, with the caller's arguments.
                next => unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($type),+) -> c_int>(next)($($arg),+)
                },
            }
        }
    )+ };
}

/// `thrd_error` of the C library.
const THRD_ERROR: c_int = 2;

starts! {
    pthread_create, PthreadCreate, c"pthread_create",
        (id: *mut c_void, attributes: *const c_void, start: *const c_void, argument: *mut c_void), libc::EAGAIN;
    thrd_create, ThrdCreate, c"thrd_create", (id: *mut c_void, start: *const c_void, argument: *mut c_void), THRD_ERROR;
}
