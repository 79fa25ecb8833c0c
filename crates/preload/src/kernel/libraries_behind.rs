//! Calls that pass on: to a library behind ours that has a function of the same name, and else to the kernel. Such a
//! library may be preloaded behind ours, or the program may be linked with it.
//!
//! The next function of a name is looked up at load time. Nothing can be looked up in a signal handler or in a child
//! of vfork, where a call may come from. The C library's own functions do not count: they make the system call, and
//! so do we. Calls that the program makes by `syscall` do not pass on: such a library may make its own call that way.

use core::ffi::c_int;

use faultless_base::sys::raw::Answer;

use crate::kernel::behind::{Function, foreign};
use crate::kernel::call::errno;
use crate::kernel::dispatch::syscall;

/// What a function returns; -1 is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    /// An `int`.
    Int,
    /// An address or a size.
    Word,
}
use Returns::{Int, Word};

macro_rules! calls {
    ($($call:ident, $number:ident, $returns:ident;)+) => {
        /// A call that passes on.
        #[derive(Clone, Copy)]
        pub enum Call {
            $($call),+
        }

        const CALLS: &[(Function, i64, Returns)] = &[$((Function::$call, libc::$number, $returns)),+];
    };
}

calls! {
    Prctl, SYS_prctl, Int;
    Unshare, SYS_unshare, Int;
    Setns, SYS_setns, Int;
    Setrlimit, SYS_setrlimit, Int;
    Setrlimit64, SYS_setrlimit, Int;
    Prlimit, SYS_prlimit64, Int;
    Prlimit64, SYS_prlimit64, Int;
    Mlockall, SYS_mlockall, Int;
    Mmap, SYS_mmap, Word;
    Mmap64, SYS_mmap, Word;
    Munmap, SYS_munmap, Int;
    Mremap, SYS_mremap, Word;
    Mprotect, SYS_mprotect, Int;
    PkeyMprotect, SYS_pkey_mprotect, Int;
    Mlock, SYS_mlock, Int;
    Mlock2, SYS_mlock2, Int;
    Munlock, SYS_munlock, Int;
    Mseal, SYS_mseal, Int;
    Mbind, SYS_mbind, Word;
    Madvise, SYS_madvise, Int;
    PosixMadvise, SYS_madvise, Int;
    ProcessMadvise, SYS_process_madvise, Word;
    Mincore, SYS_mincore, Int;
    Ioctl, SYS_ioctl, Int;
    Setsockopt, SYS_setsockopt, Int;
    Shmat, SYS_shmat, Word;
    Vmsplice, SYS_vmsplice, Word;
    Personality, SYS_personality, Int;
    CloseRange, SYS_close_range, Int;
}

type Next = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

impl Call {
    fn next(self) -> Option<Next> {
        let (function, ..) = CALLS[self as usize];
        let next = foreign(function);
        // SAFETY: the function of that name: its arguments are in registers, of which it reads its own.
        (next != 0).then(|| unsafe { core::mem::transmute::<usize, Next>(next) })
    }

    /// Whether a library behind ours sees it. Then the program's own call is to be made, and no other in its place.
    pub fn is_seen(self) -> bool {
        self.next().is_some()
    }

    /// Passes the call on.
    ///
    /// # Safety
    /// As the call.
    pub unsafe fn pass_on(self, args: [usize; 6]) -> Answer {
        let (_, number, returns) = CALLS[self as usize];
        let Some(next) = self.next() else {
            // SAFETY: by contract.
            return unsafe { syscall(number, args) };
        };
        let [a, b, c, d, e, f] = args;
        // SAFETY: by contract.
        let result = unsafe { next(a, b, c, d, e, f) };
        // The upper half of an `int` is not defined.
        let result = if returns == Int { result as c_int as usize } else { result };
        if result == usize::MAX { Err(errno()) } else { Ok(result) }
    }
}
