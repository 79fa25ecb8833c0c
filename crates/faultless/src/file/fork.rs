//! What a forked child has of mapped files, where the fork is announced.
//!
//! Memory of files is in no forked child: what is shared with one cannot move. A program that announces a fork has its
//! mapped parts copied on write, as any memory is. The child may read them. It may not write: the file would not have
//! what it writes, and nothing would tell.
//!
//! Several threads may announce forks at a time. Advice is for the process, so each child has what any of them
//! announced, and the last announcement that ends takes it back.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_base::Span;
use faultless_base::sys::raw::syscall;

use crate::file::caches::{self, InFile};
use crate::process::owner::OfProcess;

/// All announced forks of a process.
struct Announced {
    /// How many there are. The lock is held while that changes, with the advice that it is about.
    forks: Mutex<usize>,
    /// What they announced, from the last one on. Parts are added with the lock held, and freed with it by the last
    /// announcement. A child reads them without it: another thread of the parent may have had it.
    parts: AtomicPtr<Part>,
}

struct Part {
    /// Keeps its addresses the file's.
    part: InFile,
    next: *mut Part,
}

static ANNOUNCED: OfProcess<Announced> = OfProcess::new();

impl Announced {
    fn forks(&self) -> MutexGuard<'_, usize> {
        self.forks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is announced. The caller has an announcement, or the lock.
    fn each(&self, mut f: impl FnMut(Span)) {
        let mut next = self.parts.load(Ordering::Acquire);
        // SAFETY: freed behind the last announcement only.
        while let Some(known) = unsafe { next.as_ref() } {
            known.part.spans.iter().for_each(|span| f(*span));
            next = known.next;
        }
    }
}

/// A fork that is about to be made. The parent drops it afterwards.
///
/// Mappings that another thread makes meanwhile are not in the child, unless that thread announces a fork, too.
pub struct Fork {
    announced: &'static Announced,
    /// The thread that forks has it.
    _of_thread: PhantomData<*const ()>,
}

fn advise(span: Span, advice: i32) {
    // SAFETY: memory of mappings, whose content does not change. An error leaves it in no child.
    let _ = unsafe { syscall(libc::SYS_madvise, [span.start, span.bytes(), advice as usize, 0, 0, 0]) };
}

/// Has a child that is forked next have the mapped parts of files as they are then, for reading. An access to them would
/// be a SIGSEGV otherwise, as a write there is.
pub fn before_fork() -> Fork {
    let parts = caches::mapped();
    let announced = ANNOUNCED.get(|| Announced { forks: Mutex::new(0), parts: AtomicPtr::new(null_mut()) });
    let mut forks = announced.forks();
    *forks += 1;
    for part in parts {
        let spans = part.spans.clone();
        let next = announced.parts.load(Ordering::Relaxed);
        // Before the advice: a child that another thread forks now closes all that it has.
        announced.parts.store(Box::into_raw(Box::new(Part { part, next })), Ordering::Release);
        spans.iter().for_each(|span| advise(*span, libc::MADV_DOFORK));
    }
    drop(forks);
    Fork { announced, _of_thread: PhantomData }
}

impl Fork {
    /// In the child: what it has may be read from now on, and not written.
    pub fn in_child(self) {
        self.announced.each(|span| {
            // SAFETY: copies of this process's, which no call of the library uses. What is not there is an error.
            let _ = unsafe {
                syscall(libc::SYS_mprotect, [span.start, span.bytes(), libc::PROT_READ as usize, 0, 0, 0])
            };
        });
        // The announcement is the parent's.
        std::mem::forget(self);
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        let mut forks = self.announced.forks();
        *forks -= 1;
        if *forks > 0 {
            return;
        }
        self.announced.each(|span| advise(span, libc::MADV_DONTFORK));
        let mut next = self.announced.parts.swap(null_mut(), Ordering::Relaxed);
        let mut parts = Vec::new();
        while !next.is_null() {
            // SAFETY: made by `before_fork`; no announcement is left that could read it.
            let known = unsafe { Box::from_raw(next) };
            next = known.next;
            parts.push(known);
        }
        // Memory of a file may end with them, which takes longer.
        drop(forks);
    }
}
