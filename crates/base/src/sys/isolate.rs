//! Taking a range away from the program, as munmap does, with its memory still there.
//!
//! `mremap` moves the range, areas and page tables, to a place that nobody else knows. To the program it is unmapped
//! at that moment, all at once. What is in it can then be looked at, moved and dropped without a race. The kernel
//! decides: a sealed range, for one, does not move, and then nothing has happened.
//!
//! There are a few such places. When all are taken, or the range is too large, there is none to be had.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::linux;
use super::raw::syscall;
use crate::units::{PAGE, SLOT, Span};

const PLACES: usize = 4;

/// Where the places begin, and the bytes of each; 0 before [`reserve`].
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static TAKEN: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];

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
    let i = TAKEN.iter().position(|taken| !taken.swap(true, Ordering::Acquire))?;
    let at = place(i).start + span.start % SLOT;
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // One page larger: so the kernel takes a single area only (since Linux 6.17 it moves several, but may stop half
    // way, where munmap would have done nothing).
    let args = [span.start, span.bytes(), span.bytes() + PAGE, flags, at, 0];
    // SAFETY: the program unmaps this range, and the place is ours.
    let moved = unsafe { syscall(libc::SYS_mremap, args) };
    if moved != Ok(at) {
        TAKEN[i].store(false, Ordering::Release);
        return None;
    }
    Some(Span::new(at, span.bytes()))
}

/// As [`super::Sys::drop_isolated`].
pub fn drop_isolated(span: Span) {
    let i = (span.start - START.load(Ordering::Acquire)) / BYTES.load(Ordering::Relaxed);
    // Where the kernel has no area left for this, the place stays taken.
    if linux::reserve_at(Span::new(span.start, span.bytes() + PAGE), libc::MAP_FIXED) {
        TAKEN[i].store(false, Ordering::Release);
    }
}

/// In a forked child: what another thread of the parent had taken away is here too, and nobody's.
pub fn forget() {
    for (i, taken) in TAKEN.iter().enumerate() {
        if taken.load(Ordering::Acquire) && linux::reserve_at(place(i), libc::MAP_FIXED) {
            taken.store(false, Ordering::Release);
        }
    }
}

/// Gives the places back, but those that a thread uses at this moment.
pub fn retire() {
    if START.load(Ordering::Acquire) == 0 {
        return;
    }
    for (i, taken) in TAKEN.iter().enumerate() {
        if !taken.swap(true, Ordering::AcqRel) {
            let place = place(i);
            // SAFETY: the place is ours, and nobody gets it any more.
            let _ = unsafe { syscall(libc::SYS_munmap, [place.start, place.bytes(), 0, 0, 0, 0]) };
        }
    }
}
