//! Frames: huge pages of zeroes in memory of this process's own, made before they are moved to where they are needed.

use super::raw::{self, Access, syscall};
use super::{Huge, Sys, linux::Linux, pagemap, tables};
use crate::{SLOT, SLOT_PAGES, Span};

/// As `MADV_DONTNEED`, also where the program has locked its memory.
pub(super) const DONTNEED_LOCKED: usize = 24;

/// Memory for buffers and frames, which no forked child has; at a multiple of 2 MiB.
pub fn reserve(bytes: usize) -> Option<usize> {
    reserve_closed(bytes).filter(|at| open(*at, bytes))
}

/// The same for memory to which no page moves: none of it comes before it is used, also where the program has all future
/// memory locked.
pub fn reserve_unlocked(bytes: usize) -> Option<usize> {
    let at = reserve_closed(bytes)?;
    // Before it may be accessed: it would come then.
    unlock(Span::new(at, bytes));
    open(at, bytes).then_some(at)
}

/// The same with huge pages advised all over, for [`fill`].
pub fn reserve_huge(bytes: usize) -> Option<usize> {
    let at = reserve_closed(bytes)?;
    // Before: where the program has all future memory locked it comes as soon as it may be accessed.
    Linux.huge(Span::new(at, bytes), Huge::Advised);
    open(at, bytes).then_some(at)
}

/// Gives that back.
pub fn release(span: Span) {
    // SAFETY: memory of this module, which is not used any more.
    unsafe { raw::unmap(span.start, span.bytes()) };
}

/// Has the kernel not bring a span by itself.
pub(super) fn unlock(span: Span) {
    // SAFETY: memory of this module.
    let _ = unsafe { syscall(libc::SYS_munlock, [span.start, span.bytes(), 0, 0, 0, 0]) };
}

/// Lets it be accessed; if that cannot be, it is given back.
fn open(at: usize, bytes: usize) -> bool {
    let opened = allow(at, bytes);
    if !opened {
        release(Span::new(at, bytes));
    }
    opened
}

/// Lets a part of it be accessed; whether it worked.
pub(super) fn allow(at: usize, bytes: usize) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: memory of this module.
    unsafe { syscall(libc::SYS_mprotect, [at, bytes, prot as usize, 0, 0, 0]) }.is_ok()
}

/// The same without access.
pub(super) fn reserve_closed(bytes: usize) -> Option<usize> {
    let whole = raw::map_private(bytes.checked_add(SLOT)?, Access::Reserve)?;
    let at = whole.next_multiple_of(SLOT);
    for (start, end) in [(whole, at), (at + bytes, whole + bytes + SLOT)] {
        if start < end {
            // SAFETY: the ends of the mapping just made.
            unsafe { raw::unmap(start, end - start) };
        }
    }
    // A page that a fork shares cannot be moved.
    let args = [at, bytes, libc::MADV_DONTFORK as usize, 0, 0, 0];
    // SAFETY: the mapping just made.
    let kept_from_children = unsafe { syscall(libc::SYS_madvise, args) };
    if kept_from_children.is_err() {
        // SAFETY: as above; no other code knows of it.
        unsafe { raw::unmap(at, bytes) };
    }
    kept_from_children.ok().map(|_| at)
}

/// Has a huge page come to a frame without pages, where one is advised; whether one did.
pub fn fill(frame: usize) -> bool {
    // The second time, if a table was in the way, left behind by a huge page that had to be split.
    (0..2).any(|_| {
        // No atomic operation: an emulated processor reads first, which brings the kernel's huge page of zeroes, and
        // Linux 6.12 splits that at the write.
        // SAFETY: memory of this module that only the caller knows.
        unsafe { (frame as *mut u8).write_volatile(0) };
        let whole = is_whole(frame);
        if !whole {
            drop_pages(frame);
            drop_table(frame);
        }
        whole
    })
}

/// Takes the page table of a frame without pages away. A kernel that keeps it when pages are dropped moves it with the
/// frame: to another address, at which it ends.
fn drop_table(frame: usize) {
    if tables::are_freed() {
        return;
    }
    let Some(away) = reserve_closed(SLOT) else { return };
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: memory of this module, of which nothing is there; its addresses stay mapped. The target was made above.
    let _ = unsafe { syscall(libc::SYS_mremap, [frame, SLOT, SLOT, how as usize, away, 0]) };
    release(Span::new(away, SLOT));
}

/// Whether all of a frame is there.
pub fn is_whole(frame: usize) -> bool {
    let span = Span::new(frame, SLOT);
    pagemap::first(span, pagemap::PRESENT, 0)
        .map_or_else(|| Linux.present_pages(span) == SLOT_PAGES, |run| run == span)
}

/// Gives its memory back to the kernel.
pub fn drop_pages(frame: usize) {
    discard(Span::new(frame, SLOT));
}

/// The same for a span; whether it worked.
pub(super) fn discard(span: Span) -> bool {
    let args = [span.start, span.bytes(), DONTNEED_LOCKED, 0, 0, 0];
    // SAFETY: memory of this module, which is not needed.
    unsafe { syscall(libc::SYS_madvise, args) }.is_ok()
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    /// A page table that is left behind keeps no huge page out, whatever the kernel does with it.
    #[test]
    fn a_table_in_the_way_goes() {
        let frame = reserve_huge(SLOT).unwrap();
        if !fill(frame) {
            return faultless_testkit::skip("no huge page is to be had");
        }
        drop_pages(frame);
        for _ in 0..3 {
            Linux.huge(Span::new(frame, SLOT), Huge::Refused);
            Linux.touch(frame);
            assert!(!is_whole(frame));
            Linux.huge(Span::new(frame, SLOT), Huge::Advised);
            assert!(fill(frame));
            drop_pages(frame);
        }
        release(Span::new(frame, SLOT));
    }
}
