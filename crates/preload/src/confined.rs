//! Calls by which a program confines itself. Afterwards our own system calls might be refused, or end the program:
//! the engine retires before. Changes of namespace also want a process with one thread.

use core::ffi::{c_int, c_ulong};

use faultless_base::sys::raw::syscall;

use crate::engine;
use crate::mappings::status;

/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(operation: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    if operation == libc::PR_SET_SECCOMP {
        engine::retire();
    }
    // SAFETY: the caller's promise.
    let answer = unsafe {
        syscall(libc::SYS_prctl, [operation as usize, a as usize, b as usize, c as usize, d as usize, 0])
    };
    status(answer)
}

/// As unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) })
}

/// As setns(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { syscall(libc::SYS_setns, [fd as usize, kind as usize, 0, 0, 0, 0]) })
}
