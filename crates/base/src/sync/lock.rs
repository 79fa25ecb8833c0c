//! A mutual exclusion lock: a short spin, then a futex wait.
//!
//! Word: 0 free, 1 held, 2 held and a thread may wait. It can be taken before `main` and in any thread.

use super::Futex;
use super::atomic::Ordering;
use super::guarded::{Guarded, Holds, Word};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;
/// A checker looks at every turn, and one shows as much as many.
const SPINS: u32 = if cfg!(feature = "model") { 1 } else { 200 };

/// A value that one thread at a time may use.
pub type Lock<T> = Guarded<Futex, T>;

/// The right to use a lock's value; dropping it frees the lock.
pub type Guard<'a, T> = Holds<'a, Futex, T>;

impl Word for Futex {
    #[inline]
    fn free(&self) {
        if self.swap(FREE, Ordering::Release) == WAITED {
            self.wake_one();
        }
    }
}

impl<T> Lock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self::with(Futex::new(FREE), value)
        }
    }

    /// Waits for the lock and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        // SAFETY: this thread has just taken it.
        unsafe { self.guard() }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Not `then_some`: a guard that is made and dropped frees the lock.
            // SAFETY: this thread has just taken it.
            .then(|| unsafe { self.guard() })
    }

    #[cold]
    fn spin(&self) -> bool {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    #[cold]
    fn wait(&self) {
        if self.spin() {
            return;
        }
        // Taking it as WAITED costs one needless wake-up at most, and never loses one.
        while self.word.swap(WAITED, Ordering::Acquire) != FREE {
            self.word.wait(WAITED);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::sync::guarded::tests::add_by_threads;

    #[test]
    fn adds_of_many_threads_are_not_lost() {
        static SUM: Lock<u64> = Lock::new(0);
        add_by_threads(|| *SUM.lock() += 1);
        assert_eq!(*SUM.lock(), 80_000);
    }

    #[test]
    fn try_lock_refuses_a_held_lock() {
        let l = Lock::new(1);
        let g = l.try_lock().unwrap();
        assert!(l.try_lock().is_none());
        assert!(l.try_lock().is_none(), "a refused try leaves the lock alone");
        drop(g);
        assert!(l.try_lock().is_some());
    }
}
