//! Calls that change attributes of memory. The kernel does them; the engine only notes that memory with changed
//! attributes must not be recycled, and keeps its background thread away.

use core::ffi::{c_long, c_ulong, c_void};

use faultless_base::sys::raw::{self, Answer};
use faultless_base::{SLOT, Span};
use faultless_mm::mapping::Change;

use crate::engine::Engine;
use crate::mappings::{pages, status};
use crate::{engine, gaps};

/// Tells the engine, if memory of the arena is concerned.
pub fn note(addr: *const c_void, bytes: usize, change: Change) {
    let span = pages(addr as usize, bytes);
    if engine::touches(span)
        && let Some(engine) = engine::settled()
    {
        engine.space.change(span, change);
    }
}

/// Notes a change of attributes and makes the call.
unsafe fn changed(nr: c_long, args: [usize; 6]) -> i32 {
    note(args[0] as *const c_void, args[1], Change::Attributes);
    // SAFETY: the caller's promise.
    status(unsafe { gaps::up_to_gap(nr, args) })
}

/// The same for the calls that lock.
unsafe fn locked(nr: c_long, addr: *const c_void, bytes: usize, flags: u32) -> i32 {
    note(addr, bytes, Change::Attributes);
    // SAFETY: the caller's promise.
    status(unsafe { gaps::lock(nr, addr as usize, bytes, flags as usize) })
}

/// As mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, bytes: usize, prot: i32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { changed(libc::SYS_mprotect, [addr as usize, bytes, prot as usize, 0, 0, 0]) }
}

/// As pkey_mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(addr: *mut c_void, bytes: usize, prot: i32, key: i32) -> i32 {
    if key == -1 {
        // SAFETY: the caller's promise.
        return unsafe { mprotect(addr, bytes, prot) };
    }
    // SAFETY: the caller's promise.
    unsafe { changed(libc::SYS_pkey_mprotect, [addr as usize, bytes, prot as usize, key as usize, 0, 0]) }
}

/// As mlock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { locked(libc::SYS_mlock, addr, bytes, 0) }
}

/// As mlock2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, bytes: usize, flags: u32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { locked(libc::SYS_mlock2, addr, bytes, flags) }
}

/// As munlock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(addr: *const c_void, bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { locked(libc::SYS_munlock, addr, bytes, 0) }
}

/// As mbind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbind(
    addr: *mut c_void,
    bytes: c_ulong,
    mode: i32,
    mask: *const c_ulong,
    max: c_ulong,
    flags: u32,
) -> c_long {
    let args = [addr as usize, bytes as usize, mode as usize, mask as usize, max as usize, flags as usize];
    // SAFETY: the caller's promise.
    unsafe { changed(libc::SYS_mbind, args) }.into()
}

/// What an advice does to pages, as far as recycling goes; `None`: nothing that lasts.
fn effect(advice: i32) -> Option<Change> {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED | libc::MADV_PAGEOUT => {
            Some(Change::Dropped)
        }
        libc::MADV_NORMAL
        | libc::MADV_WILLNEED
        | libc::MADV_COLD
        | libc::MADV_POPULATE_READ
        | libc::MADV_POPULATE_WRITE
        | libc::MADV_COLLAPSE => None,
        libc::MADV_HUGEPAGE => Some(Change::HugeAdvised),
        _ => Some(Change::Attributes),
    }
}

unsafe fn advised(addr: usize, bytes: usize, advice: i32) -> Answer {
    let args = [addr, bytes, advice as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe {
        match advice {
            libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => gaps::up_to_gap(libc::SYS_madvise, args),
            _ => gaps::around_gaps(libc::SYS_madvise, args),
        }
    }
}

/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if advice == libc::MADV_DONTNEED
        && let Some(span) = gaps::sound(addr as usize, bytes)
        // Less than a slot is never kept.
        && !span.aligned_inside(SLOT).is_empty()
        && engine::touches(span)
        && let Some(engine) = engine::settled()
    {
        return status(drop_content(engine, span));
    }
    if let Some(change) = effect(advice) {
        note(addr, bytes, change);
    }
    // SAFETY: the caller's promise.
    status(unsafe { advised(addr as usize, bytes, advice) })
}

/// `MADV_DONTNEED`: the engine zeroes what it expects to be used again soon, the kernel drops the rest.
fn drop_content(engine: &Engine, span: Span) -> Answer {
    let mut answer = Ok(0);
    raw::without_signals(|| {
        engine.space.recycle(span, |part| {
            // SAFETY: the program's own call for a part of its range.
            let dropped = unsafe { advised(part.start, part.bytes(), libc::MADV_DONTNEED) };
            answer = answer.and(dropped);
        });
    });
    answer
}

/// As posix_madvise(3): the error is the result, and `POSIX_MADV_DONTNEED` does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    if let Some(change) = effect(advice) {
        note(addr, bytes, change);
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { advised(addr as usize, bytes, advice) };
    answer.map_or_else(|error| error, |_| 0)
}
