//! Looks at memory of the program's, which it may unmap, close, drop or watch by a userfaultfd at any time.
//!
//! A look changes nothing. It reads by system calls, and only pages that are present. To read a missing page would
//! make it present, even in a hole of a file, and would wait for a program that watches the memory. Missing pages are
//! not read, and the same holds for all that a look cannot see.
//!
//! A page may go between the kernel's answer and the reading. So a program that is about to watch memory first ends
//! all looks, and all code that touches its memory ahead of it ([`end`]).

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::raw::{self, syscall};
use super::{SIGNATURES, area, open, pagemap, thread};
use crate::units::{PAGE, SLOT, SLOT_PAGES, Span};

/// Looks under way, and whether they have ended.
struct Gate {
    under_way: AtomicUsize,
    is_closed: AtomicBool,
}

static GATE: Gate = Gate { under_way: AtomicUsize::new(0), is_closed: AtomicBool::new(false) };

/// How often and how long the end waits for looks under way: a tenth of a second in all. Looks end by themselves. But
/// the thread of one may be stopped, or it may be the thread that waits, in a signal handler.
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
    read_or_tell(local, remote).unwrap_or(0)
}

/// The same of one piece, or why the kernel did not.
pub(super) fn copy_by_kernel(from: Span, to: usize) -> raw::Answer {
    read_or_tell(Span::new(to, from.bytes()), &[piece(from.start, from.bytes())])
}

fn read_or_tell(local: Span, remote: &[libc::iovec]) -> raw::Answer {
    let local = libc::iovec { iov_base: local.start as *mut libc::c_void, iov_len: local.bytes() };
    // SAFETY: the caller's memory is written to alone, and the program's is read by the kernel's hand.
    unsafe {
        let args = [raw::thread_number(), &raw const local as usize, 1, remote.as_ptr() as usize, remote.len(), 0];
        syscall(libc::SYS_process_vm_readv, args)
    }
}

fn piece(at: usize, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes }
}

/// At which of `places`, up to the first `None`, something else than zero stands within [`WINDOW`] bytes. Bytes that
/// cannot be read count as zero.
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

/// One of the `n` pages from `at` on, not the same everywhere: programs use every second page, or every first of
/// sixteen.
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

/// One page of each `step` bytes: those of a batch that are present. In a frame of its own, because a program's stack
/// may be small.
#[inline(never)]
fn sampled(span: Span, step: usize, batch: usize) -> [Option<usize>; PEEKED] {
    let mut there = Pages::unknown(span);
    there.ask(span);
    let all = (span.start..span.end).step_by(step).map(|at| somewhere(at, step / PAGE));
    let mut pages = all.skip(batch * PEEKED).take(PEEKED).filter(|&page| there.has(page));
    core::array::from_fn(|_| pages.next())
}

/// Where the signatures of a slot are, and what they are: evenly spread, each at the start of a page. A program that
/// touches little of a page touches its start.
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
    let by_files = || {
        let (pagemap, maps) = (pagemap::Opened::new(), raw::File::try_open(area::MAPS).ok());
        let mut part = Span { end: from.start, ..from };
        while part.end < from.end {
            part = Span { start: part.end, ..from };
            let there = to + (part.start - from.start);
            let kind = maps.as_ref().and_then(|maps| area::query_kind(maps.number(), part.start).ok());
            let is_anonymous = kind.is_none_or(|(area, is_anonymous)| {
                part = area.clip(part);
                is_anonymous
            });
            let copied = match &pagemap {
                _ if part.is_empty() => false,
                // A page of a file has its bytes whether it is mapped or not.
                _ if !is_anonymous => read_all(part, there),
                Some(pagemap) => copy_by(pagemap, part, there, true),
                None => copy_mapped(part, there),
            };
            if !copied {
                return false;
            }
        }
        true
    };
    open::apart(by_files).unwrap_or_else(|| copy_mapped(from, to))
}

/// The same by a file that is open, of private memory without a file. Swapped pages come back, or are not copied.
pub(super) fn copy_by(pagemap: &pagemap::Opened, from: Span, to: usize, swapped: bool) -> bool {
    let copied = pagemap.all(from, pagemap::PRESENT | pagemap::SWAPPED, |run, is_present| {
        (is_present || swapped) && read_all(run, to + (run.start - from.start))
    });
    copied == Some(true)
}

/// The same without any file: by mincore, which does not tell what is swapped from what is missing.
fn copy_mapped(from: Span, to: usize) -> bool {
    let mut pages = Pages::unknown(from);
    !may_swap()
        && (from.start..from.end).step_by(SLOT).all(|start| {
            pages.start = start;
            let part = Span::new(start, SLOT).clip(from);
            pages.ask(part);
            let mut there = (part.start..part.end).step_by(PAGE).filter(|&page| pages.has(page));
            there.all(|page| read_all(Span::new(page, PAGE).clip(from), to + (page - from.start)))
        })
}

/// Whether the system has memory to swap to, or does not say.
fn may_swap() -> bool {
    let mut info = core::mem::MaybeUninit::<libc::sysinfo>::uninit();
    // SAFETY: the structure is writable, and filled where the call succeeds.
    unsafe {
        syscall(libc::SYS_sysinfo, [info.as_mut_ptr() as usize, 0, 0, 0, 0, 0]).is_err()
            || info.assume_init().totalswap > 0
    }
}

/// Copies memory of the program's, but for its guards (`MADV_GUARD_INSTALL`): `guard` hears where they belong. What else the
/// kernel does not copy is read as any memory, so that a fault is the program's.
pub fn copy_past_guards(from: Span, to: usize, guard: impl Fn(Span)) {
    if copy_by_kernel(from, to) == Ok(from.bytes()) {
        return;
    }
    let is_guard = |at| pagemap::Opened::new()?.is_all(Span::new(at, PAGE), pagemap::GUARD);
    for start in (from.start..from.end).step_by(PAGE) {
        let (page, place) = (Span::new(start, PAGE).clip(from), to + (start - from.start));
        if copy_by_kernel(page, place) == Ok(page.bytes()) {
            continue;
        }
        match open::apart(|| is_guard(start)).flatten() {
            Some(true) => guard(Span::new(place, page.bytes())),
            // SAFETY: as for a copy by hand of all of it: the program's own memory, and a place for it.
            _ => unsafe { core::ptr::copy_nonoverlapping(start as *const u8, place as *mut u8, page.bytes()) },
        }
    }
}

/// Reads all of it; a call of the kernel takes 2 GiB at most.
fn read_all(from: Span, to: usize) -> bool {
    let mut done = 0;
    while done < from.bytes() {
        let n = (from.bytes() - done).min(1 << 30);
        match copy_by_kernel(Span::new(from.start + done, n), to + done) {
            Ok(0) | Err(_) => return false,
            Ok(copied) => done += copied,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Huge;
    use crate::sys::linux::memory_with as memory;

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
