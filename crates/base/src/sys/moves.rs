//! Moving pages to where the program is about to need them, at its own addresses (`UFFDIO_MOVE`).
//!
//! The kernel moves pages only into a range that is registered with a userfaultfd. Here it is registered for write
//! protection, which nobody asks for, and only while pages move. So no fault is ever delivered and nobody ever waits for
//! an answer of ours: faults in between are the kernel's as always, and of two who bring the same page the first one
//! wins. For the same reason the humblest kind of descriptor does, which everybody may have.
//!
//! The descriptor lies in the background thread's own table and ends with it.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::thread;
use super::uffd::{REGISTER_WP, Uffd, Wake, Way, feature};
use crate::units::{SLOT, Span};

/// The descriptor's number and one more; 0: not opened yet.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// In its place: none is to be had.
const NONE: usize = usize::MAX;

/// A new background thread: what the last one had open ended with it.
pub fn new_thread() {
    KEPT.store(0, Ordering::Relaxed);
}

/// Whether this process may have what it takes; the descriptor.
pub fn open() -> Result<Uffd, i32> {
    let uffd = Uffd::open(Way::UserModeOnly)?;
    uffd.enable(feature::MOVE)?;
    Ok(uffd)
}

fn number() -> Option<usize> {
    let kept = match KEPT.load(Ordering::Relaxed) {
        0 if thread::has_own_files() => open().map_or(NONE, |uffd| uffd.keep() + 1),
        0 => NONE,
        kept => kept,
    };
    KEPT.store(kept, Ordering::Relaxed);
    (kept != NONE).then(|| kept - 1)
}

/// As [`super::Sys::move_in`].
pub fn move_in(from: Span, to: usize) -> Option<usize> {
    let uffd = Uffd::kept(number()?);
    Some(move_with(&uffd, from, to))
}

fn move_with(uffd: &Uffd, from: Span, to: usize) -> usize {
    let target = Span::new(to, from.bytes());
    // SAFETY: nothing is ever write-protected, so no access waits.
    if unsafe { uffd.register(target, REGISTER_WP) }.is_err() {
        return 0;
    }
    let (mut done, mut piece) = (0, from.bytes());
    while done < from.bytes() {
        let part = Span::new(to + done, piece.min(from.bytes() - done));
        // SAFETY: `from` is the engine's own, and only pages that are missing are brought.
        match unsafe { uffd.move_pages(from.start + done, part, Wake::Later) } {
            Ok(()) => done += part.bytes(),
            // Either side may be several areas to the kernel, of which each needs a call of its own.
            Err(stopped) if stopped.error == libc::EINVAL && stopped.done == 0 && piece > SLOT => piece = SLOT,
            Err(stopped) => {
                done += stopped.done;
                break;
            }
        }
    }
    let _ = uffd.unregister(target);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux};
    use crate::sys::{Huge, Sys};
    use crate::units::PAGE;

    fn memory(slots: usize) -> Span {
        let span = linux::reserve(slots * SLOT, SLOT).unwrap();
        assert!(Linux.open_first(span));
        Linux.huge(span, Huge::Advised);
        span
    }

    fn byte(at: usize) -> *mut u8 {
        at as *mut u8
    }

    #[test]
    fn pages_move_up_to_the_first_that_is_there() {
        let Ok(uffd) = open() else { return std::eprintln!("skipped: no userfaultfd") };
        let (from, to) = (memory(4), memory(4));
        for slot in 0..4 {
            // SAFETY: memory of the test's own.
            unsafe { byte(from.start + slot * SLOT + 7).write(slot as u8 + 1) };
        }
        // SAFETY: the same.
        unsafe { byte(to.start + 2 * SLOT + 7).write(9) };
        assert_eq!(move_with(&uffd, from, to.start), 2 * SLOT);
        // SAFETY: the same.
        let bytes = |span: Span| [0, 1, 2, 3].map(|slot| unsafe { byte(span.start + slot * SLOT + 7).read() });
        assert_eq!(bytes(to), [1, 2, 9, 0]);
        assert_eq!(bytes(from), [0, 0, 3, 4]);
    }

    #[test]
    fn several_areas_are_moved_one_by_one_and_closed_ones_not_at_all() {
        let Ok(uffd) = open() else { return std::eprintln!("skipped: no userfaultfd") };
        let (from, to) = (memory(4), memory(4));
        (from.start..from.end).step_by(SLOT).for_each(|at| Linux.touch(at));
        Linux.huge(Span::new(to.start + SLOT, SLOT), Huge::Refused);
        Linux.close(Span::new(to.start + 3 * SLOT, SLOT));
        assert_eq!(move_with(&uffd, from, to.start), 3 * SLOT);
        assert!(Linux.present(to.start + 2 * SLOT) && !Linux.present(to.start + 3 * SLOT));
        assert!(Linux.present(from.start + 3 * SLOT) && !Linux.present(from.start + 2 * SLOT));
    }

    /// The range is registered no longer: a system call on what is missing works.
    #[test]
    fn what_is_missing_is_the_kernels_business() {
        let Ok(uffd) = open() else { return std::eprintln!("skipped: no userfaultfd") };
        let (from, to) = (memory(1), memory(2));
        Linux.touch(from.start);
        assert_eq!(move_with(&uffd, from, to.start), SLOT);
        assert_eq!(Linux.peek_nonzero_pages(Span::new(to.start + SLOT, PAGE), 1), 0);
        let other = open().unwrap();
        // SAFETY: nothing is protected.
        assert!(unsafe { other.register(to, REGISTER_WP) }.is_ok(), "still registered with the first");
    }
}
