//! Huge pages with old bytes: they were this process's own, and wait to be so again.
//!
//! The kernel moves pages only to where a userfaultfd is registered (`UFFDIO_MOVE`). Here it is registered for write
//! protection, and no page is ever protected: so no fault is delivered, and no thread waits.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::uffd::{REGISTER_WP, Uffd, Wake};
use super::{frames, moves, pagemap, raw};
use crate::{SLOT, Span};

/// The descriptor's number and one more; 0: there is none.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Whether the kernel moves pages; before anything else here, and once in a process.
pub fn open() -> bool {
    let uffd = moves::open();
    uffd.map(|uffd| KEPT.store(uffd.keep() + 1, Ordering::Release)).is_ok()
}

fn uffd() -> Option<ManuallyDrop<Uffd>> {
    KEPT.load(Ordering::Acquire).checked_sub(1).map(Uffd::kept)
}

/// Addresses for them, which no forked child has. `None` where the kernel does not move pages.
pub fn reserve(bytes: usize) -> Option<usize> {
    let uffd = uffd()?;
    let span = Span::new(frames::reserve(bytes)?, bytes);
    // SAFETY: nothing is ever write-protected, so no access waits.
    if unsafe { uffd.register(span, REGISTER_WP) }.is_err() {
        // SAFETY: reserved above, and not used yet.
        unsafe { raw::unmap(span.start, span.bytes()) };
        return None;
    }
    Some(span.start)
}

/// Moves the huge page at `slot`, if one is there, to an empty `frame` of a span that [`reserve`] gave. False: it is
/// not in the frame; if the move stopped half way, the page is gone.
pub fn take(slot: usize, frame: usize) -> bool {
    let Some(uffd) = uffd() else { return false };
    // Page by page it would take longer than to have a new one.
    if pagemap::first(Span::new(slot, SLOT), pagemap::HUGE, 0) != Some(Span::new(slot, SLOT)) {
        return false;
    }
    // SAFETY: the caller's own memory, which is not needed at its old place any more; the target is registered.
    let moved = unsafe { uffd.move_pages(slot, Span::new(frame, SLOT), Wake::Later) };
    if moved.is_err_and(|stopped| stopped.done > 0) {
        frames::drop_pages(frame);
    }
    moved.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::sys::linux::Linux;
    use crate::sys::{Huge, Sys};

    #[test]
    fn whole_huge_pages_move_with_their_bytes_and_others_stay() {
        let Some(kept) = open().then(|| reserve(4 * SLOT)).flatten() else {
            return faultless_testkit::skip("no pages are moved here");
        };
        pagemap::open();
        let memory = Span::new(frames::reserve_huge(3 * SLOT).unwrap(), 3 * SLOT);
        let byte = |at: usize| at as *mut u8;
        // SAFETY: memory of this test's own.
        let read = |at: usize| unsafe { byte(at).read_volatile() };
        // SAFETY: the same.
        let write = |at: usize, value: u8| unsafe { byte(at).write_volatile(value) };
        if !frames::fill(memory.start) {
            return faultless_testkit::skip("no huge page is to be had");
        }
        write(memory.start + 5, 7);
        assert!(take(memory.start, kept));
        assert_eq!((read(kept + 5), read(kept + SLOT - 1)), (7, 0));
        assert_eq!(read(memory.start + 5), 0, "nothing is left behind");
        // Small pages, and nothing at all.
        Linux.huge(Span::new(memory.start + SLOT, SLOT), Huge::Refused);
        write(memory.start + SLOT + PAGE, 8);
        assert!(!take(memory.start + SLOT, kept + SLOT) && !take(memory.start + 2 * SLOT, kept + SLOT));
        assert_eq!((read(memory.start + SLOT + PAGE), frames::is_whole(kept + SLOT)), (8, false));
    }
}
