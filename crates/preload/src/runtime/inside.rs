//! A flag of each thread: it is inside the engine.
//!
//! A signal handler may interrupt the engine and call mmap or malloc. The flag tells it to go to the kernel
//! instead of waiting for a lock that its own thread holds. It is a thread-local variable of the initial-exec
//! model, because the other models may allocate.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 4",
    ".hidden faultless_inside",
    ".type faultless_inside, @object",
    ".size faultless_inside, 4",
    "faultless_inside:",
    ".zero 4",
    ".popsection",
);

fn flag() -> *mut u32 {
    let at: *mut u32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes the address of this thread's variable.
    unsafe {
        asm!("mov {at}, qword ptr [rip + faultless_inside@GOTTPOFF]", "add {at}, qword ptr fs:[0]",
            at = out(reg) at, options(pure, readonly, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes the address of this thread's variable.
    unsafe {
        asm!("adrp {at}, :gottprel:faultless_inside", "ldr {at}, [{at}, :gottprel_lo12:faultless_inside]",
            "mrs {tp}, tpidr_el0", "add {at}, {at}, {tp}",
            at = out(reg) at, tp = out(reg) _, options(pure, readonly, nostack));
    }
    at
}

/// This thread is inside the engine until this is dropped.
pub struct Inside(());

impl Inside {
    /// Enters; `None` when this thread is inside already.
    #[inline]
    pub fn enter() -> Option<Self> {
        // SAFETY: the variable is this thread's own; a signal handler leaves it as it found it.
        unsafe {
            if flag().read_volatile() != 0 {
                return None;
            }
            flag().write_volatile(1);
        }
        Some(Self(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { flag().write_volatile(0) };
    }
}
