//! Pages of a backed region's forked children, and of ranges that were moved away. The handlers read them from the
//! backing, and a thread with descriptors of its own brings them.
//!
//! The kernel opens a descriptor for a child in the table of the thread that reads the message. That table is not the
//! program's, or the next child would have it too, and the first one would wait for ever should its parent be killed.

use std::sync::{Mutex, PoisonError};

use faultless_base::sys::raw::{self, Access};
use faultless_base::sys::uffd::message::Message;
use faultless_base::sys::uffd::{Uffd, Wake};
use faultless_base::{Errno, PAGE, Span};

use crate::process::mailbox::Mailbox;
use crate::process::message;
use crate::shared::Shared;

/// Bytes that are read at a time.
pub const WINDOW: usize = 16 * PAGE;
/// Kinds of messages that the kernel does not have.
const BRING: u8 = 0x80;
const CLOSE: u8 = 0x81;

/// A request of the reader to a handler.
#[derive(Clone, Copy)]
pub enum Request {
    /// Bring what the backing has at `offset` to `to`.
    Bring { uffd: i32, to: Span, offset: usize },
    /// Close a descriptor for which nothing will be asked any more.
    Close { uffd: i32 },
}

impl Request {
    /// As it goes through the pipe.
    pub fn message(self) -> Message {
        match self {
            Self::Bring { uffd, to, offset } => {
                [BRING as u64 | (uffd as u64) << 32, to.start as u64, to.bytes() as u64, offset as u64]
            }
            Self::Close { uffd } => [CLOSE as u64 | (uffd as u64) << 32, 0, 0, 0],
        }
    }

    /// `None` for a message of the kernel's.
    pub fn from(message: &Message) -> Option<Self> {
        let uffd = (message[0] >> 32) as i32;
        match message[0] as u8 {
            BRING => {
                let to = Span::new(message[1] as usize, message[2] as usize);
                Some(Self::Bring { uffd, to, offset: message[3] as usize })
            }
            CLOSE => Some(Self::Close { uffd }),
            _ => None,
        }
    }
}

/// What the thread does with a descriptor of its own.
#[derive(Clone, Copy)]
enum Job {
    Close(i32),
    /// From a buffer; without one the first page is an error.
    Bring(i32, Span, Option<usize>),
}

/// The thread with descriptors of its own, as the handlers see it. It is given one job at a time.
#[derive(Default)]
pub struct Files {
    turn: Mutex<()>,
    desk: Mailbox<Desk>,
}

/// What lies before the thread.
#[derive(Default)]
struct Desk {
    job: Option<Job>,
    is_done: bool,
    is_over: bool,
}

impl Files {
    /// Has it do something, and waits for that.
    fn run(&self, job: Job) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.desk.put(|desk| (desk.job, desk.is_done) = (Some(job), false));
        self.desk.wait(None, |desk| (desk.is_done || desk.is_over).then_some(()));
    }

    /// Does what it is given until the end: the thread.
    pub fn work(&self) {
        let next = |desk: &mut Desk| (desk.job.is_some() || desk.is_over).then(|| desk.job.take());
        while let Some(job) = self.desk.wait(None, next).flatten() {
            match job {
                Job::Close(uffd) => close(uffd),
                Job::Bring(uffd, to, buffer) => bring(&kept(uffd), to, buffer),
            }
            self.desk.put(|desk| desk.is_done = true);
        }
    }

    /// There will be no more.
    pub fn end(&self) {
        self.desk.put(|desk| desk.is_over = true);
    }
}

/// A handler's buffer, made when it is first needed.
#[derive(Default)]
pub struct Buffer(Option<usize>);

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            // SAFETY: mapped in `serve`, and no thread copies from it any more.
            unsafe { raw::unmap(at, WINDOW) };
        }
    }
}

/// Does what the reader asks for.
pub fn serve(shared: &Shared, files: &Files, buffer: &mut Buffer, request: Request) {
    match request {
        // Requests for it came before this one.
        Request::Close { uffd } => files.run(Job::Close(uffd)),
        Request::Bring { uffd, to, offset } => {
            buffer.0 = buffer.0.or_else(|| raw::map_private(WINDOW, Access::Write));
            let mut to = to;
            let read_all = |at, bytes| shared.memory.read_aside(offset, Span::new(at, bytes)).map(|()| at);
            let read = buffer.0.ok_or(Errno::ENOMEM).and_then(|at| {
                read_all(at, to.bytes()).or_else(|_| {
                    // One page that cannot be read is no reason to have none of the others.
                    to = Span::new(to.start, PAGE);
                    read_all(at, PAGE)
                })
            });
            if let Err(error) = read {
                message::page_cannot_be_had(to.start, error);
            }
            files.run(Job::Bring(uffd, to, read.ok()));
        }
    }
}

/// A descriptor that other code closes.
pub fn kept(uffd: i32) -> std::mem::ManuallyDrop<Uffd> {
    Uffd::kept(uffd as usize)
}

/// Brings the bytes of the buffer, as far as pages are missing; without a buffer an access to the first page is an
/// error. Waiting threads go on.
fn bring(uffd: &Uffd, to: Span, buffer: Option<usize>) {
    let first = Span::new(to.start, PAGE);
    let mut part = to;
    loop {
        let brought = match buffer {
            // SAFETY: a buffer of so many bytes, which its handler leaves alone meanwhile; the kernel refuses what is
            // not registered.
            Some(at) => unsafe { uffd.copy(at, part, Wake::Now) },
            None => uffd.poison(first, Wake::Now),
        };
        match brought.map_err(|stopped| stopped.error) {
            // It changes: the reader reads what it says about that, and it goes on.
            Err(Errno::EAGAIN) => raw::sleep_ns(50_000),
            // The kernel has several areas there; a call stays inside one.
            Err(Errno::ENOENT) if part != first => part = first,
            _ => break,
        }
    }
    // If the first page was there, no thread was woken.
    let _ = uffd.wake(first);
}

/// Makes all missing pages of a span an error; threads that wait for them go on. False: not yet all. The memory
/// changes, and a thread waits for a message about that to be read.
pub fn poison(uffd: &Uffd, span: Span) -> bool {
    let (mut at, mut most) = (span.start, span.bytes());
    while at < span.end {
        let part = Span::new(at, most).clip(span);
        let Err(stopped) = uffd.poison(part, Wake::Now) else {
            (at, most) = (part.end, span.bytes());
            continue;
        };
        at += stopped.done;
        match stopped.error {
            // Up to something that is there.
            Errno::EAGAIN if stopped.done > 0 => {}
            Errno::EEXIST => at += PAGE,
            Errno::EAGAIN => return false,
            Errno::ESRCH => return true,
            // The kernel has several areas there; a call stays inside one.
            _ if most > PAGE => most = (most / PAGE).div_ceil(2) * PAGE,
            _ => at += PAGE,
        }
    }
    // Pages that were an error before have woken no thread.
    let _ = uffd.wake(span);
    true
}

/// Closes a descriptor of this thread's table.
pub fn close(fd: i32) {
    // SAFETY: a descriptor that no other code uses.
    unsafe { libc::close(fd) };
}
