//! Moving a mapping that the kernel knows as several.
//!
//! Huge-page advice for a part of a mapping splits it in the kernel's books, and mremap then refuses the whole with
//! `EFAULT`. Here such a mapping moves piece by piece to a place reserved for it.
//!
//! Pieces are areas, and at the limit of areas none of them moves any more, neither on nor back. Then the rest of plain memory
//! is copied to that place, which takes no further area.

use faultless_base::sys::raw::{Answer, without_signals};
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::kernel::dispatch::{self, syscall};
use crate::kernel::smaps::Mapping;

/// Moves `old` bytes at `from` to `to` by page tables, where they become `new` bytes.
fn shift(from: usize, old: usize, new: usize, to: usize, flags: i32) -> Answer {
    let flags = flags | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the program asked for this move of its own memory; the target is reserved for it.
    unsafe { syscall(libc::SYS_mremap, [from, old, new, flags as usize, to, 0]) }
}

fn unmap(span: Span) {
    if !span.is_empty() {
        // SAFETY: a reservation of this module's own.
        let _ = unsafe { syscall(libc::SYS_munmap, [span.start, span.bytes(), 0, 0, 0, 0]) };
    }
}

/// A place of `bytes` bytes, as far from a multiple of the slot size as `like` is.
fn reserve(bytes: usize, like: usize) -> Answer {
    let whole = bytes.checked_add(SLOT).ok_or(Errno::ENOMEM)?;
    let map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let args = [0, whole, libc::PROT_NONE as usize, map as usize, usize::MAX, 0];
    // SAFETY: a new mapping at a place of the kernel's choice.
    let start = unsafe { syscall(libc::SYS_mmap, args) }?;
    let at = start + (like.wrapping_sub(start) & (SLOT - 1));
    unmap(Span { start, end: at });
    unmap(Span { start: at + bytes, end: start + whole });
    Ok(at)
}

/// As mremap(2), after the kernel has refused it with `EFAULT`, which stands if the range is more than one mapping to
/// the program too, which `look_up` tells. With `MREMAP_FIXED` the target is `to`, which is page-aligned and apart
/// from `from`.
///
/// The kernel's own call is not interrupted by a handler, which may leave by a jump. Nor is this.
pub fn remap(from: Span, bytes: usize, flags: i32, to: usize, look_up: impl FnOnce(Span) -> Mapping) -> Answer {
    let now = || match look_up(from) {
        Mapping::Several => Err(Errno::EFAULT),
        found => remap_now(from, bytes, flags, to, found == Mapping::Plain),
    };
    match dispatch::has_begun() {
        // It would be the program's handler that answers.
        true => now(),
        false => without_signals(now),
    }
}

fn remap_now(from: Span, bytes: usize, flags: i32, to: usize, is_plain: bool) -> Answer {
    if flags & libc::MREMAP_MAYMOVE == 0 {
        // It grows where it stands if its last page does.
        let args = [from.end - PAGE, PAGE, PAGE + bytes.saturating_sub(from.bytes()), 0, 0, 0];
        // SAFETY: the program asked for its own memory to grow.
        return unsafe { syscall(libc::SYS_mremap, args) }.map(|_| from.start);
    }
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let at = if fixed {
        let map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let args = [to, bytes, libc::PROT_NONE as usize, map as usize, usize::MAX, 0];
        // SAFETY: the program replaces what is there.
        unsafe { syscall(libc::SYS_mmap, args) }?
    } else {
        reserve(bytes, from.start)?
    };
    let flags = flags & libc::MREMAP_DONTUNMAP;
    let kept = Span::new(from.start, from.bytes().min(bytes));
    // First what may be refused for want of memory: nothing has moved then, and other threads may use all of it.
    let last = match bytes > from.bytes() {
        true => match move_and_grow(kept, bytes, at) {
            Ok(piece) => Span { start: kept.end - piece, end: kept.end },
            Err(error) => {
                unmap(Span::new(at, bytes));
                return Err(error);
            }
        },
        false => Span { start: kept.end, end: kept.end },
    };
    let first = Span { start: kept.start, end: last.start };
    let there = |addr: usize| at + (addr - from.start);
    if let Err(Stopped { done: moved, error }) = move_all(first, at, flags) {
        let rest = Span { start: first.start + moved, end: first.end };
        if error == Errno::ENOMEM
            && (moved > 0 || !last.is_empty())
            && is_plain
            && copy(rest, Span { start: there(rest.start), end: there(rest.end) })
        {
            match flags {
                0 => unmap(rest),
                _ => empty(rest),
            }
        } else {
            if !last.is_empty() {
                // It becomes smaller, which takes nothing.
                let _ = shift(there(last.start), at + bytes - there(last.start), last.bytes(), last.start, 0);
            }
            let back = move_all(Span::new(at, moved), from.start, 0);
            let stays =
                back.map_or_else(|back| Span { start: at + back.done, end: at + moved }, |()| Span::new(at, 0));
            unmap(Span { start: at, end: stays.start });
            unmap(Span { start: at + moved, end: there(last.start) });
            return Err(error);
        }
    }
    unmap(Span { start: kept.end, end: from.end });
    Ok(at)
}

/// Opens `to`, which is one area and empty, and copies `from` to its beginning; whether that worked. Another thread that writes
/// to memory that is being moved has no promise.
fn copy(from: Span, to: Span) -> bool {
    let open = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a part of a reservation of this module's own, up to its end.
    if unsafe { syscall(libc::SYS_mprotect, [to.start, to.bytes(), open, 0, 0, 0]) }.is_err() {
        return false;
    }
    for at in (from.start..from.end).step_by(PAGE) {
        // SAFETY: both may be read and written to, and are whole pages.
        unsafe {
            let page = core::slice::from_raw_parts(at as *const u64, PAGE / 8);
            // What is zero there is zero here, and stays without memory.
            if page.iter().any(|word| *word != 0) {
                core::ptr::copy_nonoverlapping(
                    page.as_ptr(),
                    (to.start + (at - from.start)) as *mut u64,
                    PAGE / 8,
                );
            }
        }
    }
    true
}

/// Leaves the program's range without memory.
fn empty(span: Span) {
    // SAFETY: its content has been copied.
    let _ =
        unsafe { syscall(libc::SYS_madvise, [span.start, span.bytes(), libc::MADV_DONTNEED as usize, 0, 0, 0]) };
}

/// A move that ended half way.
struct Stopped {
    /// Bytes that have moved.
    done: usize,
    error: Errno,
}

/// Moves the last piece of `from`, with which it grows to `bytes`, to where that lies from `to` on: how long the piece was.
fn move_and_grow(from: Span, bytes: usize, to: usize) -> Result<usize, Errno> {
    let mut piece = ((from.end - 1) % SLOT / PAGE * PAGE + PAGE).min(from.bytes());
    loop {
        let before = from.bytes() - piece;
        match shift(from.end - piece, piece, bytes - before, to + before, 0) {
            Ok(_) => return Ok(piece),
            Err(Errno::EFAULT) if piece > PAGE => piece = (piece / 2).next_multiple_of(PAGE),
            Err(error) => return Err(error),
        }
    }
}

/// Moves all of `from`. The error says how many bytes have moved. Goes from slot to slot, where the engine's advice ends:
/// several areas in one call could stop half way (since Linux 6.17). Advice that has moved may end anywhere.
fn move_all(from: Span, to: usize, flags: i32) -> Result<(), Stopped> {
    let mut done = 0;
    let mut most = SLOT;
    while done < from.bytes() {
        let piece = (SLOT - (from.start + done) % SLOT).min(from.bytes() - done).min(most);
        match shift(from.start + done, piece, piece, to + done, flags) {
            Ok(_) => (done, most) = (done + piece, SLOT),
            Err(Errno::EFAULT) if piece > PAGE => most = (piece / 2).next_multiple_of(PAGE),
            Err(error) => return Err(Stopped { done, error }),
        }
    }
    Ok(())
}
