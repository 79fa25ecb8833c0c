//! Atomic types of the processor, futexes of the kernel.

use core::ops::Deref;
pub use core::sync::atomic;
use core::sync::atomic::{AtomicU32, AtomicUsize};

use crate::raw;
use crate::table;

/// A word that threads sleep on.
pub struct Futex {
    pub(super) word: AtomicU32,
}

impl Futex {
    /// A word of this value.
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

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        raw::futex_wake(&self.word, i32::MAX as u32);
    }
}

/// A table of words, zero at first, which costs memory only where it is used.
pub struct Words(pub(super) Table<AtomicUsize>);

impl Words {
    /// `n` of them. `None` when the kernel refuses the address space.
    pub fn new(n: usize) -> Option<Self> {
        Some(Self(Table(table::lasting(n)?)))
    }
}

/// A table of what threads share, too large for its owner itself.
pub struct Table<T: 'static>(&'static [T]);

impl<T> Table<T> {
    /// `n` of them, each as `make` says. `None` when the kernel refuses the address space.
    pub fn new(n: usize, make: impl Fn() -> T) -> Option<Self> {
        const { assert!(align_of::<T>() <= crate::PAGE && !core::mem::needs_drop::<T>()) };
        let at = raw::map_private(n.checked_mul(size_of::<T>())?.max(1), raw::Access::Write)? as *mut T;
        // SAFETY: fresh memory of that size, page-aligned, which this value alone unmaps; all of it is filled before
        // it is seen.
        unsafe {
            (0..n).for_each(|i| at.add(i).write(make()));
            Some(Self(core::slice::from_raw_parts(at, n)))
        }
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the table is this value's own, made by `new`, and no reference to it is left.
        unsafe { raw::unmap(self.0.as_ptr() as usize, size_of_val(self.0).max(1)) };
    }
}

/// `n` words of zero that live as long as the process. `None` when the kernel refuses the address space.
pub fn words(n: usize) -> Option<&'static [AtomicU32]> {
    Some(table::lasting(n)?)
}

/// A turn of a loop that waits for another thread.
pub fn pause() {
    core::hint::spin_loop();
}
