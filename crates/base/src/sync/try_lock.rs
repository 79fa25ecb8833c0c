//! A lock that no thread ever waits for. A thread that does not get it goes another way.
//!
//! So its holder need not find out whether to wake another thread, and frees it by a plain store.

use super::atomic::{AtomicBool, Ordering};
use super::guarded::{Guarded, Holds, Word};

/// A checker looks at every turn, and one shows as much as many.
const SPINS: u32 = if cfg!(feature = "model") { 1 } else { 200 };

/// A value that one thread at a time may use.
pub type TryLock<T> = Guarded<AtomicBool, T>;

/// The right to use a lock's value; dropping it frees the lock.
pub type TryGuard<'a, T> = Holds<'a, AtomicBool, T>;

impl Word for AtomicBool {
    #[inline]
    fn free(&self) {
        self.store(false, Ordering::Release);
    }
}

impl<T> TryLock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self::with(AtomicBool::new(false), value)
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        let taken = self.word.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`: a guard that is made and dropped frees the lock.
        // SAFETY: this thread has just taken it.
        taken.then(|| unsafe { self.guard() })
    }

    /// Takes the lock if it is free now, or in the moment that a short critical section takes.
    #[inline]
    pub fn lock_soon(&self) -> Option<TryGuard<'_, T>> {
        self.try_lock().or_else(|| self.spin())
    }

    #[cold]
    fn spin(&self) -> Option<TryGuard<'_, T>> {
        (0..SPINS).find_map(|_| {
            if !self.word.load(Ordering::Relaxed)
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
        self.word.free();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::sync::guarded::tests::add_by_threads;

    #[test]
    fn adds_of_many_threads_are_not_lost() {
        static SUM: TryLock<u64> = TryLock::new(0);
        add_by_threads(|| while SUM.lock_soon().map(|mut sum| *sum += 1).is_none() {});
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
