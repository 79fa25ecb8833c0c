//! Frames: huge pages of zeroes in memory of this process's own, made before they are moved to where they are needed.

use super::raw::{self, Access, syscall};
use super::{Huge, Sys, linux::Linux, pagemap};
use crate::{SLOT, SLOT_PAGES, Span};

/// Memory for buffers and frames, which no forked child has; at a multiple of 2 MiB.
pub fn reserve(bytes: usize) -> Option<usize> {
    let whole = raw::map_private(bytes.checked_add(SLOT)?, Access::Write)?;
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
        // SAFETY: as above; nobody knows of it.
        unsafe { raw::unmap(at, bytes) };
    }
    kept_from_children.ok().map(|_| at)
}

/// The same with huge pages advised all over, for [`fill`].
pub fn reserve_huge(bytes: usize) -> Option<usize> {
    let at = reserve(bytes)?;
    Linux.huge(Span::new(at, bytes), Huge::Advised);
    Some(at)
}

/// Has a huge page come where one is advised; whether one did.
pub fn fill(frame: usize) -> bool {
    // The second time, if a table was in the way, left behind by a huge page that had to be split; dropping takes it away.
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
    Linux.discard(Span::new(frame, SLOT));
}
