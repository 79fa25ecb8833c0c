//! System calls that a program makes by the C library's `syscall`. If the engine must know of a call, it does here
//! what it does beside the function of the same name. They do not pass on to libraries behind ours, which may make
//! their own calls here.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use faultless_base::sys::raw::Answer;

use crate::kernel::call::{fail, set_errno};
use crate::kernel::dispatch::{self, syscall as kernel};
use crate::mmap::attributes::{self, note};
use crate::mmap::{map, remap, unmap};
use crate::pinned;
use crate::runtime::{descriptors, retire};
use crate::shutdown::{limits, personality, sandbox};

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
        libc::SYS_io_setup,
        libc::SYS_mbind,
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_mlockall,
        libc::SYS_setrlimit,
        libc::SYS_prlimit64,
        libc::SYS_prctl,
        libc::SYS_seccomp,
        libc::SYS_personality,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_close_range,
        libc::SYS_exit,
        libc::SYS_ioctl,
        libc::SYS_setsockopt,
        libc::SYS_vmsplice,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
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
            set_errno(error);
            -1
        },
        |value| value as c_long,
    )
}

/// Makes the call `nr` with what its function does beside.
unsafe extern "C" fn route(nr: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let (args, at) = ([a, b, c, d, e, f], a as *mut c_void);
    // SAFETY: the caller's promise, the same as to the kernel.
    let make = |args| unsafe { kernel(nr, args) };
    // As the kernel reads it.
    match c_long::from(nr as c_int) {
        libc::SYS_mmap => return answer(map(args, make)),
        libc::SYS_mremap => return answer(remap(args, make)),
        libc::SYS_munmap => return answer(unmap(args)),
        libc::SYS_madvise => return answer(attributes::advise(a, b, c as c_int)),
        libc::SYS_shmat => {
            let _replaced = pinned::before_shmat(a as c_int, b as *const c_void, c as c_int);
            let result = limits::with_relief(|| make(args));
            pinned::after_shmat(result, a as c_int);
            return answer(result);
        }
        libc::SYS_ioctl => {
            let _unregistered = pinned::before_ioctl(b as c_ulong, c as *mut c_void);
            return answer(make(args));
        }
        libc::SYS_mprotect => {
            note(at, b);
            return answer(limits::with_relief(|| make(args)));
        }
        libc::SYS_mbind => return answer(attributes::place(args, make)),
        libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_munlock | libc::SYS_mseal => note(at, b),
        libc::SYS_pkey_mprotect => attributes::before_pkey(at, b, d as c_int),
        libc::SYS_process_madvise => pinned::before_process_madvise(b as *const libc::iovec, c, d as c_int),
        libc::SYS_mincore => pinned::before_mincore(at, b),
        libc::SYS_userfaultfd => pinned::before_userfaultfd(),
        libc::SYS_setsockopt => pinned::before_setsockopt(b as c_int, c as c_int),
        libc::SYS_sendto | libc::SYS_sendmmsg => pinned::before_send(d as c_int),
        libc::SYS_sendmsg => pinned::before_send(c as c_int),
        libc::SYS_vmsplice => pinned::before_vmsplice(b as *const libc::iovec, c),
        libc::SYS_io_uring_setup | libc::SYS_io_uring_enter | libc::SYS_io_setup => pinned::before_io_uring(),
        libc::SYS_io_uring_register => {
            pinned::before_io_uring();
            pinned::before_io_uring_register(args);
        }
        libc::SYS_setrlimit => limits::before(0, a as c_uint, b as *const libc::rlimit),
        libc::SYS_prlimit64 => limits::before(a as c_int, b as c_uint, c as *const libc::rlimit),
        libc::SYS_prctl => return answer(sandbox::prctl_by(a as c_int, b, || make(args))),
        libc::SYS_exit => sandbox::before_exit(),
        libc::SYS_seccomp => return answer(sandbox::seccomp_by(a, || make(args))),
        libc::SYS_unshare | libc::SYS_setns => _ = retire::retire_process(retire::Calls::GoOn),
        libc::SYS_close_range => return answer(descriptors::close_range_by(c, || make(args))),
        libc::SYS_mlockall => retire::retire(),
        libc::SYS_personality => personality::before(a as c_ulong),
        _ => {}
    }
    answer(make(args))
}

/// As syscall(2). Of the number the kernel looks at the lower 32 bits. Calls that are not routed pass on with registers and stack as they were, since some return twice;
/// those that are find their arguments where any function does.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp edi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {routed}]",
        "bt dword ptr [rax], edi",
        "jc {route}",
        "2:",
        "mov rax, qword ptr [rip + {by}]",
        "test rax, rax",
        "jnz 4f",
        "mov rax, rdi", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov r10, r8", "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "neg eax", "mov edi, eax", "jmp {fail}",
        "4:",
        "jmp rax",
        by = sym dispatch::BY,
        numbers = const NUMBERS,
        routed = sym ROUTED,
        route = sym route,
        fail = sym fail,
    )
}
