//! A block of malloc, and the marks in it.

use std::ffi::c_void;

use crate::rng::mix;

/// Bytes from mark to mark.
pub const STRIDE: usize = 2048;

/// A block of malloc.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it begins.
    pub at: *mut c_void,
    /// What was asked for.
    pub asked: usize,
    /// What is in use: more, if the allocator said that it may be used.
    pub bytes: usize,
    /// What its content is made of.
    pub seed: u64,
}

/// The offsets that are marked: a word at each multiple of [`STRIDE`], and the last word.
pub fn marks(bytes: usize) -> impl Iterator<Item = usize> {
    let last = bytes.saturating_sub(8);
    (0..last.saturating_sub(7)).step_by(STRIDE).chain((bytes >= 8).then_some(last))
}

impl Block {
    /// Writes the marks.
    pub fn mark(&self) {
        for offset in marks(self.bytes) {
            // SAFETY: inside the block.
            unsafe {
                self.at.cast::<u8>().add(offset).cast::<u64>().write_unaligned(mix(self.seed ^ offset as u64))
            }
        }
    }

    /// The first mark below `bytes` that is not as it was made.
    pub fn spoilt(&self, bytes: usize) -> Option<usize> {
        let whole = marks(self.bytes).filter(|offset| offset + 8 <= bytes);
        whole.into_iter().find(|&offset| {
            // SAFETY: inside the block.
            let found = unsafe { self.at.cast::<u8>().add(offset).cast::<u64>().read_unaligned() };
            found != mix(self.seed ^ offset as u64)
        })
    }
}

// SAFETY: a block belongs to the world that it is in.
unsafe impl Send for Block {}
