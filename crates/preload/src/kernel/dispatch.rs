//! System calls made by the C library's own instructions.
//!
//! With syscall user dispatch (`prctl(PR_SET_SYSCALL_USER_DISPATCH)`) a program has the system calls of code outside
//! a range of its choice delivered to itself. That range is the C library's as a rule, and not ours: from then on the
//! calls that pass on are made there.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::raw::{self, Answer};

use crate::kernel::behind::{Function, next};
use crate::kernel::call::errno;

/// As prctl(2) has it.
pub const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;

/// The C library's `syscall`, once it is to make the calls; 0 before.
pub static BY: AtomicUsize = AtomicUsize::new(0);

/// The C library makes the calls from now on.
pub fn begin() {
    BY.store(next(Function::Syscall), Ordering::Relaxed);
}

/// Whether it does.
#[inline]
pub fn has_begun() -> bool {
    BY.load(Ordering::Relaxed) != 0
}

/// Makes system call `nr`.
///
/// # Safety
/// As the call.
#[inline]
pub unsafe fn syscall(nr: i64, args: [usize; 6]) -> Answer {
    match BY.load(Ordering::Relaxed) {
        // SAFETY: by contract.
        0 => unsafe { raw::direct(nr, args) },
        // SAFETY: by contract.
        by => unsafe { by_c_library(by, nr, args) },
    }
}

#[cold]
unsafe fn by_c_library(by: usize, nr: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    // SAFETY: the function of that name, and the caller's promise.
    let result = unsafe { core::mem::transmute::<usize, Syscall>(by)(nr, a, b, c, d, e, f) };
    if result == -1 { Err(errno()) } else { Ok(result as usize) }
}
