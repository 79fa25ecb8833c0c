//! New memory in small pages, to touch.

use std::io;
use std::ptr::null_mut;

/// A mapping of zeroes.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

/// Bytes of a small page.
pub const PAGE: usize = 4096;

impl Memory {
    /// This many small pages.
    pub fn new(pages: usize) -> io::Result<Self> {
        let bytes = pages * PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, and advice for it.
        unsafe {
            let start = libc::mmap(null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
            Ok(Self { start: start.cast(), bytes })
        }
    }

    /// Writes to each page.
    pub fn touch(&mut self) {
        for page in 0..self.bytes / PAGE {
            // SAFETY: within the mapping, which is writable.
            unsafe { self.start.add(page * PAGE).write_volatile(1) };
        }
    }

    /// Gives the pages back, so that the next touch is a fault again.
    pub fn discard(&mut self) {
        // SAFETY: the whole mapping, which holds nothing of worth.
        unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_DONTNEED) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
