//! Looks at memory of the program's, which it may unmap, close, drop or watch by a userfaultfd at any time.
//!
//! A look changes nothing. It reads by the kernel's hand, and only pages that are present: to read a missing one would make it
//! present, give a page to a file that has a hole there, and wait for whoever watches the memory. What is not present is not
//! read, and so is whatever a look cannot see.
//!
//! A page may go between the kernel's answer and the reading. So a program that is about to watch memory ends all looks
//! first, and what touches its memory ahead of it ([`end`]).

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::raw::{self, syscall};
use super::{SIGNATURES, open, pagemap, thread};
use crate::units::{PAGE, SLOT, SLOT_PAGES, Span};

/// Looks under way, and whether they have ended.
struct Gate {
    under_way: AtomicUsize,
    is_closed: AtomicBool,
}

static GATE: Gate = Gate { under_way: AtomicUsize::new(0), is_closed: AtomicBool::new(false) };

/// How often and how long the end waits for looks under way: a tenth of a second in all. They end by themselves, but the
/// thread of one may be stopped, or be the one that waits, in a signal handler.
const TRIES: usize = 2000;
const REST_NS: u64 = 50_000;

impl Gate {
    /// `look`, unless looks have ended.
    fn pass<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let seen = (!self.is_closed.load(Ordering::SeqCst)).then(look);
        self.under_way.fetch_sub(1, Ordering::Release);
        seen
    }

    /// No look begins from now on, and none is under way.
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for _ in 0..TRIES {
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            thread::hurry();
            raw::sleep_ns(REST_NS);
        }
    }
}

/// As [`super::Sys::end_looks`].
pub(super) fn end() {
    GATE.close();
}

/// In a forked child: looks of the parent's other threads are not under way here.
pub(super) fn forget() {
    GATE.under_way.store(0, Ordering::Relaxed);
}

/// `touch`, which makes memory of the program's present, unless looks have ended.
pub(super) fn unless_ended(touch: impl FnOnce() -> bool) -> bool {
    GATE.pass(touch) == Some(true)
}

/// Which pages of a slot, or of a part of one, are present.
struct Pages {
    start: usize,
    /// A byte for each, as mincore has it. Of a mapped file those are present that the kernel has in its cache.
    present: [u8; SLOT_PAGES],
}

impl Pages {
    fn unknown(span: Span) -> Self {
        Self { start: span.start, present: [0; SLOT_PAGES] }
    }

    /// Asks the kernel. None is present where not all of it is mapped. In its place: no second copy lies on the stack.
    fn ask(&mut self, span: Span) {
        let args = [span.start, span.bytes().min(SLOT), self.present.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: one byte for each page of a slot.
        if unsafe { syscall(libc::SYS_mincore, args) }.is_err() {
            self.present.fill(0);
        }
    }

    fn has(&self, page: usize) -> bool {
        self.present[(page - self.start) / PAGE] & 1 == 1
    }
}

/// As [`super::Sys::present_pages`].
pub(super) fn present_pages(span: Span) -> usize {
    let mut pages = Pages::unknown(span);
    pages.ask(span);
    pages.present.iter().filter(|&&byte| byte & 1 == 1).count()
}

/// Places looked at by one call, and bytes of each: few, because a program's stack may be small.
const PEEKED: usize = 8;
const WINDOW: usize = 64;

/// Reads memory of this process to memory of the caller's: how many bytes.
fn read(local: Span, remote: &[libc::iovec]) -> usize {
    let local = libc::iovec { iov_base: local.start as *mut libc::c_void, iov_len: local.bytes() };
    // SAFETY: the caller's memory is written to alone, and the program's is read by the kernel's hand.
    let read = unsafe {
        let args = [raw::thread_number(), &raw const local as usize, 1, remote.as_ptr() as usize, remote.len(), 0];
        syscall(libc::SYS_process_vm_readv, args)
    };
    read.unwrap_or(0)
}

fn piece(at: usize, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes }
}

/// At which of `places`, up to the first `None`, something else than zero stands within [`WINDOW`] bytes. What cannot be
/// read is zero.
fn nonzero(places: [Option<usize>; PEEKED]) -> [bool; PEEKED] {
    let mut bytes = [[0u8; WINDOW]; PEEKED];
    let remote: [_; PEEKED] = core::array::from_fn(|i| piece(places[i].unwrap_or(0), WINDOW));
    let n = places.iter().take_while(|at| at.is_some()).count();
    read(Span::new(bytes.as_mut_ptr() as usize, WINDOW * n), &remote[..n]);
    // Not `map`, which would copy them.
    core::array::from_fn(|i| bytes[i].iter().any(|b| *b != 0))
}

/// Whether a page holds something else than zero, by a look at some of it or at all of it.
fn is_nonzero(page: usize, all: bool) -> bool {
    // The windows of one call lie apart: objects begin with zeroes as a rule, and by habit at the same places.
    let calls = if all { PAGE / WINDOW / PEEKED } else { 1 };
    (0..calls).any(|call| {
        let places = core::array::from_fn(|i| Some(page + i * (PAGE / PEEKED) + call * WINDOW));
        nonzero(places).contains(&true)
    })
}

/// One of the `n` pages from `at` on, not the same everywhere: programs use every second page, or every first of sixteen.
pub(super) fn somewhere(at: usize, n: usize) -> usize {
    let hash = (at / PAGE).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    at + hash % n * PAGE
}

/// As [`super::Sys::peek_nonzero_pages`].
pub(super) fn nonzero_pages(span: Span, samples: usize) -> usize {
    let first = Span::new(span.start, PAGE);
    let look = || match samples {
        1 => sampled(first, PAGE, 0).into_iter().flatten().filter(|&page| is_nonzero(page, true)).count(),
        _ => nonzero_of(span, (span.bytes() / PAGE / samples.max(1)).max(1) * PAGE),
    };
    GATE.pass(look).unwrap_or(0)
}

/// The same for one page of each `step` bytes.
fn nonzero_of(span: Span, step: usize) -> usize {
    let batches = span.bytes().div_ceil(step).div_ceil(PEEKED);
    (0..batches)
        .map(|batch| {
            let pages = sampled(span, step, batch);
            // A look at the beginnings of several pages shows most of those that are full.
            let seen = if pages[0].is_some() { nonzero(pages) } else { return 0 };
            pages.iter().flatten().zip(seen).filter(|&(&page, seen)| seen || is_nonzero(page, false)).count()
        })
        .sum()
}

/// One page of each `step` bytes: those of a batch that are present. In a frame of its own, because a program's stack may be small.
#[inline(never)]
fn sampled(span: Span, step: usize, batch: usize) -> [Option<usize>; PEEKED] {
    let mut there = Pages::unknown(span);
    there.ask(span);
    let all = (span.start..span.end).step_by(step).map(|at| somewhere(at, step / PAGE));
    let mut pages = all.skip(batch * PEEKED).take(PEEKED).filter(|&page| there.has(page));
    core::array::from_fn(|_| pages.next())
}

/// Where the signatures of a slot are, and what they are: evenly spread, at the start of a page, which is what a program
/// touches of it if it touches little.
pub(super) fn signatures(slot: Span) -> impl Iterator<Item = (usize, u64)> {
    const APART: usize = SLOT / SIGNATURES;
    (0..SIGNATURES).map(move |i| {
        let part = slot.start + i * APART;
        let at = somewhere(part, APART / PAGE);
        (at, ((at / PAGE) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 0x80)
    })
}

/// As [`super::Sys::peek_overwritten`].
pub(super) fn overwritten(slot: Span) -> usize {
    let reads = |at: usize, word: u64| {
        let mut seen = 0u64;
        let bytes = size_of::<u64>();
        read(Span::new(&raw mut seen as usize, bytes), &[piece(at, bytes)]) == bytes && seen == word
    };
    let look = || {
        let mut there = Pages::unknown(slot);
        there.ask(slot);
        let stands = |at: usize, word: u64| there.has(at) && reads(at, word);
        signatures(slot).filter(|&(at, word)| !stands(at, word)).count()
    };
    GATE.pass(look).unwrap_or(0)
}

/// As [`super::Sys::copy_from_program`].
pub(super) fn copy(from: Span, to: usize) -> bool {
    open::apart(|| pagemap::Opened::new().is_some_and(|pagemap| copy_by(&pagemap, from, to))) == Some(true)
}

/// The same by a file that is open.
pub(super) fn copy_by(pagemap: &pagemap::Opened, from: Span, to: usize) -> bool {
    let copied = pagemap.all(from, pagemap::PRESENT | pagemap::SWAPPED, |run, is_present| {
        let place = Span::new(to + (run.start - from.start), run.bytes());
        is_present && read(place, &[piece(run.start, run.bytes())]) == run.bytes()
    });
    copied == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux};
    use crate::sys::{Huge, Sys};

    fn memory(slots: usize, huge: Huge) -> Span {
        let span = linux::reserve(slots * SLOT, SLOT).unwrap();
        assert!(Linux.open_first(span));
        Linux.huge(span, huge);
        span
    }

    fn write(at: usize, byte: u8) {
        // SAFETY: memory of the test's own.
        unsafe { (at as *mut u8).write_volatile(byte) }
    }

    /// Every page, so that each is one of the samples.
    const ALL: usize = SLOT_PAGES;

    #[test]
    fn a_look_leaves_what_is_missing_missing() {
        for huge in [Huge::Refused, Huge::Advised] {
            let slots = memory(2, huge);
            let (empty, room) = (Span::new(slots.start, SLOT), memory(1, huge));
            assert_eq!(
                (nonzero_pages(empty, 8), nonzero_pages(empty, ALL), overwritten(empty)),
                (0, 0, SIGNATURES)
            );
            assert!(copy(empty, room.start) || pagemap::Opened::new().is_none());
            assert_eq!(present_pages(empty), 0, "{huge:?}");
        }
        let slot = memory(1, Huge::Refused);
        (0..SLOT_PAGES).step_by(3).for_each(|page| write(slot.start + page * PAGE + PAGE / 2, page as u8 | 1));
        let there = present_pages(slot);
        assert_eq!((nonzero_pages(slot, ALL), there), (there, SLOT_PAGES.div_ceil(3)));
        nonzero_pages(slot, 8);
        assert_eq!(overwritten(slot), SIGNATURES);
        let room = memory(1, Huge::Refused);
        if copy(slot, room.start) {
            assert_eq!(nonzero_pages(room, ALL), there);
        }
        assert_eq!(present_pages(slot), there);
    }

    #[test]
    fn a_look_gives_no_page_to_a_file() {
        let bytes = 2 * SLOT;
        // SAFETY: a file of the test's own, mapped anew.
        let (file, at) = unsafe {
            let file = syscall(libc::SYS_memfd_create, [c"sparse".as_ptr() as usize, 0, 0, 0, 0, 0]).unwrap();
            syscall(libc::SYS_ftruncate, [file, bytes, 0, 0, 0, 0]).unwrap();
            let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            (file, syscall(libc::SYS_mmap, [0, bytes, rights, libc::MAP_SHARED as usize, file, 0]).unwrap())
        };
        write(at + 5 * PAGE, 1);
        let slot = Span::new(at, SLOT);
        assert_eq!(nonzero_pages(slot, ALL), 1);
        assert_eq!((nonzero_pages(slot, 8).min(1) + overwritten(slot)).min(1), 1);
        let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the structure is filled where the call succeeds.
        let blocks = unsafe {
            syscall(libc::SYS_fstat, [file, stat.as_mut_ptr() as usize, 0, 0, 0, 0]).unwrap();
            stat.assume_init().st_blocks
        };
        assert_eq!(blocks as usize * 512, PAGE, "pages that nobody wrote to");
    }

    #[test]
    fn no_look_is_under_way_after_the_end() {
        let gate = Gate { under_way: AtomicUsize::new(0), is_closed: AtomicBool::new(false) };
        assert_eq!(gate.pass(|| 1), Some(1));
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let look = || {
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    };
                    while gate.pass(look).is_some() {}
                });
            }
            gate.close();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        });
        assert_eq!(gate.pass(|| 2), None);
    }
}
