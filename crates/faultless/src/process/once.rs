//! Values of the process that are made once, whatever moment a fork comes at.
//!
//! `std`'s own would leave a forked child waiting for a thread that stayed with the parent: a fork copies them while
//! that thread is still making the value. Here the making says whose it is. A child that finds one of its parent's
//! makes the value itself.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use faultless_base::sys::raw;

use crate::process::masked::Masked;
use crate::process::owner::Owner;

/// Between two looks whether another thread has made the value.
const LOOK_NS: u64 = 20_000;

/// A value that is made at its first use. A child has that of its parent, if it was there at the fork.
///
/// States of an attempt: the value is null while the thread that put the attempt here makes it, and then stays. An
/// attempt of another process without a value is given up: the next to come replaces it.
pub struct Once<T>(AtomicPtr<Attempt<T>>);

struct Attempt<T> {
    owner: Owner,
    value: AtomicPtr<T>,
}

impl<T: Sync + 'static> Once<T> {
    /// It is not made yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The value, if it was made.
    pub fn known(&self) -> Option<&'static T> {
        // SAFETY: null, or never freed once it was here; so is the value.
        unsafe { self.0.load(Ordering::Acquire).as_ref()?.value.load(Ordering::Acquire).as_ref() }
    }

    /// The value. A thread waits only for another one of its own process that is making it.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        // A handler that interrupted the making and came here would wait for its own thread.
        let mut masked = None;
        loop {
            let last = self.0.load(Ordering::Acquire);
            // SAFETY: null, or never freed once it was here.
            if let Some(attempt) = unsafe { last.as_ref() } {
                // SAFETY: null, or never freed.
                if let Some(value) = unsafe { attempt.value.load(Ordering::Acquire).as_ref() } {
                    return value;
                }
                if attempt.owner.is_here() {
                    raw::sleep_ns(LOOK_NS);
                    continue;
                }
            }
            masked.get_or_insert_with(Masked::new);
            let attempt = Box::new(Attempt { owner: Owner::here(), value: AtomicPtr::new(null_mut()) });
            let attempt = Box::into_raw(attempt);
            if self.0.compare_exchange(last, attempt, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above, and no other thread has seen it: one was faster.
                drop(unsafe { Box::from_raw(attempt) });
                continue;
            }
            let given_up = GivenUp(&self.0);
            let value = Box::into_raw(Box::new(make()));
            std::mem::forget(given_up);
            // SAFETY: it is never freed; the value neither.
            unsafe {
                (*attempt).value.store(value, Ordering::Release);
                return &*value;
            }
        }
    }
}

/// A making that ended by a panic: the next to come tries again.
struct GivenUp<'a, T>(&'a AtomicPtr<Attempt<T>>);

impl<T> Drop for GivenUp<'_, T> {
    fn drop(&mut self) {
        self.0.store(null_mut(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn threads_that_come_together_have_one_value() {
        static VALUE: Once<usize> = Once::new();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let make = || {
            raw::sleep_ns(1_000_000);
            MADE.fetch_add(1, Ordering::Relaxed)
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(move || *VALUE.get(make))).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 0));
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }

    /// A child that is forked while another thread makes the value makes it itself; its parent has its own.
    #[test]
    fn a_child_does_not_wait_for_a_thread_of_its_parent() {
        faultless_testkit::limit::limit();
        static VALUE: Once<u32> = Once::new();
        let ((begun, has_begun), (go_on, goes_on)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            *VALUE.get(|| {
                begun.send(()).unwrap();
                goes_on.recv().unwrap()
            })
        });
        has_begun.recv().unwrap();
        // SAFETY: the child makes system calls and one small allocation, and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                libc::_exit((*VALUE.get(|| 7) != 7 || *VALUE.get(|| 8) != 7) as i32);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        go_on.send(5).unwrap();
        assert_eq!((status, thread.join().unwrap(), *VALUE.get(|| 6)), (0, 5, 5));
    }

    #[test]
    fn a_making_that_panics_is_tried_again() {
        static VALUE: Once<u32> = Once::new();
        assert!(std::panic::catch_unwind(|| VALUE.get(|| panic!("as a test"))).is_err());
        assert_eq!(*VALUE.get(|| 3), 3);
    }
}
