//! Ways to fill memory with zeroes.
//!
//! `string_store` goes through the caches and suits memory that is about to be used. `stream` goes past them and
//! suits memory that is wanted later. The type [`Engine`] has these and those that only some processors can run. A
//! [`Choice`] finds the best of them for a use. A [`driver::Driver`] is the interface that a device beside the
//! processor has too.

mod choice;
mod cpu;
pub mod driver;
#[cfg(feature = "dsa")]
pub mod dsa;
#[cfg(not(feature = "dsa"))]
#[path = "no_dsa.rs"]
pub mod dsa;
mod engine;
mod kernel;
pub mod simulated;
mod wide;

pub use choice::{Choice, Dropped};
pub use cpu::Features;
pub use engine::Engine;

/// For memory that is wanted later, and for more than the caches hold: past them.
pub static COLD: Choice =
    Choice::new(&[Engine::Dsa, Engine::Stream64, Engine::Stream32, Engine::Stream16, Engine::LineZero]);
/// For memory that is wanted at once: through the caches. Each is for sizes below the one beside it.
static HOT: [(usize, Choice); 2] = [(MIDDLE, Choice::new(THROUGH)), (BEYOND_CACHES, Choice::new(THROUGH))];
const THROUGH: &[Engine] = &[Engine::StringStore, Engine::Memset];

/// From this size on the engines do not rank as on a few slots: a core's own caches hold little of it.
const MIDDLE: usize = 8 << 20;
/// From this size on nothing of a span stays in the caches, whichever way it is zeroed. Alone both ways are equally
/// fast then; beside another processor that writes to memory too, the string store gets half as far (measured: 22
/// GB/s each of two against 43).
const BEYOND_CACHES: usize = 64 << 20;

/// Who chooses the engine for `bytes` bytes that are wanted at once; `None`: they are more than the caches hold, and
/// the fastest of [`COLD`] is taken.
pub fn hot(bytes: usize) -> Option<&'static Choice> {
    HOT.iter().find(|(below, _)| bytes < *below).map(|(_, choice)| choice)
}

/// Zeroes `bytes` at `at` with the processor's string store (`rep stosb`; `memset` elsewhere).
///
/// # Safety
/// The memory must be writable and the caller's alone.
#[inline]
pub unsafe fn string_store(at: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the direction flag is clear by the ABI.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") at => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::write_bytes(at, 0, bytes)
    }
}

/// Zeroes `bytes` at `at` with non-temporal stores, 64 bytes at a time (`memset` elsewhere).
///
/// # Safety
/// The memory must be writable, the caller's alone, and aligned to 64 bytes, as its length.
#[inline]
pub unsafe fn stream(at: *mut u8, bytes: usize) {
    debug_assert!(at as usize % 64 == 0 && bytes % 64 == 0);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
        let zero = _mm_setzero_si128();
        for line in (0..bytes).step_by(64) {
            let to = at.add(line).cast::<__m128i>();
            for i in 0..4 {
                _mm_stream_si128(to.add(i), zero);
            }
        }
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::write_bytes(at, 0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    #[test]
    fn engines_zero_exactly_what_they_are_given() {
        for engine in [super::string_store as unsafe fn(*mut u8, usize), super::stream] {
            let mut memory = vec![7u8; 8192];
            let skip = memory.as_ptr().align_offset(64) + 64;
            // SAFETY: inside the vector, aligned.
            unsafe { engine(memory.as_mut_ptr().add(skip), 4096) };
            for (i, b) in memory.iter().enumerate() {
                assert_eq!(*b == 0, (skip..skip + 4096).contains(&i), "byte {i}");
            }
        }
    }
}
