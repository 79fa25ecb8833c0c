//! Calls by which a program confines itself. Afterwards our own system calls might be refused, or end the program:
//! the engine retires before. Changes of namespace also want a process with one thread. The C library changes
//! identity thread by thread, and does not know of our thread. So our thread ends before, and the next one is started
//! with the new identity.

use core::ffi::{c_int, c_ulong};

use faultless_base::sys::raw::{self, Answer};

use crate::kernel::behind::{self, Function};
use crate::kernel::call::status;
use crate::kernel::dispatch;
use crate::kernel::libraries_behind::Call;
use crate::runtime::inside::{Inside, aside};
use crate::runtime::retire::{self, Calls};
use crate::runtime::worker::{self, Stopped};
use crate::runtime::{confined, engine};

/// The largest block that the C library may have in its heap, where freeing it makes no system call.
const LARGEST_IN_HEAP: usize = 32 << 20;

/// Whether a block of `bytes` bytes must be freed without a system call, for which the kernel would end the thread.
#[inline]
pub fn must_keep(bytes: impl FnOnce() -> usize) -> bool {
    confined::now() == confined::STRICT && bytes() <= LARGEST_IN_HEAP
}

/// A filter of system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// One of the program's own.
    Own,
    /// Read, write and exit.
    Strict,
}

fn filter_of_prctl(operation: c_int, mode: usize) -> Option<Filter> {
    let strict = mode == libc::SECCOMP_MODE_STRICT as usize;
    (operation == libc::PR_SET_SECCOMP).then_some(if strict { Filter::Strict } else { Filter::Own })
}

/// A thread of this process confines itself by `make`.
fn confine(filter: Filter, make: impl FnOnce() -> Answer) -> Answer {
    let before = confined::now();
    retire::confine(confined::FILTERED);
    // In memory that is shared, the thread of the parent's is not to be strict when this process has ended.
    let lasts = filter == Filter::Strict && before == confined::FREE && !confined::is_apart();
    let becomes_strict = lasts && (engine::is_home() || confined::ends_with_process());
    let answer = make();
    match answer {
        // From now on not even a question is allowed.
        Ok(_) if becomes_strict => confined::set(confined::STRICT),
        Ok(_) => {}
        Err(_) => confined::set(before),
    }
    answer
}

/// prctl, made by `make`.
pub fn prctl_by(operation: c_int, mode: usize, make: impl FnOnce() -> Answer) -> Answer {
    if operation == dispatch::PR_SET_SYSCALL_USER_DISPATCH && mode != 0 {
        retire::retire_process(Calls::End);
        dispatch::begin();
    }
    if operation == libc::PR_SET_TSC && mode != libc::PR_TSC_ENABLE as usize {
        raw::ask_kernel_for_time();
    }
    match filter_of_prctl(operation, mode) {
        Some(filter) => confine(filter, make),
        None => make(),
    }
}

/// seccomp, made by `make`.
pub fn seccomp_by(operation: usize, make: impl FnOnce() -> Answer) -> Answer {
    // The kernel looks at 32 bits.
    match operation as u32 as usize {
        SECCOMP_SET_MODE_STRICT => confine(Filter::Strict, make),
        SECCOMP_SET_MODE_FILTER => confine(Filter::Own, make),
        _ => make(),
    }
}

const SECCOMP_SET_MODE_STRICT: usize = libc::SECCOMP_SET_MODE_STRICT as usize;
const SECCOMP_SET_MODE_FILTER: usize = libc::SECCOMP_SET_MODE_FILTER as usize;

/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(operation: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let args = [operation as usize, a as usize, b as usize, c as usize, d as usize, 0];
    // SAFETY: the caller's promise.
    status(prctl_by(operation, a as usize, || unsafe { Call::Prctl.pass_on(args) }))
}

/// As unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    retire::retire_process(Calls::GoOn);
    // SAFETY: no pointers.
    status(unsafe { Call::Unshare.pass_on([flags as usize, 0, 0, 0, 0, 0]) })
}

/// As setns(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    retire::retire_process(Calls::GoOn);
    // SAFETY: no pointers.
    status(unsafe { Call::Setns.pass_on([fd as usize, kind as usize, 0, 0, 0, 0]) })
}

/// Ends the background thread for a change of identity.
fn without_worker() -> Stopped {
    // A signal handler that interrupted the engine: the thread may be waiting for a lock that is held here.
    const NESTED_US: u64 = 100_000;
    // A child finds out first that the thread is not here.
    let _ = engine::settled();
    match Inside::enter() {
        Some(_inside) => worker::stop(),
        None => aside(|| worker::stop_within(NESTED_US)),
    }
}

/// Before a thread of the program ends by the bare system call. The process ends with the status of its last thread,
/// which is not to be ours.
pub fn before_exit() {
    let serves = engine::running().is_some_and(|engine| !engine.is_retired());
    if serves && !confined::is_apart() && engine::is_home() {
        drop(without_worker());
    }
}

/// Before the next functions are known there is one thread, and the kernel's call is all there is to do.
#[cold]
fn set_early(function: Function, args: &[usize]) -> c_int {
    const KEPT: usize = u32::MAX as usize;
    let arg = |i: usize| args.get(i).copied().unwrap_or(0);
    let (a, b, c) = (arg(0), arg(1), arg(2));
    let (number, args) = match function {
        Function::Setuid => (libc::SYS_setuid, [a, 0, 0]),
        Function::Setgid => (libc::SYS_setgid, [a, 0, 0]),
        Function::Seteuid => (libc::SYS_setresuid, [KEPT, a, KEPT]),
        Function::Setegid => (libc::SYS_setresgid, [KEPT, a, KEPT]),
        Function::Setreuid => (libc::SYS_setreuid, [a, b, 0]),
        Function::Setregid => (libc::SYS_setregid, [a, b, 0]),
        Function::Setresuid => (libc::SYS_setresuid, [a, b, c]),
        Function::Setresgid => (libc::SYS_setresgid, [a, b, c]),
        Function::Setgroups => (libc::SYS_setgroups, [a, b, 0]),
        // Initgroups reads files, which takes the C library.
        _ => return -1,
    };
    // SAFETY: the caller's promise.
    status(unsafe { dispatch::syscall(number, [args[0], args[1], args[2], 0, 0, 0]) })
}

macro_rules! identity {
    ($($name:ident, $function:ident($($arg:ident: $type:ty),*);)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let real = behind::next(Function::$function);
            if real == 0 {
                return set_early(Function::$function, [$($arg as usize),*].as_slice());
            }
            let _stopped = (!confined::is_apart()).then(without_worker);
            if let Some(engine) = engine::running() {
                engine.space.want_worker();
            }
            // SAFETY: the function of that name and type, and the caller's promise.
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(real)($($arg),*) }
        }
    )+ };
}

identity! {
    setuid, Setuid(user: libc::uid_t);
    setgid, Setgid(group: libc::gid_t);
    seteuid, Seteuid(user: libc::uid_t);
    setegid, Setegid(group: libc::gid_t);
    setreuid, Setreuid(real_user: libc::uid_t, user: libc::uid_t);
    setregid, Setregid(real_group: libc::gid_t, group: libc::gid_t);
    setresuid, Setresuid(real_user: libc::uid_t, user: libc::uid_t, saved: libc::uid_t);
    setresgid, Setresgid(real_group: libc::gid_t, group: libc::gid_t, saved: libc::gid_t);
    setgroups, Setgroups(n: usize, groups: *const libc::gid_t);
    initgroups, Initgroups(user: *const libc::c_char, group: libc::gid_t);
}
