//! What the page cache has of a file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `cachestat`, of Linux 6.5.
const CACHESTAT: libc::c_long = 451;
const PAGE: u64 = 4096;

/// Bytes of a file that are in the page cache, by whole pages.
pub fn cached(path: &Path) -> u64 {
    let file = File::open(path).expect("the file is there");
    let (whole, mut found) = ([0u64; 2], [0u64; 5]);
    // SAFETY: structures of two and five numbers, of which the second is writable.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), whole.as_ptr(), found.as_mut_ptr(), 0) };
    assert_eq!(answer, 0, "the kernel says what is cached");
    found[0] * PAGE
}

/// Has nothing of a file in the page cache; false where it stays, as in a file system in memory.
pub fn uncache(path: &Path) -> bool {
    let file = File::open(path).expect("the file is there");
    file.sync_all().expect("the file is written");
    // SAFETY: a descriptor that is open; takes no memory.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    cached(path) == 0
}
