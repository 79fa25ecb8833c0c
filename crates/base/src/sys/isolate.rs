//! Taking a range away from the program, as munmap does, with its memory still there.
//!
//! `mremap` moves the range, areas and page tables, to a place that no other code knows. To the program it is
//! unmapped at that moment, all at once. Its pages can then be looked at, moved and dropped without a race. The
//! kernel decides: it refuses to move a sealed range, for one, and then nothing has happened.
//!
//! That holds for a range that is one area to the kernel. Several in one call may stop half way (Linux 6.17), at areas
//! that cannot all be told beforehand. Memory would be gone meanwhile, and its addresses free for other threads. So a
//! range of several areas stays with the kernel.
//!
//! There are a few such places. When all are taken, or the range is too large, a range stays with the kernel, too.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::linux;
use super::raw::{self, Answer, syscall};
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
    if shift(span, span.bytes() + PAGE, at).is_ok() {
        return Some(Span::new(at, span.bytes()));
    }
    // A move that failed late has unmapped its target. Another thread may have mapped something there by now.
    let target = Span::new(at, span.bytes() + PAGE);
    match is_mapped(target) || linux::reserve_at(target, libc::MAP_FIXED_NOREPLACE) {
        true => TAKEN[i].store(FREE, Ordering::SeqCst),
        false => lose(i, target),
    }
    None
}

/// Moves `from`, which becomes larger: so the kernel takes a single area only.
fn shift(from: Span, bytes: usize, to: usize) -> Answer {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the program unmaps this range, and the place is ours.
    unsafe { syscall(libc::SYS_mremap, [from.start, from.bytes(), bytes, flags, to, 0]) }
}

/// Gives up a place; `part` of it may hold a mapping that is not ours.
fn lose(i: usize, part: Span) {
    let whole = place(i);
    TAKEN[i].store(LOST, Ordering::SeqCst);
    unmap(Span { start: whole.start, end: part.start });
    unmap(Span { start: part.end, end: whole.end });
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
