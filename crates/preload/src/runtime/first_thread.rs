//! Before the program's first thread, and before it ends alone.
//!
//! Once there are more threads, no file can be put in the program's table of descriptors without another thread seeing
//! that (`base/src/sys/open.rs`). So what the engine needs there for the program's threads is opened before, whether or
//! not it has started.
//!
//! The children of a thread that ends go to another thread: the kernel takes the oldest one. That is not to be the
//! engine's. So the background thread ends before the first thread does, and another one is younger than the program's.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

use faultless_base::sys::{linux, stack, thread};

use crate::kernel::behind::{self, Function};
use crate::kernel::call::pid;
use crate::runtime::{engine, settings};
use crate::shutdown::sandbox;

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
fn next(function: Function, name: &CStr) -> usize {
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

/// Before a thread of the program ends: the function that ends it.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn before_end(is_c11: bool) -> usize {
    let function = if is_c11 { Function::ThrdExit } else { Function::PthreadExit };
    if engine::running().is_some() && engine::is_first_thread() {
        sandbox::before_exit();
    }
    match next(function, if is_c11 { c"thrd_exit" } else { c"pthread_exit" }) {
        0 => thread::exit as *const () as usize,
        at => at,
    }
}

/// As pthread_exit(3). It unwinds the stack, so no function of ours may be on it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_exit(value: *mut c_void) -> ! {
    core::arch::naked_asm!(
        "push rdi", "xor edi, edi", "call {before}", "pop rdi", "jmp rax",
        before = sym before_end,
    )
}

/// As thrd_exit(3).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_exit(status: c_int) -> ! {
    core::arch::naked_asm!(
        "push rdi", "mov edi, 1", "call {before}", "pop rdi", "jmp rax",
        before = sym before_end,
    )
}

/// `thrd_error` of the C library.
const THRD_ERROR: c_int = 2;

starts! {
    pthread_create, PthreadCreate, c"pthread_create",
        (id: *mut c_void, attributes: *const c_void, start: *const c_void, argument: *mut c_void), libc::EAGAIN;
    thrd_create, ThrdCreate, c"thrd_create", (id: *mut c_void, start: *const c_void, argument: *mut c_void), THRD_ERROR;
}
