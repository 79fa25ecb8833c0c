//! Messages on stderr about what no return value can tell. They take no allocation, for signal handlers. They do not
//! wait for a full pipe: the reader of stderr may itself wait for this thread.

use std::fmt::{self, Write};
use std::time::Duration;

use faultless_base::raw::syscall;
use faultless_base::sys::poll::poll;
use faultless_base::{Errno, Span};

/// A line of limited length.
struct Line {
    bytes: [u8; 240],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
        Ok(())
    }
}

fn say(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 240], length: 0 };
    let _ = line.write_fmt(format_args!("faultless: {text}\n"));
    let mut stderr = [libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 }];
    if poll(&mut stderr, 0).is_ok() && stderr[0].revents == libc::POLLOUT {
        let _held_back = Broken::hold_back();
        // SAFETY: the part of the line that was written.
        unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
    }
}

/// SIGPIPE of this thread, held back. The reader of stderr may be gone, and not every poll says so.
struct Broken {
    before: u64,
    /// It came from elsewhere, and stays.
    is_pending: bool,
}

impl Broken {
    const MASK: u64 = 1 << (libc::SIGPIPE - 1);

    fn call(number: i64, args: [usize; 4]) -> Result<usize, Errno> {
        // SAFETY: masks of signals, as the kernel has them; only this thread's change.
        unsafe { syscall(number, [args[0], args[1], args[2], args[3], 0, 0]) }
    }

    fn hold_back() -> Self {
        let (mask, mut before, mut pending) = (Self::MASK, 0u64, 0u64);
        let how = libc::SIG_BLOCK as usize;
        let _ = Self::call(libc::SYS_rt_sigprocmask, [how, &raw const mask as usize, &raw mut before as usize, 8]);
        let _ = Self::call(libc::SYS_rt_sigpending, [&raw mut pending as usize, 8, 0, 0]);
        Self { before, is_pending: pending & mask != 0 }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let (mask, no_time) = (Self::MASK, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        if !self.is_pending {
            let args = [&raw const mask as usize, 0, &raw const no_time as usize, 8];
            while Self::call(libc::SYS_rt_sigtimedwait, args) == Err(Errno::EINTR) {}
        }
        let how = libc::SIG_SETMASK as usize;
        let _ = Self::call(libc::SYS_rt_sigprocmask, [how, &raw const self.before as usize, 0, 8]);
    }
}

/// A page is lost.
pub fn page_cannot_be_had(addr: usize, error: Errno) {
    let error = error.number();
    say(format_args!("the page at {addr:#x} cannot be had (error {error}): whoever needs it gets SIGBUS"));
}

/// A region is closed.
pub fn closed(span: Span, why: &str) {
    let (start, end) = (span.start, span.end);
    say(format_args!("{why}: the region {start:#x}-{end:#x} is closed, an access to it is an error"));
}

/// The last handle of a file ends, and no call can tell.
pub fn file_is_not_written(error: Errno) {
    let error = error.number();
    say(format_args!("changes of a file are lost: they could not be written (error {error}) when it was closed"));
}

/// The lazy mappings of a file are closed.
pub fn file_is_closed(span: Span, why: &str) {
    let (start, end) = (span.start, span.end);
    say(format_args!("{why}: the file at {start:#x}-{end:#x} is closed, an access to it is an error"));
}

/// A backing takes long.
pub fn reads_for_long(offset: u64, time: Duration) {
    let s = time.as_secs_f32();
    say(format_args!(
        "the backing of a region has been read at offset {offset:#x} for {s:.1} s: a fault waits for it"
    ));
}

/// A fault has waited for long; where, if that is known.
pub fn stalled(addr: Option<usize>, time: Duration, waits_for: &str) {
    let s = time.as_secs_f32();
    match addr {
        Some(addr) => say(format_args!(
            "a fault at {addr:#x} has not been served for {s:.1} s: the handler waits for {waits_for}"
        )),
        None => say(format_args!("a fault has not been served for {s:.1} s: the handler waits for {waits_for}")),
    }
}
