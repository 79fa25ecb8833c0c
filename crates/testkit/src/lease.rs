//! Leases on files (`fcntl`).

use std::fs::File;
use std::os::fd::AsRawFd;

/// Of `fcntl.h`: which signal tells of an end.
const F_SETSIG: i32 = 10;

/// Takes a lease for writing; false: there are none here. When it is to end, this process gets a signal that is ignored
/// by default.
pub fn write_lease(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: calls on a descriptor.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
    }
}

/// Whether there is one that nobody has asked to end.
pub fn has_write_lease(file: &File) -> bool {
    // SAFETY: a call on a descriptor.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_WRLCK }
}
