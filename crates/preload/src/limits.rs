//! Limits that a program sets itself. The arena counts towards its address space, and free memory towards its data
//! and towards what it may lock: the engine retires before.

use core::ffi::{c_int, c_uint};

use faultless_base::sys::raw::syscall;

use crate::mappings::status;
use crate::{engine, given};

fn is_about_memory(kind: c_uint) -> bool {
    kind == libc::RLIMIT_AS || kind == libc::RLIMIT_DATA
}

/// As prlimit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: libc::pid_t,
    kind: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    let here = pid == 0 || pid == engine::pid();
    // SAFETY: a limit is two numbers.
    let limit = || unsafe { given::read(new) };
    if here && is_about_memory(kind) && limit().is_some_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY) {
        engine::retire();
    }
    // SAFETY: the caller's promise.
    status(unsafe {
        syscall(libc::SYS_prlimit64, [pid as usize, kind as usize, new as usize, old as usize, 0, 0])
    })
}

/// As prlimit64(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: libc::pid_t,
    kind: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(pid, kind, new, old) }
}

/// As setrlimit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(kind: c_uint, limit: *const libc::rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, kind, limit, core::ptr::null_mut()) }
}

/// As setrlimit64(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(kind: c_uint, limit: *const libc::rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, kind, limit, core::ptr::null_mut()) }
}

/// As mlockall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { syscall(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) })
}
