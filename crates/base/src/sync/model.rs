//! Atomic types and futexes of a model checker. Not part of any program.

extern crate std;

use core::ops::Deref;
use std::boxed::Box;

#[cfg(feature = "loom")]
use loom::sync as checker;
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
use shuttle::sync as checker;

pub use checker::atomic;
use checker::atomic::{AtomicU32, AtomicUsize, Ordering};
use checker::{Condvar, Mutex};

/// A word that threads sleep on. As in the kernel, a waker sees the look at the word and the falling asleep as one
/// step: both hold the queue.
pub struct Futex {
    pub(super) word: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    const_unless_loom! {
        /// A word of this value.
        pub fn new(value: u32) -> Self {
            Self { word: AtomicU32::new(value), queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    /// Sleeps while the word is `expected`, until a wake-up.
    pub fn wait(&self, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue));
        }
    }

    /// Wakes one sleeper.
    pub fn wake_one(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_one();
    }

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A table of words, zero at first.
pub struct Words(pub(super) Table<AtomicUsize>);

impl Words {
    /// `n` of them.
    pub fn new(n: usize) -> Option<Self> {
        Some(Self(Table::new(n, || AtomicUsize::new(0))?))
    }
}

/// A table of what threads share.
pub struct Table<T>(Box<[T]>);

impl<T> Table<T> {
    /// `n` of them, each as `make` says.
    pub fn new(n: usize, make: impl Fn() -> T) -> Option<Self> {
        Some(Self((0..n).map(|_| make()).collect()))
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// `n` words of zero, never freed.
pub fn words(n: usize) -> Option<&'static [AtomicU32]> {
    Some(Box::leak((0..n).map(|_| AtomicU32::new(0)).collect()))
}

/// Lets another thread act.
pub fn pause() {
    #[cfg(feature = "loom")]
    loom::thread::yield_now();
    #[cfg(all(feature = "shuttle", not(feature = "loom")))]
    shuttle::thread::yield_now();
}
