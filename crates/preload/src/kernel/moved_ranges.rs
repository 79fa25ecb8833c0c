//! Moving a mapping that the kernel knows as several.
//!
//! Huge-page advice for a part of a mapping splits it in the kernel's books, and mremap then refuses the whole with
//! `EFAULT`. Here such a mapping moves piece by piece to a place reserved for it.
//!
//! Pieces are areas, and at the limit of areas none of them moves any more, neither on nor back. Then the rest of plain
//! memory is copied to that place, which takes no further area.

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

/// The same to a place that has to stay mapped. `EEXIST`: the kernel has unmapped some of it (before Linux 6.17), and
/// another thread has that by now.
fn shift_onto(from: usize, old: usize, new: usize, to: usize, flags: i32) -> Answer {
    shift(from, old, new, to, flags)
        .map_err(|error| if is_kept(Span::new(to, new)) { error } else { Errno::EEXIST })
}

fn unmap(span: Span) {
    if !span.is_empty() {
        // SAFETY: a reservation of this module's own.
        let _ = unsafe { syscall(libc::SYS_munmap, [span.start, span.bytes(), 0, 0, 0, 0]) };
    }
}

/// Behind a move to `span` that was refused, if the kernel may have unmapped what was there: maps it again. False:
/// another thread has some of it by now.
pub fn is_kept(span: Span) -> bool {
    is_taken_again(span) || is_all_mapped(span)
}

/// Maps `span`, where nothing is mapped, without access. False: another thread has some of it.
pub fn is_taken_again(span: Span) -> bool {
    let map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let args = [span.start, span.bytes(), libc::PROT_NONE as usize, map as usize, usize::MAX, 0];
    // SAFETY: replaces nothing.
    span.is_empty() || unsafe { syscall(libc::SYS_mmap, args) } == Ok(span.start)
}

fn is_all_mapped(span: Span) -> bool {
    // SAFETY: does nothing to anonymous memory, and fails where there is none.
    unsafe { syscall(libc::SYS_msync, [span.start, span.bytes(), libc::MS_ASYNC as usize, 0, 0, 0]) }.is_ok()
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

/// Moves a range by page tables, of which the engine's advice makes several areas, to a mapping of the caller's, which
/// stays mapped if this fails; it becomes `bytes` bytes. With `EEXIST` another thread has some of the place.
pub fn move_onto(from: Span, bytes: usize, to: usize) -> Answer {
    undisturbed(|| remap_now(from, bytes, libc::MREMAP_MAYMOVE, Target::Kept(to), false))
}

/// The kernel's own call is not interrupted by a handler, which may leave by a jump. Nor is this.
fn undisturbed(now: impl FnOnce() -> Answer) -> Answer {
    match dispatch::has_begun() {
        // It would be the program's handler that answers.
        true => now(),
        false => without_signals(now),
    }
}

/// Where a range moves to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Anywhere.
    Any,
    /// The program's choice: its old memory there goes in any case.
    Fixed(usize),
    /// What is there stays mapped if the range does not move.
    Kept(usize),
}

/// As mremap(2), after the kernel has refused it with `EFAULT`, which stands if what stays of the range is more
/// than one mapping to the program too, which `look_up` tells. With `MREMAP_FIXED` the target is `to`, which is page-aligned and apart
/// from `from`.
pub fn remap(from: Span, bytes: usize, flags: i32, to: usize, look_up: impl FnOnce(Span) -> Mapping) -> Answer {
    // What a smaller mapping loses may be anything: the kernel unmaps it.
    let stays = Span::new(from.start, from.bytes().min(bytes));
    let now = || match look_up(stays) {
        Mapping::Several => Err(Errno::EFAULT),
        found => {
            let fixed = flags & libc::MREMAP_FIXED != 0;
            let target = if fixed { Target::Fixed(to) } else { Target::Any };
            remap_now(from, bytes, flags, target, found == Mapping::Plain)
        }
    };
    undisturbed(now).map_err(|error| if error == Errno::EEXIST { Errno::ENOMEM } else { error })
}

fn remap_now(from: Span, bytes: usize, flags: i32, target: Target, is_plain: bool) -> Answer {
    if flags & libc::MREMAP_MAYMOVE == 0 {
        // It grows where it stands if its last page does.
        let args = [from.end - PAGE, PAGE, PAGE + bytes.saturating_sub(from.bytes()), 0, 0, 0];
        // SAFETY: the program asked for its own memory to grow.
        return unsafe { syscall(libc::SYS_mremap, args) }.map(|_| from.start);
    }
    let at = if let Target::Fixed(to) | Target::Kept(to) = target {
        let map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let args = [to, bytes, libc::PROT_NONE as usize, map as usize, usize::MAX, 0];
        // SAFETY: the program replaces what is there.
        unsafe { syscall(libc::SYS_mmap, args) }?
    } else {
        reserve(bytes, from.start)?
    };
    let is_kept_for_caller = matches!(target, Target::Kept(_));
    let flags = flags & libc::MREMAP_DONTUNMAP;
    let kept = Span::new(from.start, from.bytes().min(bytes));
    // First what may be refused for want of memory: nothing has moved then, and other threads may use all of it.
    let last = match bytes > from.bytes() {
        true => match move_and_grow(kept, bytes, at) {
            Ok(piece) => Span { start: kept.end - piece, end: kept.end },
            Err(error) => {
                if error != Errno::EEXIST && !is_kept_for_caller {
                    unmap(Span::new(at, bytes));
                }
                return Err(error);
            }
        },
        false => Span { start: kept.end, end: kept.end },
    };
    let first = Span { start: kept.start, end: last.start };
    let there = |addr: usize| at + (addr - from.start);
    if let Err(Stopped { done: moved, error }) = move_all(first, at, flags, shift_onto) {
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
            let back = move_all(Span::new(at, moved), from.start, 0, shift);
            let end = back.map_or_else(|back| back.done, |()| moved);
            // Nothing is mapped any more where pieces were that are back, but for what other threads have there by now.
            let (front, rest) = (Span::new(at, end), Span { start: at + moved, end: there(last.start) });
            if error == Errno::EEXIST {
                return Err(error);
            }
            if !is_kept_for_caller {
                unmap(rest);
                return Err(error);
            }
            let behind = Span { start: rest.end, end: at + bytes };
            let is_whole = [front, behind].map(is_taken_again) == [true; 2];
            return Err(if is_whole { error } else { Errno::EEXIST });
        }
    }
    unmap(Span { start: kept.end, end: from.end });
    Ok(at)
}

/// Opens `to`, which is one area and empty, and copies `from` to its beginning; whether that worked. Another thread
/// that writes to memory that is being moved has no promise.
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

/// Moves the last piece of `from`, with which it grows to `bytes`, to where that lies from `to` on: how long the piece
/// was.
fn move_and_grow(from: Span, bytes: usize, to: usize) -> Result<usize, Errno> {
    let mut piece = ((from.end - 1) % SLOT / PAGE * PAGE + PAGE).min(from.bytes());
    loop {
        let before = from.bytes() - piece;
        match shift_onto(from.end - piece, piece, bytes - before, to + before, 0) {
            Ok(_) => return Ok(piece),
            Err(Errno::EFAULT) if piece > PAGE => piece = (piece / 2).next_multiple_of(PAGE),
            Err(error) => return Err(error),
        }
    }
}

/// Moves all of `from`. The error says how many bytes have moved. Goes from slot to slot, where the engine's advice
/// ends: several areas in one call could stop half way (since Linux 6.17). Advice that has moved may end anywhere.
fn move_all(
    from: Span,
    to: usize,
    flags: i32,
    shift: fn(usize, usize, usize, usize, i32) -> Answer,
) -> Result<(), Stopped> {
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
