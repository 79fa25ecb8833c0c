//! Whether a thread has thread-local variables.
//!
//! A thread that a program makes by a bare `clone` may have none: its thread pointer is zero, or names a block of zeroes. It may
//! call what needs none in the C library, which is most of what stands before ours.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether the thread pointer can be read by an instruction.
#[cfg(target_arch = "x86_64")]
static IS_READABLE: AtomicBool = AtomicBool::new(false);

/// Runs before `main`.
pub fn look_up() {
    #[cfg(target_arch = "x86_64")]
    {
        /// In `AT_HWCAP2`: programs may use `rdfsbase`.
        const FSGSBASE: u64 = 1 << 1;
        // SAFETY: no memory.
        let has = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        IS_READABLE.store(has & FSGSBASE != 0, Ordering::Relaxed);
    }
}

/// Whether the calling thread has thread-local variables. Where that cannot be known, it passes for one that has.
#[inline]
pub fn has_variables() -> bool {
    #[cfg(target_arch = "x86_64")]
    if IS_READABLE.load(Ordering::Relaxed) {
        let at: usize;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("rdfsbase {}", out(reg) at, options(nomem, nostack, preserves_flags)) };
        // SAFETY: the thread's control block, of which the first word is its own address.
        return at != 0 && unsafe { (at as *const usize).read_volatile() } == at;
    }
    true
}
