//! Waits until descriptors are ready, however many the process may have.
//!
//! The kernel refuses to poll more entries than the process may have descriptors (`RLIMIT_NOFILE`), although those are
//! open already. A program may lower that limit at any time, down to 0. `pselect6` does not ask for it.

use super::raw::{self, Answer, syscall};
use crate::Errno;

/// How long a look waits where the kernel cannot wait.
const REST_NS: u64 = 1_000_000;

/// As `poll`, for [`libc::POLLIN`] and [`libc::POLLOUT`]: how many entries are ready. A negative number is passed over.
/// It never fails because the process may have too few descriptors.
pub fn poll(polls: &mut [libc::pollfd], timeout_ms: u32) -> Answer {
    polls.iter_mut().for_each(|poll| poll.revents = 0);
    match by_poll(polls, timeout_ms) {
        Err(error) if error != Errno::EINTR => by_select(polls, timeout_ms),
        answer => answer,
    }
}

fn time(ms: u32) -> libc::timespec {
    libc::timespec { tv_sec: (ms / 1000) as libc::time_t, tv_nsec: (ms % 1000 * 1_000_000) as libc::c_long }
}

fn by_poll(polls: &mut [libc::pollfd], timeout_ms: u32) -> Answer {
    let timeout = time(timeout_ms);
    let args = [polls.as_mut_ptr() as usize, polls.len(), &raw const timeout as usize, 0, 0, 0];
    // SAFETY: so many structures to poll, a timeout, no signal mask.
    unsafe { syscall(libc::SYS_ppoll, args) }
}

/// Sets as small as the numbers allow: a signal handler has little stack, and its number is that of stderr.
#[cold]
fn by_select(polls: &mut [libc::pollfd], timeout_ms: u32) -> Answer {
    // The kernel looks no farther than its table goes.
    for poll in polls.iter_mut().filter(|poll| poll.fd >= 0 && !is_open(poll.fd)) {
        poll.revents = libc::POLLNVAL;
    }
    if polls.iter().any(|poll| poll.revents != 0) {
        return Ok(ready(polls));
    }
    let answer = match polls.iter().map(|poll| poll.fd).max().unwrap_or(-1) {
        ..64 => select::<1>(polls, timeout_ms),
        64..1024 => select::<16>(polls, timeout_ms),
        // More than the kernel lets any process have, unless an administrator has said otherwise.
        1024..0x10_0000 => select::<0x4000>(polls, timeout_ms),
        _ => Err(Errno::EINVAL),
    };
    match answer {
        Err(Errno::EINTR) | Ok(_) => answer,
        // No memory for the sets: each by itself, but not at once again.
        Err(_) => {
            raw::sleep_ns(REST_NS);
            polls.iter_mut().for_each(|poll| _ = by_poll(core::slice::from_mut(poll), 0));
            Ok(ready(polls))
        }
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: a question about a number.
    unsafe { syscall(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) }.is_ok()
}

fn ready(polls: &[libc::pollfd]) -> usize {
    polls.iter().filter(|poll| poll.revents != 0).count()
}

#[inline(never)]
fn select<const WORDS: usize>(polls: &mut [libc::pollfd], timeout_ms: u32) -> Answer {
    const WANTED: [libc::c_short; 2] = [libc::POLLIN, libc::POLLOUT];
    let place = |fd: i32| (fd as usize / 64, 1u64 << (fd % 64));
    let mut sets = [[0u64; WORDS]; 2];
    for poll in polls.iter().filter(|poll| poll.fd >= 0) {
        let (word, bit) = place(poll.fd);
        for (set, _) in sets.iter_mut().zip(WANTED).filter(|(_, wanted)| poll.events & wanted != 0) {
            set[word] |= bit;
        }
    }
    let timeout = time(timeout_ms);
    let [read, write] = [0, 1].map(|i| &raw mut sets[i] as usize);
    // SAFETY: sets of so many bits, a timeout, no signal mask.
    unsafe { syscall(libc::SYS_pselect6, [WORDS * 64, read, write, 0, &raw const timeout as usize, 0]) }?;
    for poll in polls.iter_mut().filter(|poll| poll.fd >= 0) {
        let (word, bit) = place(poll.fd);
        let ready = sets.iter().zip(WANTED).filter(|(set, _)| set[word] & bit != 0);
        poll.revents = ready.fold(0, |all, (_, wanted)| all | wanted) & poll.events;
    }
    Ok(ready(polls))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// A pipe, the reading end of which has at least this number.
    fn pipe(least: i32) -> [OwnedFd; 2] {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers, which are the test's own.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let moved = libc::fcntl(ends[0], libc::F_DUPFD_CLOEXEC, least);
            assert!(moved >= least && libc::close(ends[0]) == 0);
            [moved, ends[1]].map(|end| OwnedFd::from_raw_fd(end))
        }
    }

    fn write(to: &OwnedFd) {
        // SAFETY: a byte.
        assert_eq!(unsafe { libc::write(to.as_raw_fd(), c"a".as_ptr().cast(), 1) }, 1);
    }

    fn entry(fd: i32, events: libc::c_short) -> libc::pollfd {
        libc::pollfd { fd, events, revents: 0 }
    }

    /// The two ways agree, for small numbers and large ones.
    #[test]
    fn it_needs_no_right_to_so_many_descriptors() {
        for least in [3, 64, 900] {
            let [read, to] = pipe(least);
            let [other, _kept] = pipe(least);
            let wanted = || {
                [
                    entry(read.as_raw_fd(), libc::POLLIN),
                    entry(-1, libc::POLLIN),
                    entry(other.as_raw_fd(), libc::POLLIN),
                    entry(to.as_raw_fd(), libc::POLLOUT),
                ]
            };
            for (bytes, expected) in
                [(0_usize, [0, 0, 0, libc::POLLOUT]), (1, [libc::POLLIN, 0, 0, libc::POLLOUT])]
            {
                (0..bytes).for_each(|_| write(&to));
                for way in [poll, by_select] {
                    let mut polls = wanted();
                    assert_eq!(way(&mut polls, 60_000), Ok(expected.iter().filter(|event| **event != 0).count()));
                    assert_eq!(polls.map(|poll| poll.revents), expected, "from {least}");
                }
            }
            let mut polls = [entry(other.as_raw_fd(), libc::POLLIN)];
            assert_eq!((by_select(&mut polls, 1), polls[0].revents), (Ok(0), 0));
        }
    }

    #[test]
    fn one_that_is_closed_is_told() {
        let [read, _to] = pipe(3);
        // No process may have this one. Below the limit other tests of this process may have any.
        let closed = i32::MAX;
        let mut polls = [entry(read.as_raw_fd(), libc::POLLIN), entry(closed, libc::POLLIN)];
        assert_eq!(by_select(&mut polls, 60_000), Ok(1));
        assert_eq!(polls.map(|poll| poll.revents), [0, libc::POLLNVAL]);
    }
}
