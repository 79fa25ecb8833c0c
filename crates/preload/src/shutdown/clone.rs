//! clone(3). A child with memory of its own has one thread, which the C library ends behind the child's function, by an
//! instruction. The background thread would go on for a while, and the child with it: so it ends before. A child that
//! shares its parent's memory may have numbers of its own: the engine must tell it from its parent.

use core::ffi::{c_int, c_void};
use core::mem::transmute;

use faultless_base::Errno;

use crate::kernel::behind::{Function, next};
use crate::kernel::call::set_errno;
use crate::runtime::engine;
use crate::shutdown::sandbox;

type Child = unsafe extern "C" fn(*mut c_void) -> c_int;
/// As the function has them; the last three count with some flags alone.
type Clone = unsafe extern "C" fn(
    Option<Child>,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// What the program's child is to do; it lies at the upper end of the child's stack.
#[repr(C, align(16))]
struct Work {
    child: Child,
    argument: *mut c_void,
}

unsafe extern "C" fn work(what: *mut c_void) -> c_int {
    // SAFETY: put there by `clone`, for this child alone.
    let status = unsafe {
        let Work { child, argument } = what.cast::<Work>().read();
        child(argument)
    };
    sandbox::before_exit();
    status
}

/// As clone(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    child: Option<Child>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    let made = next(Function::Clone);
    if made == 0 {
        set_errno(Errno::ENOSYS);
        return -1;
    }
    // SAFETY: the function of that name.
    let made = unsafe { transmute::<usize, Clone>(made) };
    let apart = libc::CLONE_VM | libc::CLONE_NEWPID;
    if flags & apart == apart {
        engine::expect_namespace();
    }
    // What has no stack or no function is refused.
    let own = child.filter(|_| flags & libc::CLONE_VM == 0 && !stack.is_null());
    match own {
        // SAFETY: the C library writes to the same place, what it calls in the child.
        Some(child) => unsafe {
            let at = ((stack as usize & !15) as *mut Work).sub(1);
            at.write(Work { child, argument });
            made(Some(work), at.cast(), flags, at.cast(), parent_tid, tls, child_tid)
        },
        // SAFETY: the program's own call.
        None => unsafe { made(child, stack, flags, argument, parent_tid, tls, child_tid) },
    }
}
