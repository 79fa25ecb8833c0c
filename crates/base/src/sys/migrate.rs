//! Moving pages by page tables, all of them or none.
//!
//! One call of the kernel moves one area, or nothing. Since Linux 6.17 a call may move several, and stops half way at
//! one that is sealed, or at the limit of areas. So here each call is for one area. When a later one is refused, the
//! areas that have moved go back.
//!
//! A call with `MREMAP_FIXED` unmaps its target first, and may be refused after that. Where a limit forbids a mapping
//! there, too, a hole is left, in which the kernel puts what others map.

use super::isolate::is_mapped;
use super::linux::{map_at, mprotect, reserve};
use super::looks::copy_by_kernel;
use super::raw::{self, Access, syscall};
use crate::Errno;
use crate::units::{PAGE, SLOT, Span};

/// An error, after `done` bytes.
pub struct Stopped {
    pub done: usize,
    pub error: Errno,
    /// Where nothing may be mapped now; most are empty.
    pub holes: [Span; 2],
}

impl Stopped {
    /// One that leaves no holes.
    pub fn new(done: usize, error: Errno) -> Self {
        Self { done, error, holes: [NONE; 2] }
    }
}

/// As [`super::Sys::migrate`].
pub fn migrate(from: Span, to: usize) -> bool {
    // The kernel asks for these limits when the target is unmapped already.
    if !may_map() {
        return false;
    }
    let Err(Stopped { done, holes, .. }) = move_all(from, to, move_onto) else { return true };
    for hole in holes.into_iter().filter(|hole| !hole.is_empty()) {
        let is_ours = map_at(hole, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED_NOREPLACE);
        assert!(is_ours || is_mapped(hole), "a place for blocks is lost, and may be another's by now");
    }
    if let Err(stopped) = move_all(Span::new(to, done), from.start, move_onto) {
        // At the limit of areas nothing moves any more, but both places are there still.
        copy_back(Span { start: to + stopped.done, end: to + done }, from.start + stopped.done);
    }
    false
}

/// Whether a limit of addresses lets this process map anything.
fn may_map() -> bool {
    let page = raw::map_private(PAGE, Access::Reserve);
    // SAFETY: the page just mapped.
    page.inspect(|at| unsafe { raw::unmap(*at, PAGE) }).is_some()
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

/// How a part of one area moves, and leaves an empty mapping behind; or the error, and where holes may be.
pub type Step = fn(Span, usize) -> Result<(), (Errno, [Span; 2])>;

/// Moves all pages of a span, by one step for each area.
pub fn move_all(from: Span, to: usize, step: Step) -> Result<(), Stopped> {
    let (mut done, mut bytes) = (0, from.bytes());
    while done < from.bytes() {
        let at = from.start + done;
        // A step takes no more than one of the kernel's areas, and where they end is not known here.
        while bytes > PAGE && !is_in_one_area(at, bytes) {
            bytes = (bytes / PAGE).div_ceil(2) * PAGE;
        }
        match step(Span::new(at, bytes), to + done) {
            Ok(()) => done += bytes,
            // Not less than the kernel moves by tables.
            Err((Errno::ENOMEM, holes)) if bytes > SLOT && holes == [NONE; 2] => {
                bytes = (bytes / SLOT).div_ceil(2) * SLOT;
                continue;
            }
            Err((error, holes)) => return Err(Stopped { done, error, holes }),
        }
        bytes = from.bytes() - done;
    }
    Ok(())
}

const NONE: Span = Span { start: 0, end: 0 };
const ONTO: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

/// Moves pages to memory of the caller's, in one call. The target may be a hole afterwards.
pub fn move_onto(from: Span, to: usize) -> Result<(), (Errno, [Span; 2])> {
    let moved = remap(from, ONTO | libc::MREMAP_DONTUNMAP, to);
    moved.map(drop).map_err(|error| (error, [hole(error, Span::new(to, from.bytes())), NONE]))
}

/// The same by way of a place where nothing is. The kernel asks for its limits when pages go there, and then nothing
/// is unmapped yet. The second call takes no more of anything.
pub fn move_by_way(from: Span, to: usize) -> Result<(), (Errno, [Span; 2])> {
    // Huge pages stay whole between places alike. Another thread may map something there: then it is another place.
    let way = reserve(from.bytes() + SLOT, SLOT).map_or(0, |room| {
        // SAFETY: the reservation just made.
        unsafe { raw::unmap(room.start, room.bytes()) };
        room.start + from.start % SLOT
    });
    let way =
        remap(from, libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, way).map_err(|error| (error, [NONE; 2]))?;
    let way = Span::new(way, from.bytes());
    let Err(error) = remap(way, ONTO, to) else { return Ok(()) };
    let back = remap(way, ONTO, from.start);
    Err((error, [hole(error, Span::new(to, from.bytes())), back.map_or_else(|error| hole(error, from), |_| NONE)]))
}

/// What a refused call may have unmapped. A seal is seen before.
fn hole(error: Errno, target: Span) -> Span {
    if error == Errno::EPERM { NONE } else { target }
}

fn remap(from: Span, flags: i32, to: usize) -> raw::Answer {
    // SAFETY: both are the engine's own, and no thread accesses them meanwhile; or the kernel chooses a free place.
    unsafe { syscall(libc::SYS_mremap, [from.start, from.bytes(), from.bytes(), flags as usize, to, 0]) }
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
