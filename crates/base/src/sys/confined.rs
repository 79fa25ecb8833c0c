//! Another thread of this process, which is kept to one processor for a while.

use super::cpus::Set;
use super::thread::{cpus_of, let_run_on};

/// One that is kept. It gets back what it had when this is dropped, unless other code has changed that meanwhile, or
/// has chosen processors for the thread that keeps it: for all threads of the process (`taskset -a`).
#[derive(Debug)]
pub struct Confined {
    thread: usize,
    before: Set,
    now: Set,
    /// What the thread that keeps it could use.
    keeper: Option<Set>,
}

impl Confined {
    /// Keeps a thread to a processor. `None` where it may not run there, or on no other one anyway.
    pub fn new(thread: u32, cpu: usize) -> Option<Self> {
        let (thread, now) = (thread as usize, Set::only(cpu));
        let before = cpus_of(thread).filter(|before| before.count() > 1 && before.has(cpu))?;
        let_run_on(thread, now).then_some(Self { thread, before, now, keeper: cpus_of(0) })
    }

    /// Keeps it to another one; whether it does.
    pub fn go(&mut self, cpu: usize) -> bool {
        let next = Set::only(cpu);
        if next == self.now {
            return true;
        }
        if !self.before.has(cpu) || !self.is_kept() || !let_run_on(self.thread, next) {
            return false;
        }
        self.now = next;
        true
    }

    /// The thread has ended: its number may be another's.
    pub fn forget(self) {
        core::mem::forget(self);
    }

    fn is_kept(&self) -> bool {
        cpus_of(self.thread) == Some(self.now)
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        if !self.is_kept() || cpus_of(0) != self.keeper {
            return;
        }
        // A thread of higher priority may have the processor for ever, and one that may stay where it waits does so.
        let others = Set::of(|cpu| self.before.has(cpu) && !self.now.has(cpu));
        let_run_on(self.thread, others);
        // A thread that was never restricted grows with its control group.
        let_run_on(self.thread, Set::of(|_| true));
        if cpus_of(self.thread) != Some(self.before) {
            let_run_on(self.thread, self.before);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::raw;

    /// Calls `f` with the number of a thread that waits meanwhile, and what it may use.
    fn with_thread(f: impl FnOnce(u32, Set)) {
        let Some(cpus) = cpus_of(0).filter(|cpus| cpus.count() > 1) else {
            return faultless_testkit::skip("one processor");
        };
        let (tell, told) = channel();
        let (go, goes) = channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(raw::thread_number()).unwrap();
            goes.recv().unwrap_err();
        });
        f(told.recv().unwrap() as u32, cpus);
        drop(go);
        other.join().unwrap();
    }

    #[test]
    fn a_thread_gets_back_what_it_had() {
        with_thread(|thread, cpus| {
            let now = || cpus_of(thread as usize).unwrap();
            let (first, last) = (cpus.iter().next().unwrap(), cpus.iter().last().unwrap());
            let mut confined = Confined::new(thread, first).unwrap();
            assert_eq!(now(), Set::only(first));
            assert!(Confined::new(thread, first).is_none(), "it may run there alone");
            assert!(confined.go(last));
            assert_eq!(now(), Set::only(last));
            assert!(!confined.go(1023) || cpus.has(1023));
            drop(confined);
            assert_eq!(now(), cpus);
            assert_eq!(cpus_of(0), Some(cpus), "this thread is left alone");
        });
    }

    /// All threads may be kept where this one is kept just then.
    #[test]
    fn what_others_choose_for_all_threads_is_left_alone() {
        with_thread(|thread, cpus| {
            let first = cpus.iter().next().unwrap();
            let confined = Confined::new(thread, first).unwrap();
            assert!(let_run_on(0, Set::only(first)) && let_run_on(thread as usize, Set::only(first)));
            drop(confined);
            assert_eq!(cpus_of(thread as usize), Some(Set::only(first)));
            assert!(let_run_on(0, cpus));
        });
    }

    #[test]
    fn what_others_change_is_left_alone() {
        with_thread(|thread, cpus| {
            let now = || cpus_of(thread as usize).unwrap();
            let (first, last) = (cpus.iter().next().unwrap(), cpus.iter().last().unwrap());
            let mut confined = Confined::new(thread, first).unwrap();
            assert!(let_run_on(thread as usize, Set::only(last)));
            assert!(!confined.go(last));
            drop(confined);
            assert_eq!(now(), Set::only(last));
        });
    }
}
