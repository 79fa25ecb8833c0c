//! Reads of one file that go on between calls, and who ends that.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_base::sys::begun::Begun;
use faultless_mm::cache::backing::{BEGUN, Request};

use crate::process::thread::Thread;

const _: () = assert!(BEGUN <= faultless_base::sys::begun::MOST);

/// Such reads.
pub(super) struct Ahead {
    /// The file is on no device, or the kernel has refused.
    is_refused: AtomicBool,
    /// Comes with the first of them, and goes when no more are expected.
    begun: Mutex<Option<Begun>>,
}

impl Ahead {
    /// `is_possible`: if the kernel allows it.
    pub(super) fn new(is_possible: bool) -> Self {
        Self { is_refused: (!is_possible).into(), begun: Mutex::default() }
    }

    fn begun(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As far as it was tried.
    pub(super) fn is_possible(&self) -> bool {
        !self.is_refused.load(Relaxed)
    }

    /// Begins one, past the page cache; whether it could.
    pub(super) fn begin(&self, fd: RawFd, request: Request) -> bool {
        let mut begun = self.begun();
        if begun.is_none() {
            *begun = Begun::new().ok();
        }
        // SAFETY: who makes a request leaves its memory alone until it has ended.
        let is_begun = begun
            .as_mut()
            .is_some_and(|begun| unsafe { begun.begin(fd, request.offset, request.to, request.tag).is_ok() });
        self.is_refused.fetch_or(!is_begun, Relaxed);
        is_begun
    }

    /// Waits for one: its bytes, or the negative error number.
    pub(super) fn wait(&self, tag: usize) -> i64 {
        self.begun().as_mut().map_or(-i64::from(libc::EINVAL), |begun| begun.wait(tag))
    }

    /// Whether one has ended.
    pub(super) fn has_ended(&self, tag: usize) -> bool {
        self.begun().as_mut().is_none_or(|begun| begun.has_ended(tag))
    }

    /// None are under way. The kernel takes some ten ms to forget them, also at the end of a process that has some. So a
    /// thread waits for that.
    pub(super) fn end(&self) {
        let Some(begun) = self.begun().take() else { return };
        // Where there is no thread, it has ended with what it was given.
        let _ = Thread::start(c"faultless-end", move || drop(begun));
    }
}
