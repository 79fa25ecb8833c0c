//! Descriptors of the reader of messages: what it waits for, and a table of its own that they lie in.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::descriptor::Descriptor;
use faultless_base::sys::uffd::Waited;

use crate::error::Error;

/// Descriptors that are told of at a time.
pub const MOST: usize = 16;

/// A set of descriptors to wait for (epoll).
pub struct Poll(OwnedFd);

impl Poll {
    /// An empty one.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: a new descriptor of our own.
        unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Self)
    }

    /// Waits for `fd`, too; whether that can be.
    pub fn add(&self, fd: i32) -> bool {
        self.add_for(fd, libc::EPOLLIN)
    }

    fn add_for(&self, fd: i32, events: i32) -> bool {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: an event to read from.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) == 0 }
    }

    /// Does not any more.
    pub fn remove(&self, fd: i32) {
        // SAFETY: no event is needed here.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits, at most for so long; which can be read.
    pub fn wait(&self, timeout_ms: i32) -> impl Iterator<Item = i32> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        // SAFETY: room for so many events, no signal mask.
        let n = unsafe {
            libc::epoll_pwait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, timeout_ms, null())
        };
        events.into_iter().take(n.max(0) as usize).map(|event| event.u64 as i32)
    }
}

/// One of several waits for the same descriptor, each in a thread of its own. What comes there wakes one thread that
/// waits, and no others (`EPOLLEXCLUSIVE`).
///
/// All sets of epoll are the same file to `fstat`. So what a set knows shows whose it is: the program may have closed
/// it, and have a set of its own under the number.
pub struct OneOfSeveral {
    poll: ManuallyDrop<Poll>,
    end: Arc<End>,
}

impl OneOfSeveral {
    /// Waits for `fd`, and for the end; `None` where that cannot be.
    pub fn new(fd: i32, end: &Arc<End>) -> Option<Self> {
        let poll = ManuallyDrop::new(Poll::new().ok()?);
        let one = Self { poll, end: end.clone() };
        let events = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
        (one.poll.add(end.number()) && one.poll.add_for(fd, events)).then_some(one)
    }

    /// Waits for messages, at most for so long. `None`: the set is not its own any more.
    pub fn wait(&self, timeout_ms: i32) -> Option<Waited> {
        if !self.is_own() {
            return None;
        }
        let (mut has_any, mut ends) = (false, false);
        for fd in self.poll.wait(timeout_ms) {
            has_any = true;
            ends |= fd == self.end.number();
        }
        Some(match (ends, has_any) {
            (true, _) => Waited::Other,
            (false, true) => Waited::Messages(1),
            (false, false) => Waited::Nothing,
        })
    }

    fn is_own(&self) -> bool {
        if self.poll.add(self.end.number()) {
            self.poll.remove(self.end.number());
            return false;
        }
        std::io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST)
    }
}

impl Drop for OneOfSeveral {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: once, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.poll) };
        }
    }
}

/// # Safety
/// The number is a new descriptor's, or negative.
unsafe fn owned(fd: i32) -> Result<OwnedFd, Error> {
    // SAFETY: as above.
    if fd < 0 { Err(refused()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// Why the last call gave no descriptor.
fn refused() -> Error {
    refused_by(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Why a call with this error gave no descriptor.
pub fn refused_by(error: i32) -> Error {
    if matches!(error, libc::EMFILE | libc::ENFILE) { Error::NoUserfaultfd(error) } else { Error::Kernel(error) }
}

/// A pipe that does not block: where it is read, and where it is written to.
pub fn pipe() -> Result<(Descriptor, Descriptor), Error> {
    let mut ends = [-1; 2];
    // SAFETY: room for two new descriptors of our own.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        0 => Ok((Descriptor::new(ends[0] as usize), Descriptor::new(ends[1] as usize))),
        _ => Err(refused()),
    }
}

/// A pipe that says that service ends. It is no eventfd, because the kernel shows the same file for all of those.
pub struct End {
    read: Descriptor,
    write: Descriptor,
    /// Where the program has closed those, this says it, a moment later.
    is_told: AtomicBool,
}

impl End {
    /// It goes on.
    pub fn new() -> Result<Self, Error> {
        let (read, write) = pipe()?;
        Ok(Self { read, write, is_told: AtomicBool::new(false) })
    }

    /// Readable from the end on, for good.
    pub fn number(&self) -> i32 {
        self.read.number() as i32
    }

    /// It ends.
    pub fn tell(&self) {
        self.is_told.store(true, Ordering::Release);
        self.ring();
    }

    /// Wakes the thread that waits for it.
    pub fn ring(&self) {
        if self.write.is_open() {
            // SAFETY: a byte.
            unsafe { libc::write(self.write.number() as i32, [1u8].as_ptr().cast(), 1) };
        }
    }

    /// Whether both descriptors are still its own.
    pub fn is_open(&self) -> bool {
        self.read.is_open() && self.write.is_open()
    }

    /// Takes away what woke; whether it can.
    pub fn drain(&self) -> bool {
        let mut bytes = [0_u8; 64];
        // SAFETY: room for so many bytes.
        self.read.is_open() && unsafe { libc::read(self.number(), bytes.as_mut_ptr().cast(), bytes.len()) } > 0
    }

    /// Whether it does.
    pub fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }
}

/// Gives this thread a table of descriptors of its own, with these and stderr alone. The thread would keep others
/// open, like the end of a pipe for which another thread waits.
pub fn own_files(keep: &[i32]) -> Result<(), Error> {
    let mut keep = [keep, &[libc::STDERR_FILENO]].concat();
    keep.sort_unstable();
    // SAFETY: this thread's table alone changes.
    let close = |first: u32, last: u32| unsafe { libc::close_range(first, last, 0) == 0 };
    // SAFETY: as above.
    let mut done = unsafe { libc::unshare(libc::CLONE_FILES) == 0 };
    let mut first = 0;
    for fd in keep {
        done = done && (first >= fd as u32 || close(first, fd as u32 - 1));
        first = fd as u32 + 1;
    }
    if done && close(first, u32::MAX) { Ok(()) } else { Err(Error::NoThread) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_waits_sees_what_is_left() {
        let end = Arc::new(End::new().unwrap());
        let from = End::new().unwrap();
        let waits = [(); 2].map(|()| OneOfSeveral::new(from.number(), &end).unwrap());
        let waited = || waits.each_ref().map(|one| one.wait(0));
        assert_eq!(waited(), [Some(Waited::Nothing); 2]);
        from.ring();
        assert_eq!(waited(), [Some(Waited::Messages(1)); 2]);
        assert!(from.drain());
        assert_eq!(waited(), [Some(Waited::Nothing); 2]);
        end.tell();
        assert_eq!(waited(), [Some(Waited::Other); 2]);
    }

    #[test]
    fn a_set_of_the_program_s_is_left_alone() {
        let end = Arc::new(End::new().unwrap());
        let from = End::new().unwrap();
        let one = OneOfSeveral::new(from.number(), &end).unwrap();
        let number = one.poll.0.as_raw_fd();
        let other = Poll::new().unwrap();
        assert!(other.add(from.number()));
        from.ring();
        // SAFETY: the test's own descriptors.
        assert_eq!(unsafe { libc::dup3(other.0.as_raw_fd(), number, libc::O_CLOEXEC) }, number);
        assert_eq!(one.wait(60_000), None);
        drop(one);
        // SAFETY: a question about a number, which is closed then.
        unsafe { assert!(libc::fcntl(number, libc::F_GETFD) >= 0 && libc::close(number) == 0) };
        assert!(other.add(end.number()), "it has the end of another");
        let gone = OneOfSeveral::new(from.number(), &end).unwrap();
        // SAFETY: the test's own descriptor.
        assert_eq!(unsafe { libc::close(gone.poll.0.as_raw_fd()) }, 0);
        assert_eq!(gone.wait(60_000), None);
    }
}
