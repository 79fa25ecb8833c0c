//! What a forked child has of mapped files, where the fork is announced.
//!
//! Memory of files is in no forked child: what is shared with one cannot move. A program that announces a fork has its
//! mapped parts copied on write, as any memory is. The child may read them. It may not write: the file would not have
//! what it writes, and nothing would tell.

use std::marker::PhantomData;

use faultless_base::Span;
use faultless_base::sys::raw::syscall;

use crate::file::caches;

/// A fork that is about to be made. The parent drops it afterwards.
///
/// Mappings that another thread makes meanwhile are not in the child.
pub struct Fork {
    spans: Vec<Span>,
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
    let spans = caches::mapped();
    spans.iter().for_each(|span| advise(*span, libc::MADV_DOFORK));
    Fork { spans, _of_thread: PhantomData }
}

impl Fork {
    /// In the child: what it has may be read from now on, and not written.
    pub fn in_child(mut self) {
        for span in std::mem::take(&mut self.spans) {
            // SAFETY: copies of this process's, which no call of the library uses.
            let _ = unsafe {
                syscall(libc::SYS_mprotect, [span.start, span.bytes(), libc::PROT_READ as usize, 0, 0, 0])
            };
        }
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.spans.iter().for_each(|span| advise(*span, libc::MADV_DONTFORK));
    }
}
