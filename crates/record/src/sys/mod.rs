//! The kernel's side: events that count and sample page faults, and the rings that the kernel writes them to.
//!
//! | file | holds |
//! |---|---|
//! | [`event`] | `perf_event_open`: what is counted, for whom, with what rights |
//! | [`ring`] | the memory that the kernel writes records to, one for each CPU |
//! | [`memory`] | memory to touch, for measuring what a fault costs |

pub mod event;
pub mod memory;
pub mod ring;

use std::time::{Duration, SystemTime};

/// The time of the events' clock, in nanoseconds.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The time that this thread had a CPU, in nanoseconds.
pub fn thread_time() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time that the kernel gives a file that is written now. It may be some milliseconds behind the exact time.
pub fn file_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(clock(libc::CLOCK_REALTIME_COARSE))
}

fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is writable.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits until one of `files` has something to read, but not longer than that.
pub fn wait(files: &[i32], time: Duration) {
    let mut wanted: Vec<_> =
        files.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: as many structures as are said, all writable.
    unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, time.as_millis() as i32) };
}

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// Calls `work` while this process may open as many files as it may allow itself; afterwards the limit is as before,
/// for a program that is started then.
pub fn with_more_files<T>(work: impl FnOnce() -> T) -> T {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 };
    let set = |limit: libc::rlimit| {
        if is_known {
            // SAFETY: a valid structure.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
        }
    };
    set(libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    let done = work();
    set(limit);
    done
}
