//! Calls by which a program confines itself. Afterwards our own system calls might be refused, or end the program:
//! the engine retires before. Changes of namespace also want a process with one thread. Changes of identity are made
//! thread by thread in the C library, which does not know of ours: it ends before, and the next one is started with
//! the new identity.

use core::ffi::{CStr, c_int, c_ulong};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::kernel::call::status;
use crate::kernel::libraries_behind::Call;
use crate::kernel::library::find;
use crate::runtime::engine;
use crate::runtime::inside::Inside;
use crate::runtime::worker::{self, Stopped};

/// Whether a thread may make no system call any more but read, write and exit.
static STRICT: AtomicBool = AtomicBool::new(false);

/// The largest block that the C library may have in its heap, where freeing it makes no system call.
const LARGEST_IN_HEAP: usize = 32 << 20;

/// Whether a block of so many bytes is to be freed without a system call, for which the kernel would end the thread.
pub fn must_keep(bytes: usize) -> bool {
    STRICT.load(Ordering::Relaxed) && bytes <= LARGEST_IN_HEAP
}

/// Before a prctl(2).
pub fn before_prctl(operation: c_int, mode: usize) {
    if operation == libc::PR_SET_SECCOMP {
        engine::retire();
        STRICT.fetch_or(mode == libc::SECCOMP_MODE_STRICT as usize, Ordering::Relaxed);
    }
}

/// Before a seccomp(2).
pub fn before_seccomp(operation: usize) {
    engine::retire();
    STRICT.fetch_or(operation == libc::SECCOMP_SET_MODE_STRICT as usize, Ordering::Relaxed);
}

/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(operation: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    before_prctl(operation, a as usize);
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

/// Before a thread of the program ends by the bare system call. The process ends with the status of its last thread, which is not
/// to be ours.
pub fn before_exit() {
    if engine::running().is_some_and(|engine| !engine.is_retired()) && engine::is_home() {
        drop(without_worker());
    }
}

/// Finds the C library's own functions, before `main`: in a call of the program's another thread may be loading a library and
/// wait for this one.
pub fn look_up() {
    Identity::ALL.iter().for_each(|call| _ = call.look_up());
}

impl Identity {
    fn look_up(self) -> usize {
        let at = find(Self::NAMES[self as usize]);
        REAL[self as usize].store(at, Ordering::Relaxed);
        at
    }

    /// The C library's own function of that name. A constructor of another library may have it called before this one's ran.
    fn real(self) -> usize {
        match REAL[self as usize].load(Ordering::Relaxed) {
            0 => self.look_up(),
            at => at,
        }
    }
}

macro_rules! identity {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Identity {
            $($name),+
        }

        impl Identity {
            const ALL: &[Self] = &[$(Self::$name),+];
            const NAMES: &[&CStr] = &[$(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }),+];
        }

        static REAL: [AtomicUsize; Identity::ALL.len()] = [const { AtomicUsize::new(0) }; Identity::ALL.len()];

        $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let _stopped = without_worker();
            if let Some(engine) = engine::running() {
                engine.space.want_worker();
            }
            let real = Identity::$name.real();
            // SAFETY: the function of that name and type, and the caller's promise.
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(real)($($arg),*) }
        }
        )+
    };
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
