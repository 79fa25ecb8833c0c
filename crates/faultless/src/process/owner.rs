//! Which process something belongs to, by a look at memory: a fault has no time to ask the kernel.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use faultless_base::sys::raw;

/// A process. A child is another one however it was forked, unless it runs in its parent's memory (vfork).
#[derive(Clone, Copy)]
pub struct Owner {
    /// 1 in that process, 0 in its children; none if the kernel does not offer it.
    word: Option<&'static AtomicU32>,
    pid: u32,
}

impl Owner {
    /// The process that calls.
    pub fn here() -> Self {
        Self { word: word(), pid: std::process::id() }
    }

    /// Whether it is the calling process.
    pub fn is_here(self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) != 0,
            None => std::process::id() == self.pid,
        }
    }
}

/// A value that each process has of its own. A forked child makes another. It leaves its parent's alone, because a
/// thread of the parent may have held a lock of it.
pub struct OfProcess<T>(AtomicPtr<(Owner, T)>);

impl<T: Sync + 'static> OfProcess<T> {
    /// None is made yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// That of the process that calls. Of several that threads make at a time one stays.
    pub fn get(&self, make: impl Fn() -> T) -> &'static T {
        match self.try_get(|| Some(make())) {
            Some(value) => value,
            None => unreachable!("it is always made"),
        }
    }

    /// The same where making may fail.
    pub fn try_get(&self, make: impl Fn() -> Option<T>) -> Option<&'static T> {
        loop {
            let last = self.0.load(Ordering::Acquire);
            if let Some(value) = Self::here(last) {
                return Some(value);
            }
            let new = Box::into_raw(Box::new((Owner::here(), make()?)));
            if self.0.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above, and no other thread has seen it: one was faster.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    /// The same, if it was made. For signal handlers.
    pub fn known(&self) -> Option<&'static T> {
        Self::here(self.0.load(Ordering::Acquire))
    }

    fn here(last: *mut (Owner, T)) -> Option<&'static T> {
        // SAFETY: null, or never freed.
        unsafe { last.as_ref() }.filter(|(owner, _)| owner.is_here()).map(|(_, value)| value)
    }
}

/// The word of this process.
fn word() -> Option<&'static AtomicU32> {
    static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
    // SAFETY: null, or what was stored below, which is never unmapped.
    let known = unsafe { WORD.load(Ordering::Acquire).as_ref() };
    // A child makes its own. Two threads may make one each, of which either will do.
    known.filter(|word| word.load(Ordering::Relaxed) != 0).or_else(|| {
        let word = raw::word_wiped_on_fork()?;
        WORD.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_child(question: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only looks at memory, makes system calls and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(question() as i32);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFEXITED(status));
            libc::WEXITSTATUS(status) == 1
        }
    }

    #[test]
    fn a_child_is_another_process_and_has_its_own() {
        let own = Owner::here();
        let without = Owner { word: None, ..own };
        for owner in [own, without] {
            assert!(owner.is_here() && Owner::here().is_here());
            assert!(in_child(|| !owner.is_here()));
            assert!(in_child(|| Owner::here().is_here()));
        }
        assert!(own.is_here(), "a child's has nothing to do with the parent's");
    }
}
