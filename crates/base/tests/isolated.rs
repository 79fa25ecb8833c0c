//! Ranges of the program's that are taken away before they are unmapped. Alone in its process: no other thread maps anything
//! where a range was.

use faultless_base::sys::Sys;
use faultless_base::sys::isolate::{self, Rest};
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, Access, syscall};
use faultless_base::{PAGE, SLOT, Span};

const BYTES_EACH: usize = 64 * SLOT;

fn byte(at: usize) -> *mut u8 {
    at as *mut u8
}

fn is_mapped(page: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one page, one byte for the answer.
    unsafe { syscall(libc::SYS_mincore, [page, PAGE, &raw mut present as usize, 0, 0, 0]) }.is_ok()
}

/// Four slots with a byte in each, the second of them an area of its own.
fn areas() -> Span {
    let span = Linux.reserve(4 * SLOT, SLOT).unwrap();
    // SAFETY: memory of the test's own.
    unsafe {
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        syscall(libc::SYS_mprotect, [span.start, span.bytes(), rights, 0, 0, 0]).unwrap();
        let advice = libc::MADV_NOHUGEPAGE as usize;
        syscall(libc::SYS_madvise, [span.start + SLOT, SLOT, advice, 0, 0, 0]).unwrap();
        (0..4).for_each(|i| byte(span.start + i * SLOT).write(i as u8 + 1));
    }
    span
}

/// The first byte of each slot.
fn bytes(span: Span) -> Vec<u8> {
    // SAFETY: memory of the test's own.
    (span.start..span.end).step_by(SLOT).map(|at| unsafe { byte(at).read() }).collect()
}

/// A slot with a byte in it is isolated: where it is now.
fn isolated() -> Option<Span> {
    let one = raw::map_private(SLOT, Access::Write).unwrap();
    // SAFETY: memory of the test's own.
    unsafe { byte(one).write(1) };
    Linux.isolate(Span::new(one, SLOT))
}

/// The program's own page, which it puts where it wants.
fn lay(at: usize) -> usize {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: over addresses that no test uses by now.
    unsafe {
        assert_eq!(syscall(libc::SYS_mmap, [at, PAGE, rights, flags, usize::MAX, 0]), Ok(at));
        byte(at).write(7);
    }
    at
}

/// Lays pages into each of the places; none is touched again by us.
fn places_are_given_up() {
    let there = isolated().unwrap();
    Linux.drop_isolated(there);
    let first = there.start / SLOT * SLOT;
    let mut laid = vec![];

    // Free: its other addresses go back, and the next place serves.
    isolate::give_up(Span::new(first + PAGE, PAGE), Rest::GoesBack);
    laid.push(lay(first + PAGE));
    assert!(!is_mapped(first) && !is_mapped(first + 2 * PAGE) && is_mapped(first + BYTES_EACH));

    // In use: the program's call comes after the thread that has it.
    let there = isolated().unwrap();
    assert_eq!((there.start - first) / BYTES_EACH, 1);
    let layer = std::thread::spawn(move || {
        isolate::give_up(Span::new(there.start, PAGE), Rest::GoesBack);
        lay(there.start)
    });
    std::thread::yield_now();
    Linux.drop_isolated(there);
    laid.push(layer.join().unwrap());

    // In use by a thread that stands still, or that a fork left behind.
    let there = isolated().unwrap();
    isolate::give_up(Span::new(there.start, PAGE), Rest::Stays);
    laid.push(lay(there.start));
    Linux.drop_isolated(there);
    let there = isolated().unwrap();
    assert_eq!((there.start - first) / BYTES_EACH, 3);
    isolate::forget();
    assert!(is_mapped(there.start), "reserved again");

    // By an instruction: nothing is said.
    if Linux.area(first).is_some() {
        laid.push(lay(there.start / SLOT * SLOT + SLOT / 2));
        let one = raw::map_private(2 * SLOT, Access::Write).unwrap();
        assert_eq!(Linux.isolate(Span::new(one, 2 * SLOT)), None);
        assert_eq!(isolated(), None);
    }
    isolate::forget();
    isolate::retire();
    // SAFETY: the pages laid before.
    laid.into_iter().for_each(|at| assert_eq!(unsafe { byte(at).read() }, 7, "{at:x}"));
}

// One test: the places are the process's.
#[test]
fn ranges_of_one_area_and_of_several() {
    isolate::reserve(BYTES_EACH);
    let one = raw::map_private(SLOT, Access::Write).unwrap();
    let there = Linux.isolate(Span::new(one, SLOT)).unwrap();
    assert!(!is_mapped(one));
    Linux.drop_isolated(there);

    // Several could stop half way: nothing has happened.
    let several = areas();
    assert_eq!(Linux.isolate(several), None);
    assert_eq!(bytes(several), [1, 2, 3, 4]);

    // With a gap it is the kernel's.
    let gap = areas();
    // SAFETY: memory of the test's own.
    unsafe { raw::unmap(gap.start + 2 * SLOT, SLOT) };
    assert_eq!(Linux.isolate(gap), None);
    assert_eq!(bytes(Span::new(gap.start + 3 * SLOT, SLOT)), [4]);

    // Sealed in the middle, which no thread noted: all of it is as before.
    let sealed = areas();
    // SAFETY: the same.
    if unsafe { syscall(libc::SYS_mseal, [sealed.start + 2 * SLOT, SLOT, 0, 0, 0, 0]) }.is_ok() {
        assert_eq!(Linux.isolate(sealed), None);
        assert_eq!(bytes(sealed), [1, 2, 3, 4]);
    }
    // Places are left for others, more often than there are places.
    for _ in 0..9 {
        let one = raw::map_private(SLOT, Access::Write).unwrap();
        let there = Linux.isolate(Span::new(one, SLOT)).unwrap();
        Linux.drop_isolated(there);
    }
    places_are_given_up();
}
