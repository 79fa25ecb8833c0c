//! Reads of a file that go on while the program does: the kernel's `io_submit(2)`.
//!
//! They take no thread and no descriptor. The kernel names a context by an address of this process. So it is there for
//! each thread, a program that closes all of its descriptors does not end it, and a forked child has none.

use core::sync::atomic::{AtomicU32, Ordering};

use super::raw::{self, syscall};
use crate::{Errno, Span};

/// Reads under way at most.
pub const MOST: usize = 8;

/// How long it is waited where the kernel does not wait.
const REST_NS: u64 = 100_000;

/// What the kernel says of a read that has ended (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    tag: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// What stands at the context's address (`struct aio_ring`): which of the events behind it are new.
#[repr(C)]
struct Ring {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Begun,
    /// The bytes that were read, or the negative error number.
    Ended(i64),
}

/// Reads that were begun. They have ended when this is dropped.
pub struct Begun {
    context: usize,
    states: [State; MOST],
}

impl Begun {
    /// # Errors
    /// The kernel's: it has no such calls, or others have as many of these as there may be (`fs.aio-max-nr`).
    pub fn new() -> Result<Self, Errno> {
        let mut context = 0_usize;
        // SAFETY: writes to `context`.
        unsafe { syscall(libc::SYS_io_setup, [MOST, &raw mut context as usize, 0, 0, 0, 0]) }?;
        Ok(Self { context, states: [State::Free; MOST] })
    }

    /// Begins a read. No other one that has its tag, which is below [`MOST`], is under way.
    ///
    /// # Errors
    /// The kernel's; nothing is under way then.
    ///
    /// # Safety
    /// The memory is the read's alone until [`Begun::wait`] has returned for its tag, or this was dropped.
    pub unsafe fn begin(&mut self, fd: i32, offset: u64, to: Span, tag: usize) -> Result<(), Errno> {
        debug_assert!(self.states[tag] == State::Free);
        // SAFETY: numbers, all of which may be 0.
        let mut request: libc::iocb = unsafe { core::mem::zeroed() };
        request.aio_data = tag as u64;
        // IOCB_CMD_PREAD
        request.aio_lio_opcode = 0;
        request.aio_fildes = fd as u32;
        request.aio_buf = to.start as u64;
        request.aio_nbytes = to.bytes() as u64;
        request.aio_offset = offset as i64;
        let requests = [&raw mut request];
        // SAFETY: one request, which the kernel copies; its memory by contract.
        unsafe { syscall(libc::SYS_io_submit, [self.context, 1, requests.as_ptr() as usize, 0, 0, 0]) }?;
        self.states[tag] = State::Begun;
        Ok(())
    }

    /// Waits for the end of a read that was begun: the bytes that were read, or the negative error number.
    pub fn wait(&mut self, tag: usize) -> i64 {
        loop {
            match core::mem::replace(&mut self.states[tag], State::Free) {
                State::Ended(result) => return result,
                State::Free => return -i64::from(libc::EINVAL),
                State::Begun => self.states[tag] = State::Begun,
            }
            self.collect(1);
        }
    }

    /// Whether a read that was begun has ended.
    pub fn has_ended(&mut self, tag: usize) -> bool {
        self.collect(0);
        self.states[tag] != State::Begun
    }

    /// Waits for at least so many ends.
    fn collect(&mut self, least: usize) {
        let mut events = [Event::default(); MOST];
        let args = [self.context, least, MOST, events.as_mut_ptr() as usize, 0, 0];
        // SAFETY: room for so many events.
        match unsafe { syscall(libc::SYS_io_getevents, args) } {
            Ok(ended) => events[..ended].iter().for_each(|event| self.note(event)),
            Err(Errno::EINTR) => {}
            // A filter of system calls that came since. The kernel goes on all the same, and shows that.
            Err(_) => self.look(),
        }
    }

    /// The same from the memory that the kernel writes the events to. What was seen is taken: the next look, and the
    /// kernel, begin behind it.
    fn look(&mut self) {
        raw::sleep_ns(REST_NS);
        let ring = self.context as *const Ring;
        // SAFETY: the kernel's memory for this context, which it changes while this looks.
        let ring = unsafe { &*ring };
        let (mut at, tail) = (ring.head.load(Ordering::Relaxed), ring.tail.load(Ordering::Acquire));
        while at != tail {
            // SAFETY: events follow the ring's 32 bytes; those before the tail are written.
            let event = unsafe { (self.context as *const u8).add(32).cast::<Event>().add(at as usize).read() };
            self.note(&event);
            at = (at + 1) % ring.events;
        }
        ring.head.store(tail, Ordering::Release);
    }

    fn note(&mut self, event: &Event) {
        if let Some(state) = self.states.get_mut(event.tag as usize) {
            *state = State::Ended(event.result);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        while self.states.contains(&State::Begun) {
            self.collect(1);
        }
        // SAFETY: the context is this value's, and nothing is under way.
        let _ = unsafe { syscall(libc::SYS_io_destroy, [self.context, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::vec::Vec;

    use faultless_testkit::refuse;

    use super::*;
    use crate::PAGE;

    /// A file of so many different pages.
    fn file(pages: usize) -> std::fs::File {
        let mut file = tempfile();
        (0..pages).for_each(|page| file.write_all(&[page as u8 + 1; PAGE]).unwrap());
        file
    }

    fn tempfile() -> std::fs::File {
        // SAFETY: a name, and a descriptor that is new.
        unsafe {
            let fd = libc::open(c"/tmp".as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600);
            assert!(fd >= 0);
            std::os::fd::FromRawFd::from_raw_fd(fd)
        }
    }

    fn read_all(file: &std::fs::File, begun: &mut Begun, between: impl FnOnce()) -> Vec<u8> {
        let mut memory = std::vec![0; MOST * PAGE];
        for tag in 0..MOST {
            let to = Span::new(memory[tag * PAGE..].as_mut_ptr() as usize, PAGE);
            // SAFETY: memory that nothing else uses until all have ended.
            unsafe { begun.begin(file.as_raw_fd(), (tag * PAGE) as u64, to, tag) }.unwrap();
        }
        between();
        // The file has one page less.
        (0..MOST).rev().for_each(|tag| {
            while !begun.has_ended(tag) {}
            assert_eq!(begun.wait(tag), if tag + 1 == MOST { 0 } else { PAGE as i64 });
            assert_eq!(begun.wait(tag), -i64::from(libc::EINVAL), "it is not under way any more");
        });
        memory
    }

    fn is_right(memory: &[u8]) -> bool {
        memory.iter().enumerate().all(|(i, byte)| {
            let page = i / PAGE;
            usize::from(*byte) == if page + 1 == MOST { 0 } else { page + 1 }
        })
    }

    /// Each read ends with its bytes, whatever the order in which they are waited for, and tags are used again.
    #[test]
    fn reads_end_with_their_bytes() {
        let (file, mut begun) = (file(MOST - 1), Begun::new().unwrap());
        for _ in 0..3 {
            assert!(is_right(&read_all(&file, &mut begun, || ())));
        }
    }

    /// Where a filter of system calls comes while reads are under way, their ends are seen all the same.
    #[test]
    fn reads_end_where_the_kernel_may_not_be_asked_any_more() {
        // A filter stays with its thread.
        let test = || {
            let (file, mut begun) = (file(MOST - 1), Begun::new().unwrap());
            // The kernel has events that were taken before.
            assert!(is_right(&read_all(&file, &mut begun, || ())));
            let refuse = || [libc::SYS_io_getevents, libc::SYS_io_destroy].into_iter().for_each(refuse);
            assert!(is_right(&read_all(&file, &mut begun, refuse)));
            for _ in 0..10 * MOST {
                let mut page = std::vec![0_u8; PAGE];
                let to = Span::new(page.as_mut_ptr() as usize, PAGE);
                // SAFETY: memory that nothing else uses until it has ended.
                unsafe { begun.begin(file.as_raw_fd(), 0, to, 3) }.unwrap();
                assert_eq!(begun.wait(3), PAGE as i64);
                assert!(page.iter().all(|byte| *byte == 1), "it has not ended");
            }
        };
        std::thread::scope(|s| s.spawn(test).join().unwrap());
    }

    #[test]
    fn what_cannot_be_begun_is_an_error() {
        let mut begun = Begun::new().unwrap();
        let mut memory = [0_u8; 8];
        let to = Span::new(memory.as_mut_ptr() as usize, 8);
        // SAFETY: nothing is begun.
        assert_eq!(unsafe { begun.begin(-1, 0, to, 0) }, Err(Errno::EBADF));
        assert_eq!(begun.wait(0), -i64::from(libc::EINVAL));
    }
}
