//! A value that is put in place once, while others may already look for it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use super::atomic::{AtomicU8, Ordering};

const ABSENT: u8 = 0;
const COMING: u8 = 1;
const THERE: u8 = 2;

/// A value that comes later, or never.
pub struct Late<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written once, before any thread sees that it is there, and only read from then on.
unsafe impl<T: Send + Sync> Sync for Late<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for Late<T> {}

impl<T> Late<T> {
    /// Nothing yet.
    #[expect(clippy::new_without_default, reason = "as its neighbours")]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(ABSENT), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: written before this state, and never again.
        (self.state.load(Ordering::Acquire) == THERE).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Puts the value in place; false: another one is there, or on its way.
    pub fn set(&self, value: T) -> bool {
        if self.state.compare_exchange(ABSENT, COMING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // SAFETY: one thread comes here, once, and none reads before the next line.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(THERE, Ordering::Release);
        true
    }
}

impl<T> Drop for Late<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Acquire) == THERE {
            // SAFETY: it is there, and nobody has it any more.
            unsafe { (*self.value.get()).assume_init_drop() }
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::string::{String, ToString};

    #[test]
    fn the_first_value_stays() {
        let late = Late::<String>::new();
        assert_eq!(late.get(), None);
        assert!(late.set("first".to_string()) && !late.set("second".to_string()));
        assert_eq!(late.get().map(String::as_str), Some("first"));
    }
}
