//! userfaultfd: missing pages of a range become messages or signals, and are filled by calls.
//!
//! A thin layer over the kernel's interface (`linux/userfaultfd.h`, whose names the constants have). One descriptor
//! goes through [`Uffd::open`], [`Uffd::enable`] once, and [`Uffd::register`] for each range. Then faults arrive at
//! [`Uffd::next_event`], or as SIGBUS with [`feature::SIGBUS`]. They are answered by [`Uffd::zero_pages`],
//! [`Uffd::copy`] or [`Uffd::move_pages`]. When the descriptor is closed, threads that still wait go on, with zeroes.

use core::mem::size_of;

use super::descriptor::Descriptor;
use super::raw::syscall;
use crate::{Errno, PAGE, Span};

pub mod message;

pub use message::{BATCH, Event, Waited};

/// Ways to a descriptor, the most capable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The device, for processes that may open it: sees faults of the kernel, too.
    Device,
    /// The system call: the same, for `CAP_SYS_PTRACE` or where `vm.unprivileged_userfaultfd` is 1.
    Syscall,
    /// The system call with `UFFD_USER_MODE_ONLY`, for every process: a system call on a missing page fails with
    /// EFAULT.
    UserModeOnly,
}

impl Way {
    /// All of them, in the order in which to try.
    pub const ALL: [Self; 3] = [Self::Device, Self::Syscall, Self::UserModeOnly];

    /// Whether faults that the kernel meets on behalf of a program (in `read`, say) are delivered.
    pub const fn sees_kernel_faults(self) -> bool {
        !matches!(self, Self::UserModeOnly)
    }
}

/// Features to ask for, and that the kernel says it has.
#[allow(missing_docs)]
pub mod feature {
    pub const WP: u64 = 1;
    pub const EVENT_FORK: u64 = 1 << 1;
    pub const EVENT_REMAP: u64 = 1 << 2;
    pub const EVENT_REMOVE: u64 = 1 << 3;
    pub const MISSING_HUGETLBFS: u64 = 1 << 4;
    pub const MISSING_SHMEM: u64 = 1 << 5;
    pub const EVENT_UNMAP: u64 = 1 << 6;
    pub const SIGBUS: u64 = 1 << 7;
    pub const THREAD_ID: u64 = 1 << 8;
    pub const MINOR_HUGETLBFS: u64 = 1 << 9;
    pub const MINOR_SHMEM: u64 = 1 << 10;
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    pub const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    pub const POISON: u64 = 1 << 14;
    pub const WP_ASYNC: u64 = 1 << 15;
    pub const MOVE: u64 = 1 << 16;
}

/// What a range is registered for: missing pages.
pub const REGISTER_MISSING: u64 = 1;
/// What a range is registered for: writes to protected pages.
pub const REGISTER_WP: u64 = 1 << 1;

/// Among the calls that work on a range: pages can move there.
pub const MOVES: u64 = 1 << 5;

/// Whether threads that wait for a page go on now, or at the next [`Uffd::wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Now.
    Now,
    /// Later.
    Later,
}

/// A call that stopped before its end: it did `done` bytes, and then met error number `error`.
///
/// These belong to normal operation: EEXIST (a page is there already), ENOENT (nothing to move, or unmapped
/// meanwhile), EBUSY (a page is shared or pinned) and EAGAIN (the address space is changing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Bytes done before.
    pub done: usize,
    /// The error number.
    pub error: Errno,
}

/// The address space behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not change, as far as there are messages about that.
    There,
    /// It is changing: a message about that was not read yet, or the changing thread has not gone on.
    Changing,
    /// The process has ended, or runs another program.
    Gone,
}

const API: u64 = 0xAA;
/// Numbers of the calls on a descriptor, with what they take: a range and this many words more.
const fn call(number: usize, words: usize) -> usize {
    let reads_and_writes = 3;
    reads_and_writes << 30 | (words * size_of::<u64>()) << 16 | (API as usize) << 8 | number
}
const UFFDIO_API: usize = call(0x3F, 3);
const UFFDIO_REGISTER: usize = call(0, 4);
const UFFDIO_COPY: usize = call(3, 5);
const UFFDIO_ZEROPAGE: usize = call(4, 4);
const UFFDIO_MOVE: usize = call(5, 5);
const UFFDIO_WRITEPROTECT: usize = call(6, 3);
const UFFDIO_POISON: usize = call(8, 4);
/// These two are declared as if they only answered.
const ONLY_READS: usize = 1 << 30;
const UFFDIO_UNREGISTER: usize = call(1, 2) & !ONLY_READS;
const UFFDIO_WAKE: usize = call(2, 2) & !ONLY_READS;
/// On the device: a new descriptor.
const USERFAULTFD_IOC_NEW: usize = (API as usize) << 8;
const UFFD_USER_MODE_ONLY: usize = 1;
/// Modes of copying: no thread is woken; the pages are protected against writing.
const COPY_LATER: u64 = 1;
const COPY_PROTECTED: u64 = 1 << 1;

/// A descriptor, closed at the end.
#[derive(Debug)]
pub struct Uffd(Descriptor);

fn close(fd: usize) {
    // SAFETY: a descriptor of this module's own.
    let _ = unsafe { syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
}

impl Uffd {
    /// Stays open from now on; its number.
    pub fn keep(self) -> usize {
        core::mem::ManuallyDrop::new(self).0.number()
    }

    /// The descriptor that was kept under this number.
    pub fn kept(number: usize) -> core::mem::ManuallyDrop<Self> {
        core::mem::ManuallyDrop::new(Self(core::mem::ManuallyDrop::into_inner(Descriptor::kept(number))))
    }

    /// A new descriptor, or the error number: EPERM where it is not allowed, ENOENT without the device, ENOSYS
    /// without the system call.
    pub fn open(way: Way) -> Result<Self, Errno> {
        // The kernel lets only those be polled that do not block.
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        // SAFETY: no memory is touched but a constant path.
        unsafe {
            let user_only = match way {
                Way::Device => {
                    let mode = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
                    let path = c"/dev/userfaultfd".as_ptr() as usize;
                    let device = syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, mode, 0, 0, 0])?;
                    let fd = syscall(libc::SYS_ioctl, [device, USERFAULTFD_IOC_NEW, flags, 0, 0, 0]);
                    close(device);
                    return fd.map(|fd| Self(Descriptor::new(fd)));
                }
                Way::Syscall => 0,
                Way::UserModeOnly => UFFD_USER_MODE_ONLY,
            };
            syscall(libc::SYS_userfaultfd, [flags | user_only, 0, 0, 0, 0, 0]).map(|fd| Self(Descriptor::new(fd)))
        }
    }

    /// A descriptor by the most capable way that works, or the error of the last.
    pub fn open_best() -> Result<(Self, Way), Errno> {
        let mut last = Errno::ENOSYS;
        for way in Way::ALL {
            match Self::open(way) {
                Ok(uffd) => return Ok((uffd, way)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn ioctl(&self, request: usize, words: &mut [u64]) -> Result<(), Errno> {
        debug_assert_eq!(size_of_val(words), request >> 16 & 0x3FFF);
        // SAFETY: the words are as many as the request says; what it does to memory is up to the callers here.
        unsafe { syscall(libc::SYS_ioctl, [self.0.number(), request, words.as_mut_ptr() as usize, 0, 0, 0]) }
            .map(drop)
    }

    /// Enables `features`, and gives all those that this kernel has. Once for each descriptor; EINVAL where one is
    /// not there.
    pub fn enable(&self, features: u64) -> Result<u64, Errno> {
        let mut words = [API, features, 0];
        self.ioctl(UFFDIO_API, &mut words)?;
        Ok(words[1])
    }

    /// Has faults of `span` delivered, and gives the calls that work on it (a bit for each number).
    ///
    /// # Safety
    /// Each access to the span must reckon with it: an access waits, or is a SIGBUS.
    pub unsafe fn register(&self, span: Span, modes: u64) -> Result<u64, Errno> {
        if !self.is_open() {
            return Err(Errno::EBADF);
        }
        let mut words = [span.start as u64, span.bytes() as u64, modes, 0];
        self.ioctl(UFFDIO_REGISTER, &mut words)?;
        Ok(words[3])
    }

    /// Ends that; threads that wait go on as without it.
    pub fn unregister(&self, span: Span) -> Result<(), Errno> {
        self.unregister_unwaited(span)?;
        // The kernel wakes before it waits for faults that have the lock of their area, and such a fault waits after
        // that.
        self.wake(span)
    }

    /// The same where no thread waits: no fault of `span` was delivered here.
    pub fn unregister_unwaited(&self, span: Span) -> Result<(), Errno> {
        self.ioctl(UFFDIO_UNREGISTER, &mut [span.start as u64, span.bytes() as u64])
    }

    /// The same where a part of it may be memory of another kind, of which the kernel refuses all; whether nothing is
    /// left.
    pub fn unregister_pieces(&self, span: Span) -> bool {
        self.unregister(span).is_ok() || {
            let half = (span.bytes() / PAGE).div_ceil(2) * PAGE;
            let (first, second) = (Span::new(span.start, half), Span { start: span.start + half, ..span });
            // Each, whatever becomes of the other one.
            half < span.bytes() && self.unregister_pieces(first) & self.unregister_pieces(second)
        }
    }

    /// Has threads that wait for pages of `span` look again.
    pub fn wake(&self, span: Span) -> Result<(), Errno> {
        self.ioctl(UFFDIO_WAKE, &mut [span.start as u64, span.bytes() as u64])
    }

    /// Fills missing pages of `to` with the bytes at `from`.
    ///
    /// # Safety
    /// As many bytes at `from` are readable and no thread changes them; the span is registered here.
    pub unsafe fn copy(&self, from: usize, to: Span, wake: Wake) -> Result<(), Stopped> {
        self.copy_as(from, to, (wake == Wake::Later) as u64)
    }

    /// The same, protected against writing as by [`Uffd::write_protect`] from the first moment on. No thread is woken.
    ///
    /// # Safety
    /// As of [`Uffd::copy`]; the span is registered here for [`REGISTER_WP`], too.
    pub unsafe fn copy_protected(&self, from: usize, to: Span) -> Result<(), Stopped> {
        self.copy_as(from, to, COPY_LATER | COPY_PROTECTED)
    }

    fn copy_as(&self, from: usize, to: Span, mode: u64) -> Result<(), Stopped> {
        let mut words = [to.start as u64, from as u64, to.bytes() as u64, mode, 0];
        let answer = self.ioctl(UFFDIO_COPY, &mut words);
        outcome(answer, words[4])
    }

    /// Maps the kernel's page of zeroes where pages of `span` are missing.
    ///
    /// # Safety
    /// The span is registered here.
    pub unsafe fn zero_pages(&self, span: Span, wake: Wake) -> Result<(), Stopped> {
        let mut words = [span.start as u64, span.bytes() as u64, (wake == Wake::Later) as u64, 0];
        let answer = self.ioctl(UFFDIO_ZEROPAGE, &mut words);
        outcome(answer, words[3])
    }

    /// Moves the pages at `from` to where those of `to` are missing, whole huge pages where both sides are aligned.
    /// Their old place is empty afterwards.
    ///
    /// # Safety
    /// The memory at `from` is private, anonymous and the caller's; the span is registered here.
    pub unsafe fn move_pages(&self, from: usize, to: Span, wake: Wake) -> Result<(), Stopped> {
        let mut words = [to.start as u64, from as u64, to.bytes() as u64, (wake == Wake::Later) as u64, 0];
        let answer = self.ioctl(UFFDIO_MOVE, &mut words);
        outcome(answer, words[4])
    }

    /// Protects the present pages of `span` against writing, or lifts that.
    ///
    /// # Safety
    /// The span is registered here for [`REGISTER_WP`]; a write waits, or is a SIGBUS.
    pub unsafe fn write_protect(&self, span: Span, protected: bool) -> Result<(), Errno> {
        self.ioctl(UFFDIO_WRITEPROTECT, &mut [span.start as u64, span.bytes() as u64, protected as u64])
    }

    /// Has accesses to missing pages of `span` fail with SIGBUS.
    pub fn poison(&self, span: Span, wake: Wake) -> Result<(), Stopped> {
        let mut words = [span.start as u64, span.bytes() as u64, (wake == Wake::Later) as u64, 0];
        let answer = self.ioctl(UFFDIO_POISON, &mut words);
        outcome(answer, words[3])
    }

    /// Whether it is open in the table of this thread, and its number no other file's.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Its number, by which [`message::receive`] takes it.
    pub fn number(&self) -> i32 {
        self.0.number() as i32
    }

    /// The state of the memory behind it. The question is about a span that is not registered for write protection.
    pub fn state(&self, span: Span) -> State {
        match self.ioctl(UFFDIO_WRITEPROTECT, &mut [span.start as u64, span.bytes() as u64, 0]) {
            Err(Errno::EAGAIN) => State::Changing,
            Err(Errno::ESRCH) => State::Gone,
            _ => State::There,
        }
    }

    /// Waits up to `timeout_ms` for the next message; `None` when there was none.
    pub fn next_event(&self, timeout_ms: u32) -> Result<Option<Event>, Errno> {
        let mut messages = [[0; 4]];
        Ok(match message::receive(self.number(), None, timeout_ms, &mut messages)? {
            Waited::Messages(1..) => Some(Event::from(messages[0])),
            _ => None,
        })
    }
}

/// The outcome of a call that may stop half way: its own error, or the count (or negated error) in its last word.
fn outcome(answer: Result<(), Errno>, count: u64) -> Result<(), Stopped> {
    match (answer, count as i64) {
        (Ok(()), 0..) => Ok(()),
        (Ok(()), error) => Err(Stopped { done: 0, error: Errno::new(-error as i32) }),
        (Err(error), done) => Err(Stopped { done: done.max(0) as usize, error }),
    }
}

#[cfg(test)]
mod tests;
