//! Variables of each thread, of the initial-exec model: other models may allocate at the first use in a thread.

/// Makes `$name`, a function that answers the address of this thread's variable `$symbol`, zero at first. Only where
/// [`has_variables`](crate::runtime::inside::has_variables) it may be called.
macro_rules! thread_variable {
    ($name:ident, $type:ty, $symbol:literal, $bytes:literal) => {
        core::arch::global_asm!(
            ".pushsection .tbss, \"awT\", @nobits",
            ".balign 8",
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", ", $bytes),
            concat!($symbol, ":"),
            concat!(".zero ", $bytes),
            ".popsection",
        );
        const _: () = assert!(size_of::<$type>() == $bytes && align_of::<$type>() <= 8);

        #[inline]
        fn $name() -> *mut $type {
            let at: *mut $type;
            #[cfg(target_arch = "x86_64")]
            // SAFETY: computes the address of this thread's variable.
            unsafe {
                core::arch::asm!(concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"), "add {at}, qword ptr fs:[0]",
                    at = out(reg) at, options(pure, readonly, nostack));
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: computes the address of this thread's variable.
            unsafe {
                core::arch::asm!(concat!("adrp {at}, :gottprel:", $symbol),
                    concat!("ldr {at}, [{at}, :gottprel_lo12:", $symbol, "]"),
                    "mrs {tp}, tpidr_el0", "add {at}, {at}, {tp}",
                    at = out(reg) at, tp = out(reg) _, options(pure, readonly, nostack));
            }
            at
        }
    };
}

pub(crate) use thread_variable;

/// How far below the calling thread's pointer its variable at this address lies; 0: above it.
pub fn below_pointer(at: usize) -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the first word of the thread's control block, its own address.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(readonly, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack));
    }
    pointer.saturating_sub(at)
}
