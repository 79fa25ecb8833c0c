//! Before a thread of the program ends alone.
//!
//! The children of a thread that ends go to another thread: the kernel takes the oldest one. That is not to be the
//! engine's. So the background thread ends before the first thread does, and the next one is younger than the program's.

use core::ffi::{c_int, c_void};

use faultless_base::sys::thread;

use crate::kernel::behind::Function;
use crate::runtime::engine;
use crate::runtime::first_thread::next;
use crate::shutdown::sandbox;

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
