//! Calls about ranges that are not mapped throughout.
//!
//! What the program unmaps in the arena stays reserved: the kernel would find a mapping there, lock it, or even open
//! it. So such calls are made for what is the program's alone, and answered as if the rest were not mapped.

use core::ffi::{c_long, c_void};

use faultless_base::sys::raw::{Answer, syscall};
use faultless_base::{PAGE, Span};

use crate::engine;
use crate::mappings::{pages, status};

/// The first part of a range in the arena that is not the program's. A signal handler that interrupted the engine
/// does without.
fn first_gap(span: Span) -> Option<Span> {
    if !engine::touches(span) {
        return None;
    }
    engine::enter()?.space.first_gap(span)
}

/// The range of a call as the kernel takes it; `None` when it will refuse it, or do nothing.
pub fn sound(addr: usize, bytes: usize) -> Option<Span> {
    let end = addr.checked_add(bytes)?.checked_next_multiple_of(PAGE)?;
    (addr % PAGE == 0 && bytes != 0).then_some(Span { start: addr, end })
}

unsafe fn call_on(span: Span, nr: c_long, args: [usize; 6]) -> Answer {
    // SAFETY: the caller's promise, for a part of the range.
    unsafe { syscall(nr, [span.start, span.bytes(), args[2], args[3], args[4], args[5]]) }
}

/// A call that the kernel carries out up to the first page that is not mapped.
pub unsafe fn up_to_gap(nr: c_long, args: [usize; 6]) -> Answer {
    let Some((span, gap)) = sound(args[0], args[1]).and_then(|s| Some((s, first_gap(s)?))) else {
        // SAFETY: the caller's promise.
        return unsafe { syscall(nr, args) };
    };
    if span.start < gap.start {
        // SAFETY: as above.
        unsafe { call_on(Span { start: span.start, end: gap.start }, nr, args) }?;
    }
    Err(libc::ENOMEM)
}

/// A call that the kernel carries out on every page that is mapped, and reports those that are not in the end.
pub unsafe fn around_gaps(nr: c_long, args: [usize; 6]) -> Answer {
    let whole = sound(args[0], args[1]).filter(|s| first_gap(*s).is_some());
    let Some(mut rest) = whole else {
        // SAFETY: the caller's promise.
        return unsafe { syscall(nr, args) };
    };
    while let Some(gap) = first_gap(rest) {
        if rest.start < gap.start {
            // SAFETY: as above.
            match unsafe { call_on(Span { start: rest.start, end: gap.start }, nr, args) } {
                Ok(_) | Err(libc::ENOMEM) => {}
                error => return error,
            }
        }
        rest.start = gap.end;
    }
    if !rest.is_empty() {
        // SAFETY: as above.
        unsafe { call_on(rest, nr, args) }?;
    }
    Err(libc::ENOMEM)
}

/// As mincore(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, bytes: usize, vec: *mut u8) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { up_to_gap(libc::SYS_mincore, [addr as usize, bytes, vec as usize, 0, 0, 0]) })
}

/// As msync(2), except that it is no point of cancellation where a part of the arena is concerned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(addr: *mut c_void, bytes: usize, flags: i32) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { around_gaps(libc::SYS_msync, [addr as usize, bytes, flags as usize, 0, 0, 0]) })
}

/// Locking starts at the page that `addr` lies in.
pub unsafe fn lock(nr: c_long, addr: usize, bytes: usize, flags: usize) -> Answer {
    let span = pages(addr, bytes);
    let start = span.start & !(PAGE - 1);
    let whole = if addr.checked_add(bytes).is_some() && bytes != 0 { span.end - start } else { bytes };
    // SAFETY: locking changes no byte; the kernel checks what is unsound.
    unsafe { up_to_gap(nr, [if bytes == 0 { addr } else { start }, whole, flags, 0, 0, 0]) }
}
