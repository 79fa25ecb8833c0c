//! Frames: huge pages of zeroes in memory of this process's own, made before they are moved to where they are needed.

use super::raw::{self, Access, syscall};
use super::{Huge, Sys, linux::Linux, pagemap};
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

/// Has a huge page come where one is advised; whether one did.
pub fn fill(frame: usize) -> bool {
    // The second time, if a table was in the way, left behind by a huge page that had to be split; dropping takes it
    // away.
    (0..2).any(|_| {
        Linux.touch(frame);
        let whole = is_whole(frame);
        if !whole {
            drop_pages(frame);
        }
        whole
    })
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
