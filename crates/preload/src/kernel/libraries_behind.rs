//! Calls that pass on: to a library behind ours that has a function of the same name, and else to the kernel. Such a
//! library may be preloaded behind ours, or the program may be linked with it.
//!
//! The next function of a name is looked up at load time. Nothing can be looked up in a signal handler or in a child
//! of vfork, where a call may come from. The C library's own functions do not count: they make the system call, and
//! so do we. Calls that the program makes by `syscall` do not pass on: such a library may make its own call that way.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_base::sys::raw::Answer;

use crate::kernel::call::errno;
use crate::kernel::dispatch::syscall;
use crate::kernel::library::{Library, any_behind, find};
use crate::kernel::linked::is_linked;

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
    ($($call:ident, $name:literal, $number:ident, $returns:ident;)+) => {
        /// A call that passes on.
        #[derive(Clone, Copy)]
        pub enum Call {
            $($call),+
        }

        const CALLS: &[(&CStr, i64, Returns)] = &[$(($name, libc::$number, $returns)),+];
    };
}

calls! {
    Prctl, c"prctl", SYS_prctl, Int;
    Unshare, c"unshare", SYS_unshare, Int;
    Setns, c"setns", SYS_setns, Int;
    Setrlimit, c"setrlimit", SYS_setrlimit, Int;
    Setrlimit64, c"setrlimit64", SYS_setrlimit, Int;
    Prlimit, c"prlimit", SYS_prlimit64, Int;
    Prlimit64, c"prlimit64", SYS_prlimit64, Int;
    Mlockall, c"mlockall", SYS_mlockall, Int;
    Mmap, c"mmap", SYS_mmap, Word;
    Mmap64, c"mmap64", SYS_mmap, Word;
    Munmap, c"munmap", SYS_munmap, Int;
    Mremap, c"mremap", SYS_mremap, Word;
    Mprotect, c"mprotect", SYS_mprotect, Int;
    PkeyMprotect, c"pkey_mprotect", SYS_pkey_mprotect, Int;
    Mlock, c"mlock", SYS_mlock, Int;
    Mlock2, c"mlock2", SYS_mlock2, Int;
    Munlock, c"munlock", SYS_munlock, Int;
    Mseal, c"mseal", SYS_mseal, Int;
    Mbind, c"mbind", SYS_mbind, Word;
    Madvise, c"madvise", SYS_madvise, Int;
    PosixMadvise, c"posix_madvise", SYS_madvise, Int;
    ProcessMadvise, c"process_madvise", SYS_process_madvise, Word;
    Mincore, c"mincore", SYS_mincore, Int;
    Ioctl, c"ioctl", SYS_ioctl, Int;
    Setsockopt, c"setsockopt", SYS_setsockopt, Int;
    Shmat, c"shmat", SYS_shmat, Word;
    Vmsplice, c"vmsplice", SYS_vmsplice, Word;
}

static NEXT: [AtomicUsize; CALLS.len()] = [const { AtomicUsize::new(0) }; CALLS.len()];

static LOOKED_UP: AtomicBool = AtomicBool::new(false);

/// Runs before `main`.
pub fn look_up() {
    // The search may allocate, for which an allocator may map memory.
    LOOKED_UP.store(true, Ordering::Relaxed);
    if any_behind() {
        let c_library = Library::c_library();
        (0..CALLS.len()).for_each(|call| look_up_one(call, c_library));
    }
}

/// Looks for a function behind ours that is not the C library's.
#[cold]
fn look_up_one(call: usize, c_library: Option<Library>) {
    let at = find(CALLS[call].0);
    if at != 0 && !c_library.is_some_and(|library| library.has(at)) {
        NEXT[call].store(at, Ordering::Relaxed);
    }
}

fn is_first_thread() -> bool {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) == syscall(libc::SYS_getpid, [0; 6]) }
}

type Next = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

impl Call {
    fn next(self) -> Option<Next> {
        // The constructor of another library may be earlier, or an allocator makes itself ready, which must not be
        // asked for memory. No other name is looked up, because the search for a missing one allocates.
        // Another thread does not look: the first one may be loading a library, and wait for it.
        if !LOOKED_UP.load(Ordering::Relaxed) && is_linked() && is_first_thread() {
            look_up_one(self as usize, Library::c_library());
        }
        let next = NEXT[self as usize].load(Ordering::Relaxed);
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
