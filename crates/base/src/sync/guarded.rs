//! A value behind a word that says whether a thread uses it: what the locks have in common. How the word is taken is
//! each lock's own.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// The word of a lock.
pub trait Word {
    /// The thread that has the value lets it go.
    fn free(&self);
}

/// A value that one thread at a time may use.
pub struct Guarded<W: Word, T> {
    pub(super) word: W,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out the value to one thread at a time.
unsafe impl<W: Word + Sync, T: Send> Sync for Guarded<W, T> {}

impl<W: Word, T> Guarded<W, T> {
    pub(super) const fn with(word: W, value: T) -> Self {
        Self { word, value: UnsafeCell::new(value) }
    }

    /// The value.
    ///
    /// # Safety
    /// This thread has taken the word, and no other guard is there.
    #[inline]
    pub(super) unsafe fn guard(&self) -> Holds<'_, W, T> {
        Holds { lock: self }
    }
}

/// The right to use a lock's value; dropping it frees the lock.
pub struct Holds<'a, W: Word, T> {
    lock: &'a Guarded<W, T>,
}

impl<W: Word, T> Deref for Holds<'_, W, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<W: Word, T> DerefMut for Holds<'_, W, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<W: Word, T> Drop for Holds<'_, W, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.free();
    }
}

#[cfg(all(test, not(feature = "model")))]
pub(super) mod tests {
    use faultless_testkit::limit::limit;
    use std::thread;

    /// Adds 80 000 times, by four threads.
    pub fn add_by_threads(add: impl Fn() + Sync) {
        limit();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..20_000).for_each(|_| add()));
            }
        });
    }
}
