//! Memory of a file whose missing pages raise faults, and of which the kernel notes what is written to.
//!
//! A range is registered with one userfaultfd for both: missing pages, and protection against writing. The kernel lifts
//! that itself (`UFFD_FEATURE_WP_ASYNC`): a write takes no message and no signal. Or it waits for who reads its message,
//! where snapshots need the page first ([`OnWrite`]). Which pages were written to, their tables say ([`Changes`]).

use super::pagemap::{self, Changes};
use super::uffd::{REGISTER_MISSING, REGISTER_WP, Stopped, Uffd, Wake, feature};
use super::{frames, policy};
use crate::{Errno, PAGE, SLOT, Span};

/// Whether pages that come are protected, so that a write to them is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// They are.
    Noted,
    /// They are not.
    Unnoted,
}

/// What becomes of a write to a protected page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWrite {
    /// The kernel notes it, and lets it through.
    Notes,
    /// It waits, and a message says so.
    Tells,
}

/// The kernel's side of it, for one file.
#[derive(Debug)]
pub struct Watch {
    uffd: Uffd,
    changes: Changes,
    on_write: OnWrite,
}

impl Watch {
    /// What a descriptor has to be enabled with.
    pub const fn features(on_write: OnWrite) -> u64 {
        let noted = match on_write {
            OnWrite::Notes => feature::WP_ASYNC,
            OnWrite::Tells => 0,
        };
        noted | feature::WP | feature::MOVE | feature::POISON
    }

    /// By a descriptor that was enabled with [`Self::features`].
    ///
    /// # Errors
    /// The kernel's, which does not open what tells of changes.
    pub fn new(uffd: Uffd, on_write: OnWrite) -> Result<Self, Errno> {
        Ok(Self { uffd, changes: Changes::open()?, on_write })
    }

    /// Whether a write to a protected page waits.
    pub fn tells_writes(&self) -> bool {
        self.on_write == OnWrite::Tells
    }

    /// The descriptor at which faults arrive.
    pub fn uffd(&self) -> &Uffd {
        &self.uffd
    }

    /// The numbers of its descriptors.
    pub fn numbers(&self) -> [i32; 2] {
        [self.uffd.number(), self.changes.number()]
    }

    /// Has faults of a span delivered, and writes noted.
    pub(super) fn begin(&self, span: Span) -> bool {
        // SAFETY: memory of a file, whose users reckon with it.
        unsafe { self.uffd.register(span, REGISTER_MISSING | REGISTER_WP) }.is_ok()
    }

    /// Has pages move to a span, and nothing else.
    pub(super) fn begin_moves(&self, span: Span) -> bool {
        // SAFETY: nothing there is ever protected.
        unsafe { self.uffd.register(span, REGISTER_WP) }.is_ok()
    }

    pub(super) fn install(&self, from: usize, to: Span, writes: Writes) -> Result<(), Stopped> {
        // SAFETY: memory that is the caller's alone, and a span that was registered.
        unsafe {
            match writes {
                Writes::Noted => self.uffd.copy_protected(from, to),
                Writes::Unnoted => self.uffd.copy(from, to, Wake::Later),
            }
        }
    }

    pub(super) fn install_zeroes(&self, to: Span) -> Result<(), Stopped> {
        // SAFETY: the span was registered.
        unsafe { self.uffd.zero_pages(to, Wake::Later) }
    }

    pub(super) fn move_huge(&self, frame: usize, to: usize) -> bool {
        if !policy::any_page_will_do(to) {
            return false;
        }
        // SAFETY: private anonymous memory of the caller's; the target was registered.
        match unsafe { self.uffd.move_pages(frame, Span::new(to, SLOT), Wake::Later) } {
            Ok(()) => true,
            Err(stopped) => {
                if stopped.done > 0 {
                    // No thread was to see a part of it.
                    frames::drop_pages(to);
                    frames::drop_pages(frame);
                }
                false
            }
        }
    }

    pub(super) fn move_pages(&self, from: Span, to: usize) -> Result<(), Stopped> {
        // SAFETY: the caller's memory on both sides; the target was registered.
        unsafe { self.uffd.move_pages(from.start, Span::new(to, from.bytes()), Wake::Later) }
    }

    pub(super) fn take_changes(&self, span: Span, f: &mut dyn FnMut(Span)) -> bool {
        // SAFETY: the span was registered; a write that waits is let through by who is told of it.
        let protect = |span| unsafe { self.uffd.write_protect(span, true) }.is_ok();
        match self.on_write {
            OnWrite::Notes => self.changes.take(span, None, f),
            OnWrite::Tells => self.changes.take(span, Some(&protect), f),
        }
    }

    pub(super) fn note_again(&self, pages: Span) -> bool {
        // SAFETY: the span was registered, and a write to it waits for nothing.
        unsafe { self.uffd.write_protect(pages, false) }.is_ok()
    }

    pub(super) fn poison(&self, page: usize) -> Result<(), Errno> {
        self.uffd.poison(Span::new(page, PAGE), Wake::Later).map_err(|stopped| stopped.error)
    }

    /// Lets threads that wait for pages of a span look again.
    pub fn wake(&self, span: Span) {
        let _ = self.uffd.wake(span);
    }
}

/// Whether a page is there, or was swapped out; true where the kernel does not say.
pub(super) fn is_there(page: usize) -> bool {
    pagemap::first(Span::new(page, PAGE), pagemap::PRESENT | pagemap::SWAPPED, 0).is_none_or(|run| !run.is_empty())
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux};
    use crate::sys::uffd::Way;
    use crate::sys::{Huge, Sys};
    use std::vec::Vec;

    fn memory(slots: usize) -> Span {
        let span = linux::reserve(slots * SLOT, SLOT).unwrap();
        assert!(Linux.open_first(span));
        Linux.huge(span, Huge::Refused);
        span
    }

    fn watch() -> Option<Watch> {
        let uffd = Uffd::open(Way::UserModeOnly).ok()?;
        uffd.enable(Watch::features(OnWrite::Notes) | feature::SIGBUS).ok()?;
        Watch::new(uffd, OnWrite::Notes).ok()
    }

    fn changed(watch: &Watch, span: Span) -> Vec<usize> {
        let mut pages = Vec::new();
        let mut note =
            |run: Span| pages.extend((run.start..run.end).step_by(PAGE).map(|at| (at - span.start) / PAGE));
        assert!(watch.take_changes(span, &mut note));
        pages
    }

    /// Writes are noted from the first moment on, each once, whatever pages they are.
    #[test]
    fn pages_that_were_written_to_are_told_of_once() {
        let Some(watch) = watch() else { return faultless_testkit::skip("no userfaultfd that notes writes") };
        let (span, from, aside) = (memory(1), memory(1), memory(1));
        assert!(watch.begin(span) && watch.begin_moves(aside));
        // SAFETY: memory of this test's own, here and below.
        let write = |at: usize, byte: u8| unsafe { (at as *mut u8).write_volatile(byte) };
        // SAFETY: the same.
        let read = |at: usize| unsafe { (at as *const u8).read_volatile() };
        (0..20).for_each(|page| write(from.start + page * PAGE, page as u8 + 1));
        let page = |n: usize| Span::new(span.start + n * PAGE, PAGE);
        assert_eq!(watch.install(from.start, Span::new(span.start, 16 * PAGE), Writes::Noted), Ok(()));
        assert_eq!(watch.install(from.start, page(3), Writes::Noted).unwrap_err().error, Errno::EEXIST);
        assert_eq!(changed(&watch, span), []);
        assert_eq!(read(page(5).start), 6);
        write(page(5).start, 77);
        write(page(9).start + 9, 78);
        assert_eq!(changed(&watch, span), [5, 9]);
        assert_eq!(changed(&watch, span), []);
        write(page(5).start, 79);
        assert_eq!(changed(&watch, span), [5]);
        // Pages that move here were written to, as far as is known; zeroes as well.
        let from_page = Span::new(from.start + 17 * PAGE, PAGE);
        assert_eq!(watch.move_pages(from_page, page(17).start), Ok(()));
        assert_eq!(watch.install_zeroes(page(18)), Ok(()));
        assert_eq!(changed(&watch, span), [17, 18]);
        write(page(18).start, 1);
        assert_eq!(changed(&watch, span), [18]);
        // They move away with their bytes, and are missing.
        assert_eq!(watch.move_pages(Span::new(span.start + 4 * PAGE, 4 * PAGE), aside.start), Ok(()));
        assert_eq!([0, 1, 2].map(|n| read(aside.start + n * PAGE)), [5, 79, 7]);
        assert!(!is_there(page(5).start) && is_there(page(3).start) || pagemap::number().is_none());
        assert_eq!(watch.install(from.start, page(5), Writes::Noted), Ok(()));
        assert_eq!(changed(&watch, span), []);
    }

    #[test]
    fn a_huge_page_is_noted_as_a_whole_and_then_by_its_pages() {
        let Some(watch) = watch() else { return faultless_testkit::skip("no userfaultfd that notes writes") };
        let (span, from) = (memory(1), frames::reserve_huge(SLOT).unwrap());
        pagemap::open();
        assert!(watch.begin(span));
        if !frames::fill(from) || !watch.move_huge(from, span.start) {
            return faultless_testkit::skip("no huge page is to be had");
        }
        assert_eq!(changed(&watch, span).len(), crate::SLOT_PAGES);
        // SAFETY: memory of this test's own.
        unsafe { ((span.start + 7 * PAGE) as *mut u8).write_volatile(7) };
        assert_eq!(changed(&watch, span), [7]);
        // SAFETY: the same.
        assert_eq!(unsafe { ((span.start + 7 * PAGE) as *mut u8).read_volatile() }, 7);
    }
}
