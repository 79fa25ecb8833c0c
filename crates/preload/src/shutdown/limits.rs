//! Limits that a program sets itself. The arena counts towards its address space, and free memory towards its data
//! and towards what it may lock: the engine retires before. Where another process sets one, it retires when a request
//! fails.

use core::ffi::{c_int, c_uint, c_void};

use faultless_base::Errno;
use faultless_base::sys::raw::Answer;

use crate::kernel::behind::{self, Function};
use crate::kernel::call::{self, fetch, status};
use crate::kernel::dispatch::syscall;
use crate::kernel::libraries_behind::Call;
use crate::runtime::{confined, engine, retire};

fn is_about_memory(kind: c_uint) -> bool {
    kind == libc::RLIMIT_AS || kind == libc::RLIMIT_DATA
}

/// Before a limit of a process is set, if `new` says one.
pub fn before(pid: libc::pid_t, kind: c_uint, new: *const libc::rlimit) {
    // Calls that the program does not make may be forbidden once it has confined itself.
    if is_about_memory(kind)
        && !retire::is_over()
        && is_own(pid)
        && fetch(new).is_some_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY)
    {
        retire::confine(confined::LIMITED);
    }
}

/// Whether this is a number of this process: any thread's stands for all of it.
fn is_own(pid: libc::pid_t) -> bool {
    // SAFETY: signal 0 is only a question.
    let is_thread =
        || unsafe { syscall(libc::SYS_tgkill, [call::pid() as usize, pid as usize, 0, 0, 0, 0]) }.is_ok();
    pid == 0 || pid == call::pid() || pid > 0 && is_thread()
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
    // A child that shares its parent's memory has the arena in the way of its limit, too.
    let retires = engine::running().is_some()
        && !retire::is_over()
        && confined::now() <= confined::LIMITED
        && (limited(libc::RLIMIT_AS) || limited(libc::RLIMIT_DATA));
    if retires {
        retire::retire();
    }
    retires
}

/// A request for memory, made by `make` and once more where the arena was in the way of a limit.
#[inline]
pub fn with_relief(make: impl Fn() -> Answer) -> Answer {
    match make() {
        Err(Errno::ENOMEM) if relieve() => make(),
        answer => answer,
    }
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
    retire::retire();
    // SAFETY: no pointers.
    status(unsafe { Call::Mlockall.pass_on([flags as usize, 0, 0, 0, 0, 0]) })
}

/// The end of the heap, moved by a function of the C library, which may fail.
fn moved_break(by: Function, argument: isize, is_failure: impl Fn(isize) -> bool) -> isize {
    let next = behind::next(by);
    if next == 0 {
        return -1;
    }
    // SAFETY: the functions of those names take one word; only of brk's result the upper half is not defined.
    let next = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(isize) -> isize>(next) };
    // SAFETY: the caller's promise.
    let make = || unsafe { next(argument) };
    let answer = make();
    if is_failure(answer) && relieve() { make() } else { answer }
}

/// As brk(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    moved_break(Function::Brk, end as isize, |answer| answer as c_int == -1) as c_int
}

/// As sbrk(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(bytes: isize) -> *mut c_void {
    moved_break(Function::Sbrk, bytes, |answer| answer == -1) as *mut c_void
}
