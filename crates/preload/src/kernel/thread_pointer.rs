//! Whether a thread has thread-local variables.
//!
//! A thread that a program makes by a bare `clone` may have none: its thread pointer is zero, or names a block of zeroes or one
//! of the program's own kind. It may call what needs none in the C library, which is most of what stands before ours.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether the thread pointer can be read by an instruction.
#[cfg(target_arch = "x86_64")]
static IS_READABLE: AtomicBool = AtomicBool::new(false);

/// The second word that has its own address in the C library's control block of a thread.
#[cfg(target_arch = "x86_64")]
const SECOND: usize = 2;

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
        if at == 0 {
            return false;
        }
        let word = at as *const usize;
        // The C library's control block has its own address in two words. A program's may have it in the first one, as
        // compilers expect it.
        // SAFETY: a control block, of the C library's or of the program's.
        return unsafe { word.read_volatile() == at && word.add(SECOND).read_volatile() == at };
    }
    true
}
