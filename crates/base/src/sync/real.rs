//! Atomic types of the processor, futexes of the kernel.

use core::ops::Deref;

pub use core::sync::atomic;
use core::sync::atomic::AtomicU32;

use crate::sys::raw;
use crate::table;

/// A word that threads sleep on.
pub struct Futex {
    word: AtomicU32,
}

impl Futex {
    /// A word of that value.
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps while the word is `expected`, until a wake-up or a signal.
    pub fn wait(&self, expected: u32) {
        raw::futex_wait(&self.word, expected, None);
    }

    /// Wakes one sleeper.
    pub fn wake_one(&self) {
        raw::futex_wake(&self.word, 1);
    }
}

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

/// `n` words of zero that live as long as the process. `None` when the kernel refuses the address space.
pub fn words(n: usize) -> Option<&'static [AtomicU32]> {
    Some(table::lasting(n)?)
}
