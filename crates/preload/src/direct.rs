//! System calls that a program makes by the C library's `syscall`. Those that the engine must know of take the way of
//! the function of that name.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use faultless_base::sys::raw::{Answer, syscall as kernel};

use crate::attributes::{madvise, mbind, mlock, mlock2, mprotect, mseal, munlock, pkey_mprotect};
use crate::mappings::{mmap, mremap, munmap};
use crate::pinned::{self, ioctl, setsockopt, vmsplice};
use crate::{confined, engine, limits};

const NUMBERS: usize = 512;

/// One bit for each number; set for those that [`route`] knows.
static ROUTED: [u32; NUMBERS / 32] = {
    let known = [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_pkey_mprotect,
        libc::SYS_madvise,
        libc::SYS_mincore,
        libc::SYS_userfaultfd,
        libc::SYS_shmat,
        libc::SYS_process_madvise,
        libc::SYS_mseal,
        libc::SYS_io_uring_setup,
        libc::SYS_mbind,
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_mlockall,
        libc::SYS_setrlimit,
        libc::SYS_prlimit64,
        libc::SYS_prctl,
        libc::SYS_seccomp,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_exit,
        libc::SYS_ioctl,
        libc::SYS_setsockopt,
        libc::SYS_vmsplice,
        libc::SYS_io_uring_register,
    ];
    let mut bits = [0; NUMBERS / 32];
    let mut i = 0;
    while i < known.len() {
        bits[known[i] as usize / 32] |= 1 << (known[i] % 32);
        i += 1;
    }
    bits
};

fn answer(result: Answer) -> c_long {
    result.map_or_else(
        |error| {
            engine::set_errno(error);
            -1
        },
        |value| value as c_long,
    )
}

/// Makes the call `nr` with what its function does beside.
unsafe extern "C" fn route(nr: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let at = a as *mut c_void;
    let status = |status: c_int| c_long::from(status);
    // SAFETY: the caller's promise, the same as to the kernel.
    unsafe {
        match nr {
            libc::SYS_mmap => mmap(at, b, c as c_int, d as c_int, e as c_int, f as i64) as c_long,
            libc::SYS_mremap => mremap(at, b, c, d as c_int, e as *mut c_void) as c_long,
            libc::SYS_munmap => status(munmap(at, b)),
            libc::SYS_mprotect => status(mprotect(at, b, c as c_int)),
            libc::SYS_pkey_mprotect => status(pkey_mprotect(at, b, c as c_int, d as c_int)),
            libc::SYS_madvise => status(madvise(at, b, c as c_int)),
            libc::SYS_mincore => status(pinned::mincore(at, b, c as *mut u8)),
            libc::SYS_shmat => pinned::shmat(a as c_int, b as *const c_void, c as c_int) as c_long,
            libc::SYS_process_madvise => {
                pinned::process_madvise(b as *const libc::iovec, c);
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_mseal => status(mseal(at, b, c as c_ulong)),
            libc::SYS_userfaultfd => {
                pinned::look();
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_io_uring_setup => {
                pinned::io_uring_setup();
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_mbind => mbind(at, b as c_ulong, c as c_int, d as *const c_ulong, e as c_ulong, f as u32),
            libc::SYS_mlock => status(mlock(at, b)),
            libc::SYS_mlock2 => status(mlock2(at, b, c as u32)),
            libc::SYS_munlock => status(munlock(at, b)),
            // Not by their functions, which pass on to libraries behind ours: these may make their calls here.
            libc::SYS_setrlimit => {
                limits::before(0, a as c_uint, b as *const libc::rlimit);
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_prlimit64 => {
                limits::before(a as c_int, b as c_uint, c as *const libc::rlimit);
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_prctl => {
                confined::before_prctl(a as c_int, b);
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_ioctl => status(ioctl(a as c_int, b as c_ulong, c as *mut c_void)),
            libc::SYS_setsockopt => {
                status(setsockopt(a as c_int, b as c_int, c as c_int, d as *const c_void, e as u32))
            }
            libc::SYS_vmsplice => vmsplice(a as c_int, b as *const libc::iovec, c, d as u32) as c_long,
            libc::SYS_io_uring_register => answer(pinned::io_uring_register([a, b, c, d, e, f])),
            libc::SYS_exit => {
                confined::before_exit();
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_seccomp => {
                confined::before_seccomp(a);
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            libc::SYS_unshare | libc::SYS_setns | libc::SYS_mlockall => {
                engine::retire();
                answer(kernel(nr, [a, b, c, d, e, f]))
            }
            _ => answer(kernel(nr, [a, b, c, d, e, f])),
        }
    }
}

/// Called by our `syscall` when the kernel reports an error.
unsafe extern "C" fn fail(error: c_int) -> isize {
    engine::set_errno(error);
    -1
}

/// As syscall(2). Calls that are not routed pass on with registers and stack as they were, since some return twice;
/// those that are find their arguments where any function does.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {routed}]",
        "bt dword ptr [rax], edi",
        "jc {route}",
        "2:",
        "mov rax, rdi", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov r10, r8", "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "neg eax", "mov edi, eax", "jmp {fail}",
        numbers = const NUMBERS,
        routed = sym ROUTED,
        route = sym route,
        fail = sym fail,
    )
}
