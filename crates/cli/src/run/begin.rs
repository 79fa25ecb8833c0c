//! A child that becomes a program, and when it does.
//!
//! Mostly this process has files that it leaves to the program. A program may close one at once and rely on that, so this
//! process must have closed it before the program begins. And a signal may stop the child before it has become the
//! program, which this process has to see:
//!
//! | here | the child |
//! |---|---|
//! | starts the child, and waits for it | holds the word `held`, as the owner of a robust futex |
//! | closes the files, and says `go` | waits for `go` |
//! | waits for the word | becomes the program, or notes an error and ends |
//!
//! The kernel lets go of a robust futex when its owner calls exec or ends, and wakes who waits for it. That takes no
//! descriptor, as a pipe would. Where there is no such list, or a filter might kill for what this takes, the kernel holds
//! this process itself until the program has begun, as after `vfork`.

use std::io;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::handed::Left;
use super::{filters, sys};

/// What both processes share.
#[repr(C)]
pub struct Page {
    /// The error of exec; 0: there was none.
    pub error: AtomicI32,
    /// How many environments did not fit.
    pub tries: AtomicI32,
    go: AtomicU32,
    /// The child's number while it has not become the program.
    held: AtomicU32,
    list: List,
    entry: AtomicPtr<()>,
}

/// As the kernel reads it: entries, where their words are, and one that is being added.
#[repr(C)]
struct List {
    entries: AtomicPtr<()>,
    offset: AtomicIsize,
    pending: AtomicPtr<()>,
}

/// It is mapped in both.
pub struct Shared(*mut Page);

impl Deref for Shared {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: zeroes at first, mapped until this is dropped, and all atomics.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: made by `new`; there is no reference.
        unsafe { libc::munmap(self.0.cast(), size_of::<Page>()) };
    }
}

/// How long a wait lasts before the other process is looked at: it may have been killed.
const LOOK: Duration = Duration::from_millis(20);

/// Waits while the word has this value, for a moment at most.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as libc::c_long };
    // SAFETY: a word that is alive, and a time. Every outcome means to look again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: a word that is alive.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// There could be no child. Nothing was closed for it, so another way is left.
#[derive(Debug)]
pub struct NoChild(io::Error);

impl NoChild {
    /// With the last error of this thread.
    fn last() -> io::Error {
        let error = io::Error::last_os_error();
        io::Error::new(error.kind(), Self(error))
    }
}

impl std::error::Error for NoChild {}

impl std::fmt::Display for NoChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A child that was started.
#[derive(Clone, Copy)]
pub struct Started {
    pub pid: i32,
    /// Signals that waited for this process before there was a child, as [`sys::pending`] has them: the child has had
    /// none of them.
    pub before: u64,
}

/// A child with a copy of this memory; its number is 0 in the child.
fn clone(flags: i32) -> io::Result<Started> {
    let before = sys::pending();
    // SAFETY: as fork: the child goes on with its copy. Callers make only calls there that are allowed then.
    match unsafe {
        libc::syscall(libc::SYS_clone, (flags | libc::SIGCHLD) as usize, 0usize, 0usize, 0usize, 0usize)
    } {
        ..0 => Err(NoChild::last()),
        pid => Ok(Started { pid: pid as i32, before }),
    }
}

/// The end of a child that did not become the program.
fn end() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(127) }
}

impl Shared {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let map = unsafe { libc::mmap(null_mut(), size_of::<Page>(), prot, flags, -1, 0) };
        if map == libc::MAP_FAILED { Err(NoChild::last()) } else { Ok(Self(map.cast())) }
    }

    /// Starts a child that calls `exec`, which returns only where it has noted an error. The files are closed here before.
    /// The child has begun, has noted an error, or was stopped by a signal before, when this returns.
    pub fn start(&self, exec: impl Fn(), left: Left) -> io::Result<Started> {
        let left = match filters::may_kill() {
            false => match self.start_held(&exec, left)? {
                Ok(started) => return Ok(started),
                Err(left) => left,
            },
            true => left,
        };
        let started = clone(libc::CLONE_VFORK)?;
        if started.pid == 0 {
            exec();
            end();
        }
        left.close();
        Ok(started)
    }

    /// The same with a child that waits. The files come back where there is none.
    fn start_held(&self, exec: impl Fn(), left: Left) -> io::Result<Result<Started, Left>> {
        // One entry, behind which comes the list itself.
        self.list.entries.store((&raw const self.entry).cast_mut().cast(), Ordering::Relaxed);
        self.entry.store((&raw const self.list).cast_mut().cast(), Ordering::Relaxed);
        let offset = offset_of!(Page, held) as isize - offset_of!(Page, entry) as isize;
        self.list.offset.store(offset, Ordering::Relaxed);
        let parent = std::process::id() as i32;
        let started = clone(0)?;
        let pid = started.pid;
        if pid == 0 {
            self.hold(parent);
            exec();
            end();
        }
        while self.held.load(Ordering::Acquire) == 0 {
            match sys::halted(pid) {
                None => wait(&self.held, 0),
                Some(libc::CLD_EXITED) => {
                    // SAFETY: no status is asked for.
                    unsafe { libc::waitpid(pid, null_mut(), 0) };
                    return Ok(Err(left));
                }
                // One that a signal stops goes on when it is continued, which is for who waits for it.
                Some(_) => break,
            }
        }
        left.close();
        self.go.store(1, Ordering::Release);
        wake(&self.go);
        loop {
            let held = self.held.load(Ordering::Acquire);
            if held & libc::FUTEX_OWNER_DIED != 0 {
                return Ok(Ok(started));
            }
            wait(&self.held, held);
            // A kernel may take such lists, and do nothing about them.
            let has_begun = || sys::halted(pid).is_some() || sys::has_called_exec(pid);
            if self.held.load(Ordering::Acquire) == held && has_begun() {
                return Ok(Ok(started));
            }
        }
    }

    /// In the child: until the other process goes on, or is there no more.
    fn hold(&self, parent: i32) {
        // SAFETY: numbers, and a list in memory that stays until exec.
        unsafe {
            let number = libc::syscall(libc::SYS_gettid) as u32;
            if libc::syscall(libc::SYS_set_robust_list, &raw const self.list, size_of::<List>()) != 0 {
                end();
            }
            self.held.store(number | libc::FUTEX_WAITERS, Ordering::Release);
            wake(&self.held);
            while self.go.load(Ordering::Acquire) == 0 && libc::getppid() == parent {
                wait(&self.go, 0);
            }
        }
    }
}
