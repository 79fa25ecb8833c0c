//! The zeroing engines under one roof, to be measured against each other and chosen from.

use super::cpu::Features;
use super::{dsa, kernel, stream, string_store, wide};
use crate::PAGE;

/// A way to fill memory with zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `rep stosb`: microcode picks the way.
    StringStore,
    /// The C library's `memset`.
    Memset,
    /// 16-byte stores past the caches (SSE2).
    Stream16,
    /// 32-byte stores past the caches (AVX2).
    Stream32,
    /// 64-byte stores past the caches (AVX-512).
    Stream64,
    /// `clzero`: whole lines that are not read first (AMD).
    LineZero,
    /// The kernel: pages are dropped, and brought back full of zeroes.
    Kernel,
    /// Intel's Data Streaming Accelerator, a device beside the processor.
    Dsa,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::StringStore,
        Self::Memset,
        Self::Stream16,
        Self::Stream32,
        Self::Stream64,
        Self::LineZero,
        Self::Kernel,
        Self::Dsa,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StringStore => "rep stosb",
            Self::Memset => "memset",
            Self::Stream16 => "SSE2 non-temporal",
            Self::Stream32 => "AVX2 non-temporal",
            Self::Stream64 => "AVX-512 non-temporal",
            Self::LineZero => "clzero",
            Self::Kernel => "drop and populate",
            Self::Dsa => "Intel DSA",
        }
    }

    /// What the address and the length of an extent must be multiples of.
    pub const fn grain(self) -> usize {
        match self {
            Self::Kernel => PAGE,
            _ => 64,
        }
    }

    /// Whether what it has zeroed is left in the caches, where the next access finds it.
    pub const fn fills_caches(self) -> bool {
        matches!(self, Self::StringStore | Self::Memset | Self::Kernel)
    }

    /// Whether it works beside the processor, which only waits for it.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Dsa)
    }

    /// Whether this processor can run it, or the device is there and open.
    pub fn is_available(self) -> bool {
        let needs = match self {
            Self::StringStore | Self::Memset | Self::Kernel => return true,
            Self::Stream16 => return cfg!(target_arch = "x86_64"),
            Self::Stream32 => Features::AVX2,
            Self::Stream64 => Features::AVX512F,
            Self::LineZero => Features::CLZERO,
            Self::Dsa => return dsa::is_open(),
        };
        Features::detect().has(needs)
    }

    /// Zeroes `bytes` at `at`; whether it could. The content is unknown if not.
    ///
    /// # Safety
    /// The memory must be writable, the caller's alone, and aligned to the [grain](Self::grain), as its length;
    /// private and anonymous for [`Engine::Kernel`]. The engine must be [available](Self::is_available).
    #[inline]
    pub unsafe fn zero(self, at: *mut u8, bytes: usize) -> bool {
        debug_assert!(at as usize % self.grain() == 0 && bytes % self.grain() == 0 && self.is_available());
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::StringStore => string_store(at, bytes),
                Self::Memset => core::ptr::write_bytes(at, 0, bytes),
                Self::Stream16 => stream(at, bytes),
                Self::Stream32 => wide::stream32(at, bytes),
                Self::Stream64 => wide::stream64(at, bytes),
                Self::LineZero => wide::line_zero(at, bytes),
                Self::Kernel => return kernel::repopulate(at, bytes),
                Self::Dsa => return dsa::fill(at, bytes),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::{Engine, PAGE};

    #[test]
    fn each_zeroes_exactly_what_it_is_given() {
        for engine in Engine::ALL.into_iter().filter(|engine| engine.is_available()) {
            let grain = engine.grain();
            for bytes in [0, 1, 2, 3, 64, 65].map(|n| n * grain).into_iter().filter(|bytes| *bytes <= 3 * PAGE) {
                let mut memory = vec![7u8; 8 * PAGE];
                let skip = memory.as_ptr().align_offset(grain) + grain;
                // SAFETY: inside the vector, aligned, available; a vector's memory is private and anonymous.
                assert!(unsafe { engine.zero(memory.as_mut_ptr().add(skip), bytes) });
                for (i, b) in memory.iter().enumerate() {
                    let expected = if (skip..skip + bytes).contains(&i) { 0 } else { 7 };
                    assert_eq!(*b, expected, "{}, {bytes} bytes, byte {i}", engine.name());
                }
            }
        }
    }

    #[test]
    fn plain_engines_are_everywhere() {
        assert!(Engine::StringStore.is_available() && Engine::Memset.is_available());
    }
}
