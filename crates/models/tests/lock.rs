//! The locks, in every interleaving, and with every value that the orderings let a load see. A sleeper that is not
//! woken is a deadlock, which the checker reports.

use std::sync::Arc;

use faultless_base::sync::{Lock, TryLock};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};

/// A sum behind a lock. It is no atomic sum: a thread that does not see what the last holder wrote loses it.
struct Sum {
    lock: Lock<()>,
    sum: AtomicU32,
}

impl Sum {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: Lock::new(()), sum: AtomicU32::new(0) })
    }

    /// With the lock held.
    fn add(&self) {
        self.sum.store(self.sum.load(Relaxed) + 1, Relaxed);
    }

    fn add_locked(&self) {
        let _guard = self.lock.lock();
        self.add();
    }

    fn thread(self: &Arc<Self>, f: impl Fn(&Self) + 'static) -> JoinHandle<()> {
        let sum = self.clone();
        thread::spawn(move || f(&sum))
    }

    fn check(&self, expected: u32) {
        let _guard = self.lock.lock();
        assert_eq!(self.sum.load(Relaxed), expected);
    }
}

#[test]
fn three_threads_exclude_and_wake_each_other() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let sum = Sum::new();
        let others = [sum.thread(Sum::add_locked), sum.thread(Sum::add_locked)];
        sum.add_locked();
        others.into_iter().for_each(|other| other.join().unwrap());
        sum.check(3);
    });
}

#[test]
fn two_threads_take_it_again_and_again() {
    loom::model(|| {
        let sum = Sum::new();
        let twice = |sum: &Sum| (0..2).for_each(|_| sum.add_locked());
        let other = sum.thread(twice);
        twice(&sum);
        other.join().unwrap();
        sum.check(4);
    });
}

/// A refused thread leaves the lock alone: the holder is still the only one.
#[test]
fn a_lock_that_is_tried_excludes_too() {
    loom::model(|| {
        let sum = Sum::new();
        let other = sum.thread(Sum::add_locked);
        let got = sum.lock.try_lock().map(|_guard| sum.add()).is_some();
        if !got {
            sum.add_locked();
        }
        other.join().unwrap();
        sum.check(2);
    });
}

/// Each of two threads adds as often as it gets the lock.
#[test]
fn a_lock_that_nobody_waits_for_excludes_too() {
    loom::model(|| {
        let sum = Arc::new((TryLock::new(()), AtomicU32::new(0)));
        let add = |sum: &(TryLock<()>, AtomicU32)| match sum.0.lock_soon() {
            Some(_guard) => {
                sum.1.store(sum.1.load(Relaxed) + 1, Relaxed);
                1
            }
            None => 0,
        };
        let there = sum.clone();
        let other = thread::spawn(move || add(&there) + add(&there));
        let added = add(&sum) + add(&sum);
        let added = added + other.join().unwrap();
        let _guard = sum.0.try_lock().expect("free at the end");
        assert_eq!(sum.1.load(Relaxed), added);
    });
}
