//! Pages that leave a region and come back: the kernel moves them (`UFFDIO_MOVE`), one after the other, each at once for
//! all threads. A write meets the page before it has moved, or waits for it as for any missing page.
//!
//! A page that comes back for a read is copied instead, protected against writing. The kernel lifts that by itself at the
//! first write (`UFFD_FEATURE_WP_ASYNC`), and its tables say of which pages it has (`PAGEMAP_SCAN`).
//!
//! The memory aside is registered for write protection alone, and no page of it is ever protected. So the kernel moves
//! pages there, and serves its faults itself.

use core::slice::{from_raw_parts, from_raw_parts_mut};
use core::sync::atomic::Ordering;

use super::{Backing, UserMmu};
use crate::sys::aside::Aside;
use crate::sys::descriptor::Descriptor;
use crate::sys::linux::Linux;
use crate::sys::pagemap::Changes;
use crate::sys::proc_file::read_at;
use crate::sys::uffd::{MOVES, REGISTER_WP, Stopped, Wake};
use crate::sys::{Huge, Sys, frames, pagemap, raw};
use crate::{Errno, PAGE, Span};

/// Where pages of a region are while they are in no memory.
pub trait SwapStore: Send + Sync {
    /// Keeps these bytes, whole pages, at `offset`; or gives any error number, and the pages stay in memory.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32>;
    /// Reads into all of `buffer` what was last kept there. An error number is a SIGBUS for threads that need the page.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32>;
    /// The bytes there are not needed any more.
    fn forget(&self, _offset: u64, _bytes: u64) {}
}

impl SwapStore for () {
    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }
    fn read(&self, _offset: u64, _buffer: &mut [u8]) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }
}

/// By what it is known which pages were written to.
pub(super) struct Noted {
    changes: Changes,
    /// The memory of this process. A page that is missing is an error there, and no wait.
    memory: Descriptor,
}

impl<B: Backing + SwapStore> UserMmu<B> {
    /// Has the kernel note the first write to each page that comes back for a read. Before faults are delivered, by
    /// descriptors that were enabled for it (`UFFD_FEATURE_WP_ASYNC`). Where a file of /proc cannot be opened, all pages
    /// count as written to.
    pub fn note_writes(&mut self) {
        let memory = raw::open(c"/proc/thread-self/mem").map(Descriptor::new);
        self.noted = Changes::open().ok().zip(memory.ok()).map(|(changes, memory)| Noted { changes, memory });
        self.watches_writes.store(self.noted.is_some(), Ordering::Release);
    }
}

fn bytes_of(page: usize) -> &'static [u8] {
    // SAFETY: a page of this module's memory, which no other thread uses; the bytes are not kept.
    unsafe { from_raw_parts(page as *const u8, PAGE) }
}

impl<B: Backing + SwapStore> Aside for UserMmu<B> {
    fn reserve_aside(&self, bytes: usize, copies: usize) -> Result<usize, Errno> {
        let bytes = bytes + copies;
        let uffd = self.uffds().next().ok_or(Errno::EOPNOTSUPP)?;
        let at = frames::reserve(bytes).ok_or(Errno::ENOMEM)?;
        let span = Span::new(at, bytes);
        let prepare = || {
            if pagemap::first(span, pagemap::PRESENT, 0).ok_or(Errno::ENOSYS)?.bytes() > 0 {
                return Err(Errno::EBUSY);
            }
            Linux.huge(span, Huge::Refused);
            // SAFETY: memory of this value's own, in which nothing is ever protected.
            match unsafe { uffd.register(span, REGISTER_WP) }? & MOVES {
                0 => Err(Errno::EOPNOTSUPP),
                _ => Ok(at),
            }
        };
        prepare().inspect_err(|_| frames::release(span))
    }

    fn accept_moves(&self, to: Span) {
        if let Some(uffd) = self.uffds().next() {
            // SAFETY: memory of this value's own, in which nothing is ever protected.
            let _ = unsafe { uffd.register(to, REGISTER_WP) };
        }
    }

    fn take_out(&self, from: Span, to: usize) -> usize {
        let Some(uffd) = self.uffds().next() else { return 0 };
        // SAFETY: private anonymous memory of the region's, and memory of this value's own, registered here.
        match unsafe { uffd.move_pages(from.start, Span::new(to, from.bytes()), Wake::Later) } {
            Ok(()) => from.bytes(),
            Err(stopped) => stopped.done,
        }
    }

    fn put_back(&self, from: usize, to: Span) -> Result<(), Stopped> {
        let Some(uffd) = self.uffd(to.start) else { return Err(Stopped { done: 0, error: Errno::ENOENT }) };
        // SAFETY: memory of this value's own; the target is registered.
        unsafe { uffd.move_pages(from, to, Wake::Later) }
    }

    fn notes_writes(&self) -> bool {
        self.noted.is_some()
    }

    fn put_copy(&self, from: usize, to: Span) -> Result<(), Stopped> {
        let Some(uffd) = self.uffd(to.start) else { return Err(Stopped { done: 0, error: Errno::ENOENT }) };
        // SAFETY: memory of this value's own, which no other thread uses; the target is registered for both.
        unsafe { uffd.copy_protected(from, to) }
    }

    fn first_unwritten(&self, span: Span) -> Option<Span> {
        self.noted.as_ref()?.changes.first_unwritten(span)
    }

    fn peek(&self, from: Span, to: usize) -> bool {
        let Some(noted) = self.noted.as_ref().filter(|noted| noted.memory.is_open()) else { return false };
        // SAFETY: memory of this value's own, which no other thread uses.
        let copy = unsafe { from_raw_parts_mut(to as *mut u8, from.bytes()) };
        read_at(noted.memory.number(), copy, from.start) == from.bytes()
    }

    fn is_as_copy(&self, page: usize, copy: usize) -> bool {
        bytes_of(page) == bytes_of(copy)
    }

    fn digest(&self, page: usize) -> Option<u32> {
        // SAFETY: a page aside, which no other thread uses.
        let words = unsafe { from_raw_parts(page as *const u64, PAGE / size_of::<u64>()) };
        if words.iter().all(|word| *word == 0) {
            return None;
        }
        Some(twox_hash::XxHash3_64::oneshot(bytes_of(page)) as u32)
    }

    fn write_out(&self, from: Span, offset: u64) -> Result<(), Errno> {
        // SAFETY: pages aside, which no other thread uses.
        let bytes = unsafe { from_raw_parts(from.start as *const u8, from.bytes()) };
        self.backing.write(offset, bytes).map_err(Errno::new)
    }

    fn read_in(&self, offset: u64, to: Span) -> Result<(), Errno> {
        // SAFETY: memory aside, which no other thread uses.
        let bytes = unsafe { from_raw_parts_mut(to.start as *mut u8, to.bytes()) };
        SwapStore::read(&self.backing, offset, bytes).map_err(Errno::new)
    }

    fn forget_out(&self, offset: u64, bytes: u64) {
        self.backing.forget(offset, bytes);
    }
}
