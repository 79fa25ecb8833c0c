//! Taking a range away from the program, as munmap does, with its memory still there.
//!
//! `mremap` moves the range, areas and page tables, to a place that no other code knows. To the program it is
//! unmapped at that moment, all at once. Its pages can then be looked at, moved and dropped without a race. The
//! kernel decides: it refuses to move a sealed range, for one, and then nothing has happened.
//!
//! There are a few such places. When all are taken, or the range is too large, a range stays with the kernel.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::linux;
use super::moves::Unregistered;
use super::raw::{self, Answer, syscall};
use crate::Errno;
use crate::units::{PAGE, SLOT, Span};

const PLACES: usize = 4;

/// Where the places begin, and the bytes of each; 0 before [`reserve`].
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// What the places are: free, in use, or no longer ours.
static TAKEN: [AtomicU8; PLACES] = [const { AtomicU8::new(FREE) }; PLACES];
const FREE: u8 = 0;
const IN_USE: u8 = 1;
const LOST: u8 = 2;
/// The places have been given back.
static RETIRED: AtomicBool = AtomicBool::new(false);
/// The program seals memory: then a move of several areas may stop half way.
static SEALED: AtomicBool = AtomicBool::new(false);

fn take(place: &AtomicU8) -> bool {
    place.compare_exchange(FREE, IN_USE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// Reserves the places, each of `bytes` bytes.
pub fn reserve(bytes: usize) {
    if START.load(Ordering::Acquire) == 0
        && let Some(span) = linux::reserve(bytes * PLACES, SLOT)
    {
        BYTES.store(bytes, Ordering::Relaxed);
        START.store(span.start, Ordering::Release);
    }
}

fn place(i: usize) -> Span {
    let bytes = BYTES.load(Ordering::Relaxed);
    Span::new(START.load(Ordering::Acquire) + i * bytes, bytes)
}

/// As [`super::Sys::isolate`].
pub fn isolate(span: Span) -> Option<Span> {
    let room = BYTES.load(Ordering::Relaxed);
    if START.load(Ordering::Acquire) == 0 || span.bytes() + 2 * SLOT > room {
        return None;
    }
    let i = TAKEN.iter().position(take)?;
    let at = place(i).start + span.start % SLOT;
    // One page larger: so the kernel takes a single area only.
    let moved = match shift(span, span.bytes() + PAGE, at) {
        Ok(_) => Some(Span::new(at, span.bytes())),
        Err(Errno::EFAULT) => shift_areas(span, i, at),
        Err(_) => None,
    };
    if moved.is_none() && TAKEN[i].load(Ordering::Relaxed) == IN_USE {
        // A move that failed late has unmapped its target.
        match is_mapped(Span::new(at, span.bytes() + PAGE)) {
            true => TAKEN[i].store(FREE, Ordering::SeqCst),
            false => lose(i, Span::new(at, span.bytes() + PAGE)),
        }
    }
    moved
}

fn shift(from: Span, bytes: usize, to: usize) -> Answer {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the program unmaps this range, and the place is ours.
    unsafe { syscall(libc::SYS_mremap, [from.start, from.bytes(), bytes, flags, to, 0]) }
}

/// As [`isolate`], at `at`, for a range of several areas without a gap, which the kernel moves since Linux 6.17. At a
/// sealed area it may stop half way, where munmap would have done nothing. Then the part that has moved goes back.
fn shift_areas(span: Span, place: usize, at: usize) -> Option<Span> {
    // Nor is it interrupted by a range that the background thread has registered.
    let _unregistered = Unregistered::soon()?;
    if SEALED.load(Ordering::Relaxed) || !is_mapped(span) {
        return None;
    }
    if shift(span, span.bytes(), at) == Ok(at) {
        return Some(Span::new(at, span.bytes()));
    }
    let moved = moved(span, at);
    if moved == 0 {
        return None;
    }
    // Behind the part that has moved there is a gap, where another thread may have mapped something by now.
    lose(place, Span::new(at, span.bytes()));
    let there = Span::new(at, moved);
    let old = Span::new(span.start, moved);
    if !is_somebody_elses(old) && shift(there, moved, old.start) == Ok(old.start) {
        return None;
    }
    unmap(there);
    unmap(Span { start: old.end, end: span.end });
    Some(Span::new(at, 0))
}

/// Gives up a place; `part` of it may hold a mapping that is not ours.
fn lose(i: usize, part: Span) {
    let whole = place(i);
    TAKEN[i].store(LOST, Ordering::SeqCst);
    unmap(Span { start: whole.start, end: part.start });
    unmap(Span { start: part.end, end: whole.end });
}

/// How much of `span` has moved to `at`, after a move that stopped half way.
fn moved(span: Span, at: usize) -> usize {
    let count = |start: usize, is_there: bool| {
        let is_so = |page: &usize| is_mapped(Span::new(*page, PAGE)) == is_there;
        (start..start + span.bytes()).step_by(PAGE).take_while(is_so).count() * PAGE
    };
    match count(span.start, false) {
        // Another thread may have mapped something in its old place.
        0 => count(at, true),
        gone => gone,
    }
}

/// Whether another thread has mapped something where memory has moved away. If not, none does from now on.
fn is_somebody_elses(old: Span) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let args = [old.start, old.bytes(), libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: replaces nothing.
    let mapped = unsafe { syscall(libc::SYS_mmap, args) };
    mapped == Err(Errno::EEXIST)
}

fn unmap(span: Span) {
    if !span.is_empty() {
        // SAFETY: what the program unmaps, or a place of ours.
        unsafe { raw::unmap(span.start, span.bytes()) };
    }
}

/// Whether a range has no gap.
pub(super) fn is_mapped(span: Span) -> bool {
    // SAFETY: for memory without a file this writes nothing, and for files it starts nothing.
    unsafe { syscall(libc::SYS_msync, [span.start, span.bytes(), libc::MS_ASYNC as usize, 0, 0, 0]) }.is_ok()
}

/// The program has sealed memory.
pub fn note_seal() {
    SEALED.store(true, Ordering::Relaxed);
}

/// As [`super::Sys::drop_isolated`].
pub fn drop_isolated(span: Span) {
    let i = (span.start - START.load(Ordering::Acquire)) / BYTES.load(Ordering::Relaxed);
    // A limit of addresses may forbid this, and then all the place goes.
    let is_ours = linux::reserve_at(Span::new(span.start, span.bytes() + PAGE), libc::MAP_FIXED);
    TAKEN[i].store(if is_ours { FREE } else { LOST }, Ordering::SeqCst);
    if !is_ours || RETIRED.load(Ordering::SeqCst) && take(&TAKEN[i]) {
        unmap(place(i));
    }
}

/// In a forked child: memory that another thread of the parent had taken away is here too, and has no owner.
pub fn forget() {
    for (i, taken) in TAKEN.iter().enumerate() {
        if taken.load(Ordering::Acquire) == IN_USE && linux::reserve_at(place(i), libc::MAP_FIXED) {
            taken.store(FREE, Ordering::Release);
        }
    }
}

/// Gives the places back; one that a thread uses at this moment goes when that thread is done.
pub fn retire() {
    RETIRED.store(true, Ordering::SeqCst);
    if START.load(Ordering::Acquire) != 0 {
        (0..PLACES).filter(|&i| take(&TAKEN[i])).for_each(|i| unmap(place(i)));
    }
}
