//! Calls that change attributes of memory. The kernel does them; the engine only notes that blocks with changed
//! attributes must not be recycled, and keeps its background thread away.

use core::ffi::{c_long, c_ulong, c_void};

use faultless_base::SLOT;
use faultless_base::sys::isolate;
use faultless_base::sys::raw::{self, Answer, syscall};
use faultless_mm::mapping::Change;

use crate::engine::{self, Engine};
use crate::mappings::{pages, sound, status};

/// Attributes of a range change: tells the engine, if blocks are concerned.
pub fn note(addr: *const c_void, bytes: usize) {
    let span = pages(addr as usize, bytes);
    if engine::touches(span)
        && let Some(engine) = engine::settled()
    {
        engine.space.taint(span);
    }
}

/// Notes a change of attributes and makes the call.
unsafe fn changed(nr: c_long, args: [usize; 6]) -> Answer {
    note(args[0] as *const c_void, args[1]);
    // SAFETY: the caller's promise.
    unsafe { syscall(nr, args) }
}

/// As mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, bytes: usize, prot: i32) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_mprotect, [addr as usize, bytes, prot as usize, 0, 0, 0]) })
}

/// As mseal(2), which C libraries have since 2.41.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mseal(addr: *mut c_void, bytes: usize, flags: c_ulong) -> i32 {
    isolate::note_seal();
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_mseal, [addr as usize, bytes, flags as usize, 0, 0, 0]) })
}

/// As pkey_mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(addr: *mut c_void, bytes: usize, prot: i32, key: i32) -> i32 {
    if key == -1 {
        // SAFETY: the caller's promise.
        return unsafe { mprotect(addr, bytes, prot) };
    }
    if let Some(engine) = engine::settled() {
        // The kernel may refuse to drop what a key protects.
        engine.space.reference(pages(addr as usize, bytes));
    }
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_pkey_mprotect, [addr as usize, bytes, prot as usize, key as usize, 0, 0]) })
}

/// As mlock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_mlock, [addr as usize, bytes, 0, 0, 0, 0]) })
}

/// As mlock2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, bytes: usize, flags: u32) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_mlock2, [addr as usize, bytes, flags as usize, 0, 0, 0]) })
}

/// As munlock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(addr: *const c_void, bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    status(unsafe { changed(libc::SYS_munlock, [addr as usize, bytes, 0, 0, 0, 0]) })
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
    status(unsafe { changed(libc::SYS_mbind, args) }).into()
}

/// What an advice does beside what the kernel does.
enum Effect {
    /// Nothing that lasts.
    Nothing,
    /// The content goes, or the program asks for huge pages.
    Change(Change),
    /// Blocks must not be recycled.
    Taint,
}

fn effect(advice: i32) -> Effect {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED | libc::MADV_PAGEOUT => {
            Effect::Change(Change::Dropped)
        }
        libc::MADV_NORMAL
        | libc::MADV_WILLNEED
        | libc::MADV_COLD
        | libc::MADV_POPULATE_READ
        | libc::MADV_POPULATE_WRITE
        | libc::MADV_COLLAPSE => Effect::Nothing,
        libc::MADV_HUGEPAGE => Effect::Change(Change::HugeAdvised),
        _ => Effect::Taint,
    }
}

unsafe fn advised(addr: usize, bytes: usize, advice: i32) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, [addr, bytes, advice as usize, 0, 0, 0]) }
}

/// Tells the engine of an advice.
fn heed(addr: *mut c_void, bytes: usize, advice: i32) {
    let span = pages(addr as usize, bytes);
    if engine::running().is_none() {
        return;
    }
    match effect(advice) {
        Effect::Nothing => {}
        Effect::Taint => note(addr, bytes),
        Effect::Change(change) => {
            if let Some(engine) = engine::settled() {
                if engine::touches(span) {
                    engine.space.change_blocks(span, change);
                } else if bytes >= SLOT {
                    engine.space.change(span, change);
                }
            }
        }
    }
}

/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if advice == libc::MADV_DONTNEED
        && bytes >= SLOT
        && engine::running().is_some()
        && let Some(span) = sound(addr as usize, bytes)
        && !engine::touches(span)
        && let Some(engine) = engine::enter_call()
    {
        return status(drop_content(&engine, addr as usize, bytes));
    }
    heed(addr, bytes, advice);
    // SAFETY: the caller's promise.
    status(unsafe { advised(addr as usize, bytes, advice) })
}

/// `MADV_DONTNEED`: frames that the program is expected to use again soon are taken out first and come back as zeroes.
fn drop_content(engine: &Engine, addr: usize, bytes: usize) -> Answer {
    let Some(span) = sound(addr, bytes) else { return Err(libc::EINVAL) };
    let mut answer = Ok(0);
    engine.space.recycle(raw::cpu(), span, |part| {
        // SAFETY: the program's own call for a part of its range.
        answer = unsafe { advised(part.start, part.bytes(), libc::MADV_DONTNEED) };
        answer.is_ok()
    });
    answer
}

/// As posix_madvise(3): the error is the result, and `POSIX_MADV_DONTNEED` does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    heed(addr, bytes, advice);
    // SAFETY: the caller's promise.
    let answer = unsafe { advised(addr as usize, bytes, advice) };
    answer.map_or_else(|error| error, |_| 0)
}
