//! Limits that a program sets itself. The arena counts towards its address space, and free memory towards its data
//! and towards what it may lock: the engine retires before. Where another process sets one, it retires when a request fails.

use core::ffi::{c_int, c_uint};

use faultless_base::sys::raw::syscall;

use crate::kernel::call::{self, fetch, status};
use crate::kernel::libraries_behind::Call;
use crate::runtime::engine;

fn is_about_memory(kind: c_uint) -> bool {
    kind == libc::RLIMIT_AS || kind == libc::RLIMIT_DATA
}

/// Before a limit of a process is set, if `new` says one.
pub fn before(pid: libc::pid_t, kind: c_uint, new: *const libc::rlimit) {
    let here = pid == 0 || pid == call::pid();
    if here && is_about_memory(kind) && fetch(new).is_some_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY) {
        engine::retire();
    }
}

/// A request for memory has failed. Whether it is worth another try, because another process has limited this one, and
/// the arena counted.
#[cold]
pub fn relieve() -> bool {
    let limited = |kind| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        let args = [0, kind as usize, 0, &raw mut limit as usize, 0, 0];
        // SAFETY: the structure is writable.
        unsafe { syscall(libc::SYS_prlimit64, args) }.is_ok() && limit.rlim_cur != libc::RLIM_INFINITY
    };
    let retires = engine::running().is_some_and(|engine| !engine.is_retired())
        && engine::is_home()
        && (limited(libc::RLIMIT_AS) || limited(libc::RLIMIT_DATA));
    if retires {
        engine::retire();
    }
    retires
}

macro_rules! prlimits {
    ($($name:ident, $call:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: libc::pid_t,
            kind: c_uint,
            new: *const libc::rlimit,
            old: *mut libc::rlimit,
        ) -> c_int {
            before(pid, kind, new);
            // SAFETY: the caller's promise.
            status(unsafe { Call::$call.pass_on([pid as usize, kind as usize, new as usize, old as usize, 0, 0]) })
        }
    )+ };
}

prlimits! {
    prlimit, Prlimit;
    prlimit64, Prlimit64;
}

macro_rules! setrlimits {
    ($($name:ident, $call:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(kind: c_uint, new: *const libc::rlimit) -> c_int {
            before(0, kind, new);
            // SAFETY: the caller's promise. The C library makes the other call, too, which a filter may demand.
            status(unsafe {
                match Call::$call.is_seen() {
                    true => Call::$call.pass_on([kind as usize, new as usize, 0, 0, 0, 0]),
                    false => syscall(libc::SYS_prlimit64, [0, kind as usize, new as usize, 0, 0, 0]),
                }
            })
        }
    )+ };
}

setrlimits! {
    setrlimit, Setrlimit;
    setrlimit64, Setrlimit64;
}

/// As mlockall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { Call::Mlockall.pass_on([flags as usize, 0, 0, 0, 0, 0]) })
}
