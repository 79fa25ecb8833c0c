//! The source of missing pages of zeroes, and a page from which nothing can be copied.

use crate::sys::linux::Linux;
use crate::sys::raw::{self, Access, syscall};
use crate::sys::{Huge, Sys};
use crate::{PAGE, SLOT, SLOT_PAGES, Span};

/// Bytes of it.
pub(super) const BYTES: usize = SLOT + PAGE;
/// Where in it is a page that cannot be read.
pub(super) const NOTHING: usize = SLOT;

/// 2 MiB of which every page is the kernel's page of zeroes, and a page without access.
pub(super) fn map() -> Option<usize> {
    let at = raw::map_private(BYTES, Access::Write)?;
    let span = Span::new(at, SLOT);
    Linux.huge(span, Huge::Refused);
    for page in 0..SLOT_PAGES {
        // SAFETY: fresh memory. It is read so that it is present, as a source must be.
        unsafe { ((at + page * PAGE) as *const u8).read_volatile() };
    }
    // SAFETY: as above; it is never to be written.
    let protect =
        |at, bytes, prot: i32| unsafe { syscall(libc::SYS_mprotect, [at, bytes, prot as usize, 0, 0, 0]) };
    let sealed = protect(at, SLOT, libc::PROT_READ).and(protect(at + SLOT, PAGE, libc::PROT_NONE));
    if sealed.is_err() {
        // SAFETY: as above.
        unsafe { raw::unmap(at, BYTES) };
    }
    sealed.ok().map(|_| at)
}
