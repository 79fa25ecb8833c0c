//! Engines for which the processor must be asked first.
//!
//! In assembly, because the compiler may use these instructions only in functions that are compiled for them, and
//! clears the upper halves of the registers as it likes. `clobber_abi` says that all of them are lost, as for a call.

#[cfg(target_arch = "x86_64")]
mod arch {
    use core::arch::asm;

    /// An engine that stores zeroes past the caches: what stores one line of 64 bytes at `rdi`.
    macro_rules! stream {
        ($(#[$meta:meta])+ $name:ident: $($store:literal),+) => {
            $(#[$meta])+
            pub unsafe fn $name(at: *mut u8, bytes: usize) {
                if bytes == 0 {
                    return;
                }
                // SAFETY: the caller's promise.
                unsafe {
                    asm!("vpxor xmm0, xmm0, xmm0",
                        "2:",
                        $($store,)+
                        "add rdi, 64",
                        "cmp rdi, rsi",
                        "jb 2b",
                        "vzeroupper",
                        "sfence",
                        inout("rdi") at => _, in("rsi") at as usize + bytes, clobber_abi("sysv64"), options(nostack));
                }
            }
        };
    }

    stream! {
        /// Zeroes with 32-byte stores past the caches.
        ///
        /// # Safety
        /// The memory must be writable, the caller's alone, aligned to 64 bytes, as its length; the processor has
        /// AVX2.
        stream32: "vmovntdq [rdi], ymm0", "vmovntdq [rdi + 32], ymm0"
    }

    stream! {
        /// Zeroes with 64-byte stores past the caches.
        ///
        /// # Safety
        /// The memory must be writable, the caller's alone, aligned to 64 bytes, as its length; the processor has
        /// AVX-512F.
        stream64: "vmovntdq [rdi], zmm0"
    }

    /// Zeroes line by line with `clzero`.
    ///
    /// # Safety
    /// The memory must be writable, the caller's alone, aligned to 64 bytes, as its length; the processor has
    /// `clzero`.
    pub unsafe fn line_zero(at: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller's promise; such a line is 64 bytes on every processor that has the instruction.
        unsafe {
            asm!("2:",
                "clzero",
                "add rax, 64",
                "cmp rax, {end}",
                "jb 2b",
                "sfence",
                inout("rax") at => _, end = in(reg) at as usize + bytes, options(nostack));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    /// Never available here.
    ///
    /// # Safety
    /// None: nothing is done.
    pub unsafe fn none(_: *mut u8, _: usize) {
        unreachable!("an engine of another processor");
    }

    pub use none as line_zero;
    pub use none as stream32;
    pub use none as stream64;
}

pub use arch::*;
