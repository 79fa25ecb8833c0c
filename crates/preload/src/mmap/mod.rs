//! mmap, munmap and mremap: all of them are the kernel's. Beside them frames move: in after a mapping was made, out
//! before it ends.

pub mod attributes;
pub mod files;

use core::ffi::c_void;

use faultless_base::sys::moves::Unregistered;
use faultless_base::sys::raw::{self, Answer, NoSignals};
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_mm::frame::busy::Replaced;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use crate::kernel::call::{answer, pages, sound, status};
use crate::kernel::dispatch::syscall;
use crate::kernel::libraries_behind::Call;
use crate::kernel::moved_ranges;
use crate::kernel::smaps;
use crate::mmap::attributes::{give_up, note};
use crate::runtime::areas;
use crate::runtime::engine::{self, Engine};
use crate::runtime::inside::{aside, has_interrupted};
use crate::shutdown::limits;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const FIXED: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
/// The flags of a mapping that frames move into.
const SERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

macro_rules! maps {
    ($($name:ident, $call:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            addr: *mut c_void,
            bytes: usize,
            prot: i32,
            flags: i32,
            fd: i32,
            offset: i64,
        ) -> *mut c_void {
            let args = [addr as usize, bytes, prot as usize, flags as usize, fd as usize, offset as usize];
            // SAFETY: the caller's promise.
            answer(map(args, |args| unsafe { Call::$call.pass_on(args) }))
        }
    )+ };
}

maps! {
    mmap, Mmap;
    mmap64, Mmap64;
}

/// mmap, made by `make`.
pub fn map(args: [usize; 6], make: impl Fn([usize; 6]) -> Answer) -> Answer {
    let [addr, bytes, prot, flags, ..] = args;
    let (prot, flags) = (prot as i32, flags as i32);
    if flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0 || is_memory_beside(prot, flags) {
        before_populate(bytes);
    }
    let replaced = (flags & libc::MAP_FIXED != 0).then(|| replace(addr, bytes));
    let result = limits::with_relief(|| make(args));
    if let Ok(at) = result
        && flags & FIXED != 0
    {
        note(at as *const c_void, bytes);
    }
    if let Ok(at) = result {
        let span = pages(at, bytes);
        match reason_against(prot, flags) {
            // Plain memory: a mapping known around it goes on.
            None if bytes < SLOT => forget(span),
            _ if bytes < SLOT => gone(span),
            _ if flags & libc::MAP_ANONYMOUS == 0 => {
                leave(span, None);
                files::mapped(span, prot, flags);
            }
            None if flags & FIXED == 0 => serve(span),
            None => committed(span),
            reason => leave(span, reason.filter(|_| flags & FIXED == 0)),
        }
    }
    drop(replaced);
    result
}

/// The program asks for `bytes` at once.
fn before_populate(bytes: usize) {
    if bytes >= SLOT
        && engine::running().is_some()
        && let Some(engine) = engine::enter_call().filter(|e| !e.is_retired())
    {
        engine.space.before_populate(bytes);
    }
}

/// A range that the program replaces, until this is dropped. Signals are held back: a handler may leave by a jump.
pub struct Replacing {
    _replaced: Replaced<'static>,
    no_signals: NoSignals,
}

/// Before a range is unmapped, moved, or mapped anew. None of our threads is there until the result is dropped; then
/// the notes of the range are dropped, too.
pub fn replace(addr: usize, bytes: usize) -> Option<Replacing> {
    let span = sound(addr, bytes)?;
    give_up(addr as *const c_void, bytes);
    let is_ours = engine::touches(span);
    leave_alone(span, is_ours)
}

/// The same for a range of which nothing is ours; `is_ours`: something is.
fn leave_alone(span: Span, is_ours: bool) -> Option<Replacing> {
    let engine = engine::running().filter(|engine| !engine.is_retired())?;
    (is_ours || is_known(span)).then(|| {
        // What is cut here may have advice of ours, and what comes in its place has none.
        if span.start % SLOT != 0 || span.end % SLOT != 0 {
            smaps::note_shift();
        }
        let is_inside = has_interrupted();
        aside(|| {
            let no_signals = NoSignals::new();
            let _replaced = if is_inside { engine.space.replace_inside(span) } else { engine.space.replace(span) };
            Replacing { _replaced, no_signals }
        })
    })
}

/// Why a mapping is the kernel's alone; `None` for plain private anonymous memory.
fn reason_against(prot: i32, flags: i32) -> Option<Counter> {
    let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if flags & !(SERVED | FIXED) != 0 || flags & plain != plain {
        Some(Counter::KernelFlags)
    } else if prot != READ_WRITE {
        Some(Counter::KernelProt)
    } else {
        None
    }
}

/// Whether the kernel alone gives memory there, for the program to write to: idle memory makes room for it.
fn is_memory_beside(prot: i32, flags: i32) -> bool {
    prot & libc::PROT_WRITE != 0
        && flags & (libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) == libc::MAP_ANONYMOUS
        && (flags & FIXED != 0 || reason_against(prot, flags).is_some())
}

/// Frames move into a fresh mapping.
fn serve(span: Span) {
    let Some(engine) = engine::enter_call().filter(|e| !e.is_retired()) else { return };
    if span.bytes() < engine.page.knobs.get(Knob::MmapThreshold) as usize {
        engine.space.forget(span);
        return engine.count(Counter::KernelSmall);
    }
    engine.space.uncommitted(span);
    engine.space.mapped(raw::cpu(), span);
}

/// The program has put plain memory where it wanted it: perhaps it commits a part of a reservation, and deserves huge
/// pages.
fn committed(span: Span) {
    if let Some(engine) = engine::enter_call().filter(|e| !e.is_retired()) {
        engine.space.forget(span);
        engine.space.uncommitted(span);
        engine.space.committed(span);
    }
}

/// A large range that is the kernel's alone, for this reason.
fn leave(span: Span, reason: Option<Counter>) {
    if let (Some(engine), Some(reason)) = (engine::running(), reason) {
        engine.count(reason);
    }
    gone(span);
}

/// Notes of a range, of any size, are void.
pub fn gone(span: Span) {
    forget(span);
    files::gone(span);
    if let Some(engine) = engine::running()
        && engine.space.may_have_committed(span)
        && let Some(engine) = engine::enter_call()
    {
        engine.space.uncommitted(span);
    }
}

/// Whether anything is known of it.
fn is_known(span: Span) -> bool {
    engine::running().is_some_and(|engine| engine.space.is_noted(span) || engine.space.may_have_committed(span))
}

/// Notes of its slots are void.
fn forget(span: Span) {
    // Most ranges are small, and nothing is known of them: that costs a look.
    if let Some(engine) = engine::running()
        && engine.space.is_noted(span)
        && let Some(engine) = engine::enter_call()
    {
        engine.space.forget(span);
    }
}

/// As munmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, bytes: usize) -> i32 {
    let args = [addr as usize, bytes, 0, 0, 0, 0];
    if Call::Munmap.is_seen() {
        let _replaced = replace(addr as usize, bytes);
        // SAFETY: the caller's promise.
        return status(unmapped(args, unsafe { Call::Munmap.pass_on(args) }));
    }
    status(unmap(args))
}

/// munmap, by the kernel or in its place.
pub fn unmap(args: [usize; 6]) -> Answer {
    let [addr, bytes, ..] = args;
    // Of a block, too. Where nothing is known of the range, the engine is not entered: that takes system calls.
    let replaced = replace(addr, bytes);
    if bytes >= SLOT
        && let Some(replaced) = &replaced
        && let Some(span) = sound(addr, bytes)
        && let Some(engine) = engine::enter_held(&replaced.no_signals)
    {
        let mut answer = Ok(0);
        let is_done = engine.space.unmap(raw::cpu(), span, || {
            // SAFETY: as below.
            answer = unsafe { syscall(libc::SYS_munmap, args) };
            answer.is_ok()
        });
        if is_done {
            files::gone(span);
            engine.space.uncommitted(span);
        }
        if is_done || answer.is_err() {
            return answer;
        }
    }
    // SAFETY: the program's own call; the kernel checks what is unsound.
    unmapped(args, unsafe { syscall(libc::SYS_munmap, args) })
}

/// The kernel has unmapped a range, as `result` says. Where it refused, all that is noted holds as before.
fn unmapped(args: [usize; 6], result: Answer) -> Answer {
    let [addr, bytes, ..] = args;
    let span = pages(addr, bytes);
    if result.is_ok() {
        // A small piece of a mapping that is known changes nothing about the rest.
        if span.bytes() < SLOT { forget(span) } else { gone(span) }
    }
    result
}

/// As mremap(2). The fifth argument counts with `MREMAP_FIXED` or `MREMAP_DONTUNMAP` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: i32,
    new: *mut c_void,
) -> *mut c_void {
    let args = [old as usize, old_bytes, new_bytes, flags as usize, new as usize, 0];
    // SAFETY: the caller's promise.
    answer(remap(args, |args| unsafe { Call::Mremap.pass_on(args) }))
}

/// mremap, made by `make`.
pub fn remap(args: [usize; 6], make: impl Fn([usize; 6]) -> Answer) -> Answer {
    let [old, old_bytes, new_bytes, flags, new, _] = args;
    let flags = flags as i32;
    note(old as *const c_void, old_bytes);
    let _left = leave_alone(pages(old, old_bytes), false);
    let _replaced = (flags & libc::MREMAP_FIXED != 0).then(|| replace(new, new_bytes));
    // Several areas may move half way; and an area that grows takes along what it is registered with.
    let meets_registered = flags & libc::MREMAP_FIXED != 0 || new_bytes > old_bytes;
    let mut result = limits::with_relief(|| {
        let _unregistered = meets_registered.then(unregistered);
        make(args)
    });
    if let Ok(to) = result {
        note(to as *const c_void, new_bytes);
    }
    if engine::running().is_some() {
        let from = pages(old, old_bytes);
        // Also a few pages: the engine's advice may begin or end among them.
        if result == Err(Errno::EFAULT) {
            result = in_pieces(from, new_bytes, flags, new);
        }
        if let Ok(to) = result
            && to.abs_diff(from.start) % SLOT != 0
            && from.start / SLOT != from.end / SLOT
        {
            smaps::note_shift();
        }
        if let Ok(to) = result
            && let to = pages(to, new_bytes)
            && (old_bytes.max(new_bytes) >= SLOT || is_known(from) || is_known(to))
            && let Some(engine) = engine::enter_call()
        {
            remapped(&engine, from, to, flags & libc::MREMAP_DONTUNMAP != 0);
        }
    }
    result
}

/// The kernel moves several areas in one call, and stops at one into which another thread moves frames. Nor may a
/// program register such a one.
pub fn unregistered() -> Option<Unregistered> {
    engine::running().filter(|engine| !engine.is_retired()).map(|_| aside(Unregistered::hold))
}

/// The kernel has resized or moved a mapping, or its content alone.
fn remapped(engine: &Engine, from: Span, to: Span, is_left: bool) {
    if to.start == from.start {
        let end = Span { start: to.end.min(from.end), end: to.end.max(from.end) };
        engine.space.uncommitted(end);
        return engine.space.forget(end);
    }
    files::gone(from);
    engine.space.uncommitted(to);
    if is_left {
        drop(engine.space.emptied(from));
    } else {
        engine.space.carried(from, to);
    }
    engine.space.moved(from, to);
}

/// After the kernel said `EFAULT`: perhaps only because the engine's advice has split the mapping.
fn in_pieces(from: Span, new_bytes: usize, flags: i32, to: usize) -> Answer {
    let known = flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0;
    let new_bytes = faultless_base::units::round_up(new_bytes, PAGE).filter(|&bytes| bytes != 0);
    let overlap = flags & libc::MREMAP_FIXED != 0 && !from.clip(pages(to, new_bytes.unwrap_or(0))).is_empty();
    match new_bytes {
        Some(bytes) if known && !from.is_empty() && from.start % PAGE == 0 && !overlap => {
            limits::with_relief(|| {
                let _unregistered = unregistered();
                aside(|| moved_ranges::remap(from, bytes, flags, to, areas::look_up))
            })
        }
        _ => Err(Errno::EFAULT),
    }
}
