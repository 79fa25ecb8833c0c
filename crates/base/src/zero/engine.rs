//! The zeroing engines under one roof, to be measured against each other and chosen from.

use super::cpu::Features;
use super::{stream, string_store, wide};

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
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::StringStore, Self::Memset, Self::Stream16, Self::Stream32, Self::Stream64, Self::LineZero];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StringStore => "rep stosb",
            Self::Memset => "memset",
            Self::Stream16 => "SSE2 non-temporal",
            Self::Stream32 => "AVX2 non-temporal",
            Self::Stream64 => "AVX-512 non-temporal",
            Self::LineZero => "clzero",
        }
    }

    /// Whether what it has zeroed is left in the caches, where the next access finds it.
    pub const fn fills_caches(self) -> bool {
        matches!(self, Self::StringStore | Self::Memset)
    }

    /// Whether this processor can run it.
    pub fn is_available(self) -> bool {
        let needs = match self {
            Self::StringStore | Self::Memset => return true,
            Self::Stream16 => return cfg!(target_arch = "x86_64"),
            Self::Stream32 => Features::AVX2,
            Self::Stream64 => Features::AVX512F,
            Self::LineZero => Features::CLZERO,
        };
        Features::detect().has(needs)
    }

    /// Zeroes `bytes` at `at`.
    ///
    /// # Safety
    /// The memory must be writable, nobody else's, and aligned to 64 bytes, as its length; the engine must be
    /// [available](Self::is_available).
    #[inline]
    pub unsafe fn zero(self, at: *mut u8, bytes: usize) {
        debug_assert!(at as usize % 64 == 0 && bytes % 64 == 0 && self.is_available());
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::StringStore => string_store(at, bytes),
                Self::Memset => core::ptr::write_bytes(at, 0, bytes),
                Self::Stream16 => stream(at, bytes),
                Self::Stream32 => wide::stream32(at, bytes),
                Self::Stream64 => wide::stream64(at, bytes),
                Self::LineZero => wide::line_zero(at, bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::Engine;

    #[test]
    fn each_zeroes_exactly_what_it_is_given() {
        for engine in Engine::ALL.into_iter().filter(|engine| engine.is_available()) {
            for bytes in [0, 64, 128, 192, 4096, 4096 + 64] {
                let mut memory = vec![7u8; 8192];
                let skip = memory.as_ptr().align_offset(64) + 64;
                // SAFETY: inside the vector, aligned, available.
                unsafe { engine.zero(memory.as_mut_ptr().add(skip), bytes) };
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
