//! A lock that no thread ever waits for. Who does not get it goes another way.
//!
//! So its holder need not find out whether to wake another thread, and frees it by a plain store.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::atomic::{AtomicBool, Ordering};

/// A checker looks at every turn, and one shows as much as many.
const SPINS: u32 = if cfg!(feature = "model") { 1 } else { 200 };

/// A value that one thread at a time may use.
pub struct TryLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out the value to one thread at a time.
unsafe impl<T: Send> Sync for TryLock<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        let taken = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`: a guard that is made and dropped frees the lock.
        taken.then(|| TryGuard { lock: self })
    }

    /// Takes the lock if it is free now, or in the moment that a short critical section takes.
    #[inline]
    pub fn lock_soon(&self) -> Option<TryGuard<'_, T>> {
        self.try_lock().or_else(|| self.spin())
    }

    #[cold]
    fn spin(&self) -> Option<TryGuard<'_, T>> {
        (0..SPINS).find_map(|_| {
            if !self.held.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return Some(guard);
            }
            core::hint::spin_loop();
            None
        })
    }

    /// Frees the lock after a fork, in the child: the holder is not there.
    pub fn force_unlock(&self) {
        self.held.store(false, Ordering::Release);
    }
}

/// The right to use a lock's value; dropping it frees the lock.
pub struct TryGuard<'a, T> {
    lock: &'a TryLock<T>,
}

impl<T> Deref for TryGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for TryGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for TryGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use faultless_testkit::limit::limit;
    use std::thread;

    #[test]
    fn adds_of_many_threads_are_not_lost() {
        limit();
        static SUM: TryLock<u64> = TryLock::new(0);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let mut added = 0;
                    while added < 20_000 {
                        if let Some(mut sum) = SUM.lock_soon() {
                            *sum += 1;
                            added += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(*SUM.try_lock().unwrap(), 80_000);
    }

    #[test]
    fn a_held_lock_is_refused_until_it_is_freed() {
        let l = TryLock::new(1);
        let g = l.try_lock().unwrap();
        assert!(l.try_lock().is_none());
        assert!(l.try_lock().is_none(), "a refused try leaves the lock alone");
        assert!(l.lock_soon().is_none(), "the holder does not get on meanwhile");
        drop(g);
        core::mem::forget(l.try_lock().unwrap());
        assert!(l.try_lock().is_none());
        l.force_unlock();
        assert!(l.try_lock().is_some());
    }
}
