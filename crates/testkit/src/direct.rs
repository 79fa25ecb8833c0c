//! System calls by the program's own instruction, which no library sees.

use core::arch::asm;

/// What a call answered: a value, or the error number.
pub type Answer = Result<usize, i32>;

/// Makes system call `nr`.
///
/// # Safety
/// As the system call.
pub unsafe fn syscall(nr: i64, args: [usize; 6]) -> Answer {
    let answer: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the kernel keeps all registers but rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise; the kernel keeps all registers but x0.
    unsafe {
        asm!("svc 0", in("x8") nr, inlateout("x0") args[0] as isize => answer,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5], options(nostack));
    }
    if (-4095..0).contains(&answer) { Err(-answer as i32) } else { Ok(answer as usize) }
}
