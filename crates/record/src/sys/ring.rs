//! The ring of one CPU: the kernel writes records at its head, [`Ring::read`] takes them from its tail.
//!
//! The kernel alone moves the head, this process alone the tail. Where the ring is full, the kernel drops records, and
//! says how many in the next one that fits.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use super::event::Event;

/// Places in the first page, from the kernel's `perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// One ring.
pub struct Ring {
    base: *mut u8,
    page: usize,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread; the numbers in it are read and written as atomics.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event`, with room for that many bytes: a power of two of pages.
    pub fn new(event: &Event, bytes: usize) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an event's file.
        let base = unsafe { libc::mmap(null_mut(), page + bytes, access, libc::MAP_SHARED, event.fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), page, bytes })
    }

    fn number(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned number in the first page, which is mapped as long as this is there, and which the kernel
        // reads and writes as a whole.
        unsafe { &*self.base.add(at).cast() }
    }

    /// Takes what is there, as two parts of one row, of which the second may be empty. Its length is given back.
    pub fn read<T>(&mut self, take: impl FnOnce(&[u8], &[u8]) -> T) -> (usize, T) {
        // Pairs with the kernel's barrier between records and head.
        let head = self.number(HEAD).load(Ordering::Acquire);
        let tail = self.number(TAIL).load(Ordering::Relaxed);
        let length = (head.wrapping_sub(tail) as usize).min(self.bytes);
        let from = tail as usize % self.bytes;
        let first = length.min(self.bytes - from);
        // SAFETY: both parts are in the mapping, and the kernel does not write to them before the tail has moved.
        let (one, two) = unsafe {
            let data = self.base.add(self.page);
            let one = std::slice::from_raw_parts(data.add(from), first);
            (one, std::slice::from_raw_parts(data, length - first))
        };
        let taken = take(one, two);
        // The kernel may write there from now on.
        self.number(TAIL).store(head, Ordering::Release);
        (length, taken)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, to which no reference is left.
        unsafe { libc::munmap(self.base.cast(), self.page + self.bytes) };
    }
}
