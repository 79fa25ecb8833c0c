//! Calls that pass on: to a library preloaded behind ours, which may want to see them, and else to the kernel.
//!
//! The next function of a name is looked up at load time, and only where `LD_PRELOAD` names several libraries: a call may
//! come from a signal handler or a child of vfork, in which nothing can be looked up.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::raw::syscall;

use crate::mappings::status;

macro_rules! calls {
    ($($call:ident, $name:literal, $number:ident;)+) => {
        /// A call that passes on.
        #[derive(Clone, Copy)]
        pub enum Call {
            $($call),+
        }

        const CALLS: &[(&CStr, i64)] = &[$(($name, libc::$number)),+];
    };
}

calls! {
    Prctl, c"prctl", SYS_prctl;
    Unshare, c"unshare", SYS_unshare;
    Setns, c"setns", SYS_setns;
    Prlimit, c"prlimit64", SYS_prlimit64;
    Mlockall, c"mlockall", SYS_mlockall;
}

static NEXT: [AtomicUsize; CALLS.len()] = [const { AtomicUsize::new(0) }; CALLS.len()];

/// Runs before `main`.
pub fn look_up(preloaded: &[u8]) {
    let libraries = preloaded.split(|byte| matches!(byte, b':' | b' ')).filter(|path| !path.is_empty());
    if libraries.count() > 1 {
        for (place, (name, _)) in NEXT.iter().zip(CALLS) {
            // SAFETY: a constant name.
            place.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize, Ordering::Relaxed);
        }
    }
}

impl Call {
    /// Passes a call on that answers with a number.
    ///
    /// # Safety
    /// As the call.
    pub unsafe fn pass_on(self, args: [usize; 5]) -> c_int {
        let next = NEXT[self as usize].load(Ordering::Relaxed);
        let [a, b, c, d, e] = args;
        if next == 0 {
            // SAFETY: by contract.
            return status(unsafe { syscall(CALLS[self as usize].1, [a, b, c, d, e, 0]) });
        }
        type Next = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;
        // SAFETY: the function of that name: its arguments are in registers, of which it reads its own.
        unsafe { core::mem::transmute::<usize, Next>(next)(a, b, c, d, e) }
    }
}
