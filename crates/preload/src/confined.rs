//! Calls by which a program confines itself. Afterwards our own system calls might be refused, or end the program:
//! the engine retires before. Changes of namespace also want a process with one thread. Changes of identity are made
//! thread by thread in the C library, which does not know of ours: it ends before, and the next one is started with
//! the new identity.

use core::ffi::{CStr, c_int, c_ulong, c_void};

use crate::behind::Call;
use crate::engine;
use crate::inside::Inside;
use crate::mappings::status;
use crate::worker::{self, Stopped};

/// Before a prctl(2).
pub fn before_prctl(operation: c_int) {
    if operation == libc::PR_SET_SECCOMP {
        engine::retire();
    }
}

/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(operation: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    before_prctl(operation);
    // SAFETY: the caller's promise.
    status(unsafe { Call::Prctl.pass_on([operation as usize, a as usize, b as usize, c as usize, d as usize, 0]) })
}

/// As unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { Call::Unshare.pass_on([flags as usize, 0, 0, 0, 0, 0]) })
}

/// As setns(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    engine::retire();
    // SAFETY: no pointers.
    status(unsafe { Call::Setns.pass_on([fd as usize, kind as usize, 0, 0, 0, 0]) })
}

/// Ends the background thread for a change of identity.
fn without_worker() -> Stopped {
    // A signal handler that interrupted the engine: the thread may be waiting for what is held here.
    const NESTED_US: u64 = 100_000;
    // A child finds out first that the thread is not here.
    let _ = engine::settled();
    match Inside::enter() {
        Some(_inside) => worker::stop(),
        None => worker::stop_within(NESTED_US),
    }
}

/// The C library's own function of that name.
unsafe fn real(name: &CStr) -> *mut c_void {
    // SAFETY: a constant name, which the C library has.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! identity {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let _stopped = without_worker();
            if let Some(engine) = engine::running() {
                engine.space.want_worker();
            }
            let name = concat!(stringify!($name), "\0");
            // SAFETY: the function of that name and type, and the caller's promise.
            unsafe {
                let name = CStr::from_bytes_with_nul_unchecked(name.as_bytes());
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(real(name))($($arg),*)
            }
        }
    )+ };
}

identity! {
    setuid(user: libc::uid_t);
    setgid(group: libc::gid_t);
    seteuid(user: libc::uid_t);
    setegid(group: libc::gid_t);
    setreuid(real_user: libc::uid_t, user: libc::uid_t);
    setregid(real_group: libc::gid_t, group: libc::gid_t);
    setresuid(real_user: libc::uid_t, user: libc::uid_t, saved: libc::uid_t);
    setresgid(real_group: libc::gid_t, group: libc::gid_t, saved: libc::gid_t);
    setgroups(n: usize, groups: *const libc::gid_t);
    initgroups(user: *const libc::c_char, group: libc::gid_t);
}
