//! mmap, munmap and mremap.

use core::ffi::c_void;

use faultless_base::sys::raw::{self, Answer, syscall};
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::knobs::Knob;
use faultless_mm::mapping::Change;
use faultless_mm::stats::Counter;

use crate::areas::is_one_mapping;
use crate::attributes::note;
use crate::engine::{self, Engine, set_errno, touches};
use crate::pieces;

/// What the C library would return for a kernel's answer.
pub fn answer(result: Answer) -> *mut c_void {
    match result {
        Ok(value) => value as *mut c_void,
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

/// The same for calls that return 0 or -1.
pub fn status(result: Answer) -> i32 {
    result.map_or_else(
        |error| {
            set_errno(error);
            -1
        },
        |value| value as i32,
    )
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const FIXED: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
/// The flags of a mapping that the arena can serve.
const SERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
/// The largest alignment that is taken from a hint, in slots (1 GiB).
const HINT_SLOTS: usize = 512;

/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    bytes: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> *mut c_void {
    let kernel = |flags: i32| {
        let args = [addr as usize, bytes, prot as usize, flags as usize, fd as usize, offset as usize];
        // SAFETY: the caller's promise.
        unsafe { syscall(libc::SYS_mmap, args) }
    };
    if flags & FIXED != 0 {
        let result = fixed(Span::new(addr as usize, bytes), flags, kernel);
        if let Ok(at) = result
            && bytes >= SLOT
        {
            replaced(Span::new(at, bytes), prot, flags);
        }
        return answer(result);
    }
    if bytes >= SLOT
        && let Some(at) = serve(addr as usize, bytes, prot, flags)
    {
        return at as *mut c_void;
    }
    answer(strange(kernel(flags), bytes))
}

/// The kernel has put a mapping of `bytes` bytes where it liked. In the arena it finds room only where the program
/// has unmapped memory by a system call of its own; what is there now must not be recycled.
fn strange(result: Answer, bytes: usize) -> Answer {
    if let Ok(at) = result {
        note(at as *const c_void, bytes, Change::Attributes);
    }
    result
}

/// As mmap64(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    bytes: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(addr, bytes, prot, flags, fd, offset) }
}

fn serve(hint: usize, bytes: usize, prot: i32, flags: i32) -> Option<usize> {
    if flags & libc::MAP_ANONYMOUS == 0 {
        return None;
    }
    let reason = if flags & !SERVED != 0 || flags & libc::MAP_PRIVATE == 0 {
        Some(Counter::KernelFlags)
    } else if prot != READ_WRITE {
        Some(Counter::KernelProt)
    } else {
        None
    };
    if let Some(reason) = reason {
        if let Some(engine) = engine::running() {
            engine.count(reason);
        }
        return None;
    }
    let engine = engine::enter().filter(|e| !e.is_retired())?;
    let bytes = faultless_base::units::round_up(bytes, PAGE)?;
    if bytes < engine.page.knobs.get(Knob::MmapThreshold) as usize {
        engine.count(Counter::KernelSmall);
        return None;
    }
    if bytes > engine.settings.memory {
        engine.count(Counter::KernelNoSpace);
        return None;
    }
    // Who gives a hint often wants its alignment more than its place.
    let align = if hint == 0 { 1 } else { (1 << hint.trailing_zeros()) / SLOT };
    engine.space.map(raw::cpu(), bytes, align.clamp(1, HINT_SLOTS))
}

/// A mapping at an address that the program insists on.
fn fixed(span: Span, flags: i32, kernel: impl Fn(i32) -> Answer) -> Answer {
    let Some(engine) = arena_call(span) else {
        if let Some(engine) = engine::running().filter(|_| touches(span)) {
            engine.space.change(span, Change::Attributes);
        }
        return kernel(flags);
    };
    if flags & libc::MAP_FIXED_NOREPLACE != 0 {
        // Of what lies beside the arena nothing is known, so it counts as taken.
        if span.clip(engine.space.span()) != span || !engine.space.is_unmapped(span) {
            return Err(libc::EEXIST);
        }
        // What stands there is the arena's own reservation, which has to be replaced.
        return claimed(&engine, span, || kernel(flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED));
    }
    claimed(&engine, span, || kernel(flags))
}

/// A call that puts a mapping over `span`; when it fails, what was unmapped stays unmapped.
fn claimed(engine: &Engine, span: Span, kernel: impl Fn() -> Answer) -> Answer {
    let vacant = engine.space.is_unmapped(span);
    engine.space.claim(span);
    let result = kernel();
    if result.is_err() && vacant {
        engine.space.unmap(span);
    }
    result
}

/// The program has put a large mapping where it wanted it. If that is memory committed inside a reservation, it may
/// deserve huge pages.
fn replaced(span: Span, prot: i32, flags: i32) {
    let plain = flags & !(SERVED | FIXED) == 0 && flags & libc::MAP_ANONYMOUS != 0;
    if plain && prot == READ_WRITE {
        if !touches(span)
            && let Some(engine) = engine::enter().filter(|e| !e.is_retired())
        {
            engine.space.uncommitted(span);
            engine.space.committed(span);
        }
    } else {
        gone(span);
    }
}

/// A large range outside the arena is no longer what it was.
fn gone(span: Span) {
    if engine::running().is_some()
        && let Some(engine) = engine::enter()
    {
        engine.space.uncommitted(span);
    }
}

/// The engine, for a call about memory of the arena with a sound range; nobody else's calls come this far.
pub fn arena_call(span: Span) -> Option<engine::Entered> {
    if span.is_empty() || span.start % PAGE != 0 || !touches(span) {
        return None;
    }
    engine::enter()
}

/// As munmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, bytes: usize) -> i32 {
    let span = pages(addr as usize, bytes);
    // SAFETY: the caller's promise.
    let kernel = |s: Span| unsafe { syscall(libc::SYS_munmap, [s.start, s.bytes(), 0, 0, 0, 0]) };
    if !touches(span) || span.start % PAGE != 0 || span.is_empty() || span.end % PAGE != 0 {
        if bytes >= SLOT {
            gone(span);
        }
        // SAFETY: the caller's promise; the kernel checks what is unsound.
        return status(unsafe { syscall(libc::SYS_munmap, [addr as usize, bytes, 0, 0, 0, 0]) });
    }
    status(unmap(span, kernel))
}

fn unmap(span: Span, kernel: impl Fn(Span) -> Answer) -> Answer {
    let Some(engine) = engine::enter() else {
        // In a signal handler that interrupted the engine: the pages must go now, the slots are lost.
        return nested_unmap(span);
    };
    let arena = engine.space.span();
    // The upper end first: the kernel refuses a range beyond the address space, and then nothing may happen.
    for outside in
        [span.clip(Span { start: arena.end, end: usize::MAX }), span.clip(Span { start: 0, end: arena.start })]
    {
        if !outside.is_empty() {
            kernel(outside)?;
        }
    }
    engine.space.unmap(span);
    Ok(0)
}

fn nested_unmap(span: Span) -> Answer {
    let Some(engine) = engine::running() else { return Err(libc::EINVAL) };
    engine.space.change(span, Change::Attributes);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let args = [span.start, span.bytes(), libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: the program unmaps this range.
    unsafe { syscall(libc::SYS_mmap, args) }.map(|_| 0)
}

/// The pages of a range, as the kernel rounds them.
pub fn pages(addr: usize, bytes: usize) -> Span {
    let end = addr.saturating_add(bytes);
    Span { start: addr, end: end.checked_next_multiple_of(PAGE).unwrap_or(end) }
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
    let kernel = || {
        let args = [old as usize, old_bytes, new_bytes, flags as usize, new as usize, 0];
        // SAFETY: the caller's promise.
        unsafe { syscall(libc::SYS_mremap, args) }
    };
    let from = pages(old as usize, old_bytes);
    let placed = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    if !(touches(from) || placed && touches(pages(new as usize, new_bytes))) {
        return answer(match kernel() {
            Err(libc::EFAULT) if engine::running().is_some() => {
                engine::enter().map_or(Err(libc::EFAULT), |e| in_pieces(&e, from, new_bytes, flags, new as usize))
            }
            result => strange(result, new_bytes),
        });
    }
    answer(remap(from, new_bytes, flags, new as usize, kernel))
}

/// After the kernel said `EFAULT`: perhaps only because the engine's advice has split the mapping.
fn in_pieces(engine: &Engine, from: Span, new_bytes: usize, flags: i32, to: usize) -> Answer {
    if from.is_empty() || engine.space.first_gap(from).is_some() {
        return Err(libc::EFAULT);
    }
    let new_bytes = faultless_base::units::round_up(new_bytes, PAGE).ok_or(libc::EINVAL)?;
    pieces::remap(from, new_bytes, flags, to)
}

fn remap(from: Span, new_bytes: usize, flags: i32, new: usize, kernel: impl Fn() -> Answer) -> Answer {
    let Some(engine) = engine::enter() else { return kernel() };
    let kernel = || match kernel() {
        Err(libc::EFAULT) => in_pieces(&engine, from, new_bytes, flags, new),
        result => result,
    };
    let new_bytes = faultless_base::units::round_up(new_bytes, PAGE).ok_or(libc::EINVAL)?;
    let known = flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0;
    if !known || from.start % PAGE != 0 || new_bytes == 0 {
        return kernel();
    }
    if engine.space.first_gap(Span::new(from.start, PAGE)).is_some() {
        return Err(libc::EFAULT);
    }
    if flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0 {
        return remap_fixed(&engine, from, Span::new(new, new_bytes), flags, kernel);
    }
    if new_bytes == from.bytes() || from.is_empty() {
        return kernel();
    }
    if new_bytes < from.bytes() {
        // Whether all of it is mapped the kernel says, by a call that changes nothing.
        // SAFETY: old and new size are the same.
        unsafe { syscall(libc::SYS_mremap, [from.start, from.bytes(), from.bytes(), 0, 0, 0]) }?;
        engine.space.unmap(Span { start: from.start + new_bytes, end: from.end });
        return Ok(from.start);
    }
    if engine.space.first_gap(from).is_some() {
        return Err(libc::EFAULT);
    }
    if !engine.is_retired() && engine.space.extend(from, new_bytes) {
        return Ok(from.start);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        // The arena lies behind the mapping, so the kernel cannot extend it either, and says what is wrong.
        return kernel();
    }
    if new_bytes <= engine.settings.memory
        && let Some(to) = engine.space.move_mapping(raw::cpu(), from, new_bytes)
    {
        return Ok(to);
    }
    engine.space.change(from, Change::Attributes);
    let to = strange(kernel(), new_bytes)?;
    engine.space.vacated(from);
    Ok(to)
}

fn remap_fixed(engine: &Engine, from: Span, to: Span, flags: i32, kernel: impl Fn() -> Answer) -> Answer {
    let overlap = to.start % PAGE != 0 || !from.clip(to).is_empty();
    if !overlap && flags & libc::MREMAP_MAYMOVE != 0 && engine.space.first_gap(from).is_some() {
        return remap_with_gap(engine, from, to, flags);
    }
    engine.space.change(from, Change::Attributes);
    let at = if flags & libc::MREMAP_FIXED != 0 && !overlap && touches(to) {
        claimed(engine, to, kernel)?
    } else {
        kernel()?
    };
    if flags & libc::MREMAP_DONTUNMAP == 0 {
        engine.space.vacated(from);
    }
    Ok(at)
}

/// The kernel would find the arena's reservation in the gap, and move or unmap that too.
fn remap_with_gap(engine: &Engine, from: Span, to: Span, flags: i32) -> Answer {
    let moved = Span::new(from.start, from.bytes().min(to.bytes()));
    let whole = engine.space.first_gap(moved).is_none() && is_one_mapping(moved);
    if flags & libc::MREMAP_DONTUNMAP != 0 || !whole {
        return Err(libc::EFAULT);
    }
    engine.space.unmap(Span { start: moved.end, end: from.end });
    let args = [moved.start, moved.bytes(), to.bytes(), flags as usize, to.start, 0];
    // SAFETY: the program asked for this move.
    remap_fixed(engine, moved, to, flags, || unsafe { syscall(libc::SYS_mremap, args) })
}
