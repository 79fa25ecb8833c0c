//! The system calls that a process apart may make: only those that its work needs (seccomp).
//!
//! It keeps the rights that the program had when it was started. Code that can write to the program's memory can have
//! it do anything. So a program that gives up rights later must not find them there.

use libc::sock_filter;

/// None opens anything, or reaches another process.
const CALLS: [i64; 17] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_restart_syscall,
];

/// The one set of numbers that is meant (`AUDIT_ARCH_*`).
const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
/// Where the kernel says which (`struct seccomp_data`).
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;

const LENGTH: usize = CALLS.len() + 5;
const FILTER: [sock_filter; LENGTH] = program();

const fn load(at: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

/// Skips `equal` instructions if the loaded word is `k`, and `other` instructions if not.
const fn jump(k: u32, equal: usize, other: usize) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: equal as u8, jf: other as u8, k }
}

const fn answer(k: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

const fn program() -> [sock_filter; LENGTH] {
    let mut program = [answer(libc::SECCOMP_RET_ALLOW); LENGTH];
    let refused = LENGTH - 2;
    program[refused] = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    program[0] = load(ARCH_AT);
    program[1] = jump(ARCH, 0, refused - 2);
    program[2] = load(NUMBER_AT);
    let mut i = 0;
    while i < CALLS.len() {
        program[3 + i] = jump(CALLS[i] as u32, LENGTH - 1 - (4 + i), 0);
        i += 1;
    }
    program
}

/// From now on this process makes no others: they fail with EPERM. Where the kernel does not know this, it may.
pub fn begin() {
    let filter = libc::sock_fprog { len: LENGTH as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: this process's own limits; the kernel copies the filter.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter);
    }
}
