//! Moving pages by page tables, all of them or none.
//!
//! One call of the kernel moves one area, or nothing. Since Linux 6.17 a call may move several, and stops half way at
//! one that is sealed, or at the limit of areas. So here each call is for one area. When a later one is refused, the
//! areas that have moved go back.

use super::linux::{map_at, mprotect};
use super::looks::copy_by_kernel;
use super::raw::{self, syscall};
use crate::Errno;
use crate::units::{PAGE, SLOT, Span};

/// An error, after `done` bytes.
pub struct Stopped {
    pub done: usize,
    pub error: Errno,
}

/// As [`super::Sys::migrate`].
pub fn migrate(from: Span, to: usize) -> bool {
    let Err(Stopped { done, .. }) = move_all(from, to) else { return true };
    // A move that fails may have unmapped its target.
    let rest = Span { start: to + done, end: to + from.bytes() };
    map_at(rest, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED_NOREPLACE);
    if let Err(stopped) = move_all(Span::new(to, done), from.start) {
        // At the limit of areas nothing moves any more, but both places are there still.
        copy_back(Span { start: to + stopped.done, end: to + done }, from.start + stopped.done);
    }
    false
}

/// Copies the moved part back. The kernel makes the copy, so that rights that the program has changed are an error;
/// then the rights are opened.
fn copy_back(there: Span, to: usize) {
    let mut done = 0;
    let mut opened = false;
    while done < there.bytes() {
        match copy_by_kernel(Span { start: there.start + done, end: there.end }, to + done).unwrap_or(0) {
            0 if opened => panic!("a block that was moved in part cannot be put together again"),
            0 => {
                let open = libc::PROT_READ | libc::PROT_WRITE;
                mprotect(Span { start: there.start + done, end: there.end }, open);
                mprotect(Span { start: to + done, end: to + there.bytes() }, open);
                opened = true;
            }
            n => done += n,
        }
    }
}

/// Moves pages from where they leave an empty mapping behind.
pub fn move_all(from: Span, to: usize) -> Result<(), Stopped> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) as usize;
    let (mut done, mut bytes) = (0, from.bytes());
    while done < from.bytes() {
        let at = from.start + done;
        // A call takes no more than one of the kernel's areas, and where they end is not known here.
        while bytes > PAGE && !is_in_one_area(at, bytes) {
            bytes = (bytes / PAGE).div_ceil(2) * PAGE;
        }
        // SAFETY: both are the engine's own, and no thread accesses them meanwhile.
        let moved = unsafe { syscall(libc::SYS_mremap, [at, bytes, bytes, flags, to + done, 0]) };
        moved.map_err(|error| Stopped { done, error })?;
        done += bytes;
        bytes = from.bytes() - done;
    }
    Ok(())
}

/// Whether one of the kernel's areas contains all of a part of a reservation. A move as a trial would not do: before
/// Linux 6.17 a refused move unmaps its target all the same. Then another thread may map something there before the
/// next try.
pub fn is_in_one_area(at: usize, bytes: usize) -> bool {
    // SAFETY: it grows by a page where nothing is, or not at all.
    let grown = unsafe { syscall(libc::SYS_mremap, [at, bytes, bytes + PAGE, 0, 0, 0]) };
    if grown.is_ok() {
        // SAFETY: that page.
        unsafe { raw::unmap(at + bytes, PAGE) };
    }
    grown != Err(Errno::EFAULT)
}

/// As [`super::Sys::unclaimed`]: the part that was never opened is one area.
pub fn last_area(rest: Span) -> usize {
    let is_one = |start: usize| is_in_one_area(start, rest.end - start);
    if rest.is_empty() || is_one(rest.start) {
        return rest.start;
    }
    let (mut several, mut one) = (rest.start, rest.end);
    while one - several > SLOT {
        let middle = several + ((one - several) / SLOT).div_ceil(2) * SLOT;
        if is_one(middle) { one = middle } else { several = middle }
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux, memory};
    use crate::sys::{Huge, Sys};

    /// Blocks of several areas, each slot with its number in it.
    fn block() -> Span {
        let span = memory(6);
        for i in 0..6 {
            let slot = Span::new(span.start + i * SLOT, SLOT);
            Linux.huge(slot, if i % 2 == 0 { Huge::Advised } else { Huge::Refused });
            // SAFETY: memory of the test's own.
            unsafe { (slot.start as *mut usize).write(i + 1) };
        }
        span
    }

    fn numbers(span: Span) -> std::vec::Vec<usize> {
        // SAFETY: memory of the test's own.
        (span.start..span.end).step_by(SLOT).map(|at| unsafe { (at as *const usize).read() }).collect()
    }

    #[test]
    fn what_somebody_maps_into_a_reservation_is_found() {
        let rest = linux::reserve(64 * SLOT, SLOT).unwrap();
        assert_eq!(last_area(rest), rest.start);
        for slot in [0, 7, 20, 62, 63] {
            let other = Span::new(rest.start + slot * SLOT + 5 * PAGE, PAGE);
            assert!(map_at(other, libc::PROT_READ, libc::MAP_FIXED));
            assert_eq!(last_area(rest), rest.start + (slot + 1) * SLOT, "at slot {slot}");
        }
    }

    #[test]
    fn several_areas_move() {
        let (from, to) = (block(), memory(6));
        assert!(migrate(from, to.start));
        assert_eq!((numbers(to), numbers(from)), (std::vec![1, 2, 3, 4, 5, 6], std::vec![0; 6]));
    }

    #[test]
    fn what_is_sealed_in_part_stays_as_a_whole() {
        let (from, to) = (block(), memory(6));
        // SAFETY: memory of the test's own.
        if unsafe { syscall(libc::SYS_mseal, [from.start + 3 * SLOT, SLOT, 0, 0, 0, 0]) }.is_err() {
            return faultless_testkit::skip("nothing can be sealed");
        }
        assert!(!migrate(from, to.start));
        assert_eq!((numbers(from), numbers(to)), (std::vec![1, 2, 3, 4, 5, 6], std::vec![0; 6]));
    }

    #[test]
    fn what_does_not_move_back_is_copied() {
        let (from, to) = (block(), block());
        assert!(mprotect(Span::new(from.start + SLOT, SLOT), libc::PROT_READ));
        copy_back(Span { start: to.start, end: to.start + 3 * SLOT }, from.start);
        assert_eq!(numbers(from), [1, 2, 3, 4, 5, 6]);
        // SAFETY: memory of the test's own.
        unsafe { (to.start as *mut usize).write(7) };
        copy_back(Span::new(to.start, SLOT), from.start);
        assert_eq!(numbers(from), [7, 2, 3, 4, 5, 6]);
    }
}
