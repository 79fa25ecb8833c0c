//! Memory of a region as it is at first: without pages and rights, and with the attributes of the region alone.
//!
//! A program may give its memory attributes by calls of its own: locks, guards, keys, policies, names, what a fork does
//! with it. They are the kernel's, and hold for an address until something else is mapped there. So a part that is
//! unmapped is mapped afresh.

use core::sync::atomic::Ordering;

use super::{Backing, SwapStore, UserMmu};
use crate::sys::linux::{Linux, replace_by_reservation};
use crate::sys::mmu::Mmu;
use crate::sys::raw::syscall;
use crate::sys::uffd::{REGISTER_MISSING, REGISTER_WP};
use crate::sys::{Huge, Sys};
use crate::{Errno, Span};

impl<B: Backing + SwapStore> UserMmu<B> {
    /// Leaves the reservation out of forked children: no thread would fill their missing pages from the backing.
    pub fn keep_from_children(&mut self) -> Result<(), Errno> {
        self.is_kept_from_children = true;
        keep_from_children(self.span)
    }

    /// Says whether the kernel is to bring huge pages, where missing pages raise no faults.
    pub fn prefer_huge_by_default(&mut self, huge: bool) {
        if huge && !self.raises_faults() {
            self.huge = Huge::Advised;
        }
        self.prefer_huge(self.span, huge);
    }

    pub(super) fn register(&self, span: Span) -> Result<(), Errno> {
        let writes = if self.watches_writes.load(Ordering::Acquire) { REGISTER_WP } else { 0 };
        for (uffd, part) in self.parts(span) {
            // SAFETY: a part of the reservation.
            unsafe { uffd.register(part, REGISTER_MISSING | writes) }?;
        }
        Ok(())
    }

    /// Gives a part that was just reserved the attributes of the region.
    pub(super) fn advise_anew(&self, span: Span) -> Result<(), Errno> {
        Linux.huge(span, self.huge);
        if self.is_kept_from_children { keep_from_children(span) } else { Ok(()) }
    }

    /// As [`Mmu::renew`]. A mapping that the kernel refuses has changed nothing.
    pub(super) fn renew_pages(&self, span: Span) -> Result<(), Errno> {
        if self.is_shut() {
            // A part of it may be another's by now.
            return Err(Errno::EIO);
        }
        replace_by_reservation(span)?;
        let renewed = self.advise_anew(span).and_then(|()| self.register(span));
        if renewed.is_err() && self.is_kept_from_children {
            // What is not delivered reads as zero, and has other bytes.
            self.shut();
        }
        renewed
    }
}

fn keep_from_children(span: Span) -> Result<(), Errno> {
    let args = [span.start, span.bytes(), libc::MADV_DONTFORK as usize, 0, 0, 0];
    // SAFETY: a part of the reservation.
    unsafe { syscall(libc::SYS_madvise, args) }.map(drop)
}
