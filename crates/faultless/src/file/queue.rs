//! Reads of which many are under way at a time: io_uring, straight into the memory of the cache.
//!
//! A ring lives for one call. So no descriptor stays open that a program could close, and a forked child has none. The
//! kernel writes to memory of reads under way, so a ring does not end before they do. Where the kernel refuses rings
//! (a filter of system calls, `kernel.io_uring_disabled`), the caller reads one part after the other.

use std::os::fd::RawFd;

use faultless_base::Errno;
use faultless_mm::cache::backing::{Reads, Request};
use io_uring::{IoUring, opcode, types};

/// Reads under way at most.
const DEPTH: usize = 128;

/// Reads by one ring.
pub(super) struct Queue {
    ring: IoUring,
    requests: [Option<Request>; DEPTH],
    /// The requests of the last submission, in their order: the kernel may not have taken the last of them.
    pushed: Vec<usize>,
    /// Whether the kernel takes no more.
    is_broken: bool,
}

impl Queue {
    /// Whether the kernel has refused to go on.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// `None`: the kernel refuses.
    pub(super) fn new() -> Option<Self> {
        let ring = IoUring::builder().dontfork().build(DEPTH as u32).ok()?;
        Some(Self { ring, requests: [None; DEPTH], pushed: Vec::with_capacity(DEPTH), is_broken: false })
    }

    /// Makes reads of a file until there are no more of them. `redo` makes one by other means, where this cannot; it
    /// is given what the kernel said. How many were made here.
    pub(super) fn run(
        &mut self,
        fd: RawFd,
        first: impl IntoIterator<Item = Request>,
        reads: &mut dyn Reads,
        redo: impl Fn(Request, i32) -> Result<usize, Errno>,
    ) -> usize {
        let mut first = first.into_iter();
        let mut made = 0;
        loop {
            while !self.is_broken
                && let Some(free) = self.requests.iter().position(Option::is_none)
                && let Some(request) = first.next().or_else(|| reads.next())
            {
                self.push(fd, free, request);
            }
            if self.requests.iter().all(Option::is_none) {
                return made;
            }
            for request in self.submit() {
                reads.done(request, redo(request, -libc::EAGAIN));
            }
            while let Some((request, result)) = self.completed() {
                made += 1;
                let is_whole = usize::try_from(result).is_ok_and(|read| read == request.to.bytes());
                reads.done(request, if is_whole { Ok(request.to.bytes()) } else { redo(request, result) });
            }
        }
    }

    fn push(&mut self, fd: RawFd, free: usize, request: Request) {
        let (to, bytes) = (request.to.start as *mut u8, request.to.bytes() as u32);
        let entry = opcode::Read::new(types::Fd(fd), to, bytes).offset(request.offset).build();
        // SAFETY: memory that is this queue's until the read is completed, for which this queue waits. There are no
        // more entries than the ring has.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(free as u64)) };
        debug_assert!(pushed.is_ok());
        self.requests[free] = Some(request);
        self.pushed.push(free);
    }

    /// Tells the kernel of new reads, and waits for one. Those that it does not take, and never will.
    fn submit(&mut self) -> Vec<Request> {
        if self.is_broken {
            // Completions come all the same.
            std::thread::yield_now();
            return Vec::new();
        }
        match self.ring.submit_and_wait(1) {
            Ok(_) => self.forget_taken(),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => self.forget_taken(),
                _ => {
                    self.is_broken = true;
                    self.forget_taken();
                    return self.pushed.drain(..).filter_map(|at| self.requests[at].take()).collect();
                }
            },
        }
        Vec::new()
    }

    /// The kernel takes entries in their order.
    fn forget_taken(&mut self) {
        let left = self.ring.submission().len();
        self.pushed.drain(..self.pushed.len() - left);
    }

    fn completed(&mut self) -> Option<(Request, i32)> {
        let entry = self.ring.completion().next()?;
        Some((self.requests[entry.user_data() as usize].take()?, entry.result()))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Only where a panic has ended `run`.
        while self.requests.iter().any(Option::is_some) {
            self.submit();
            while self.completed().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use faultless_base::{PAGE, Span};
    use faultless_testkit::refuse;

    use super::*;

    /// Reads of all pages of a file, the last one first. From one of them on, the kernel refuses what this thread asks.
    struct Pages {
        memory: Vec<u8>,
        next: usize,
        refuses_at: usize,
        done: Vec<Option<usize>>,
    }

    impl Reads for Pages {
        fn next(&mut self) -> Option<Request> {
            let tag = self.done.len().checked_sub(self.next + 1)?;
            self.next += 1;
            if self.next == self.refuses_at {
                refuse(libc::SYS_io_uring_enter);
            }
            let to = Span::new(self.memory.as_mut_ptr() as usize + tag * PAGE, PAGE);
            Some(Request { offset: (tag * PAGE) as u64, to, tag })
        }

        fn done(&mut self, request: Request, read: Result<usize, Errno>) {
            assert_eq!(self.done[request.tag].replace(read.unwrap()), None, "done twice");
        }
    }

    /// Wherever the kernel begins to refuse, each read is made once: those under way by the ring, the others apart.
    #[test]
    fn reads_go_on_when_the_kernel_refuses() {
        const PAGES: usize = 100;
        let file = tempfile::tempfile().unwrap();
        let end = PAGES * PAGE - 5;
        let all: Vec<u8> = (0..end).map(|i| (i / PAGE * 7 + i) as u8).collect();
        file.write_all_at(&all, 0).unwrap();
        for refuses_at in [0, 1, 2, 31, 32, 33, 40, 99, 100] {
            // A filter stays with its thread.
            let run = || {
                let mut reads =
                    Pages { memory: vec![0xEE; PAGES * PAGE], next: 0, refuses_at, done: vec![None; PAGES] };
                let Some(mut queue) = Queue::new() else { return println!("no io_uring here") };
                let redo = |request: Request, _| {
                    // SAFETY: the memory of this read.
                    let to =
                        unsafe { std::slice::from_raw_parts_mut(request.to.start as *mut u8, request.to.bytes()) };
                    Ok(file.read_at(to, request.offset).unwrap())
                };
                let first = reads.next();
                let made = queue.run(file.as_raw_fd(), first, &mut reads, redo);
                while let Some(request) = reads.next() {
                    let read = redo(request, 0);
                    reads.done(request, read);
                }
                assert_eq!(queue.is_broken(), refuses_at > 0, "{refuses_at}");
                assert!(made == PAGES || refuses_at > 0);
                assert!(reads.done.iter().all(|read| read.is_some_and(|read| read == PAGE || read == PAGE - 5)));
                assert!(reads.memory[..end] == all, "{refuses_at}");
            };
            std::thread::scope(|s| s.spawn(run).join().unwrap());
        }
    }
}
