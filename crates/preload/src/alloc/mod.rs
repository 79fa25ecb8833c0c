//! malloc and its family.

mod beside;
pub mod early;
pub mod info;
mod moves;
pub mod next;
pub mod perturb;

pub use moves::{note_anywhere, note_beside};

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_base::sys::raw;
use faultless_base::{Errno, PAGE, SLOT};
use faultless_mm::Need;

use crate::kernel::call::set_errno;
use crate::kernel::dispatch;
use crate::runtime::{confined, engine, page, seen, settings};
use crate::shutdown::{limits, sandbox};

/// No request below this can be a large one; checked before anything else.
pub const SMALLEST: usize = faultless_base::UNIT;
/// The alignment that malloc guarantees.
pub const MALLOC_ALIGN: usize = 16;
/// Requests below this go to the C library, and so do those below the knob on the page.
static THRESHOLD: AtomicUsize = AtomicUsize::new(SMALLEST);

/// Whether a block was ever served, in this process or before it was forked.
static SERVED: AtomicBool = AtomicBool::new(false);

/// No block is served from now on.
pub fn stop_serving() {
    THRESHOLD.store(usize::MAX, Ordering::Relaxed);
}

/// Whether the program may have blocks of ours.
pub fn has_served() -> bool {
    SERVED.load(Ordering::Relaxed)
}

/// A large block from the engine, or null.
#[cold]
#[inline(never)]
fn large(bytes: usize, align: usize, need: Need) -> *mut c_void {
    if !settings::are_read() {
        return core::ptr::null_mut();
    }
    if page::malloc_threshold() == 0 {
        page::know_malloc_threshold(settings::malloc_threshold());
    }
    if is_small(bytes) {
        return core::ptr::null_mut();
    }
    let Some(engine) = engine::enter() else { return core::ptr::null_mut() };
    if bytes > engine.settings.memory || engine.is_retired() {
        return core::ptr::null_mut();
    }
    let Some(got) = engine.space.allocate(raw::cpu(), bytes, align, need) else {
        return core::ptr::null_mut();
    };
    if align >= PAGE {
        engine.space.note_page_aligned(got.addr);
    }
    if !has_served() && !SERVED.swap(true, Ordering::Relaxed) {
        // The C library's allocator makes itself ready with its first block, by calls that a filter may forbid later.
        // SAFETY: a block of its own.
        unsafe { next::free(next::malloc(1)) };
    }
    // It may hold signals back, and to fill a block takes long.
    drop(engine);
    let at = got.addr as *mut c_void;
    if need == Need::Zero && !got.zero {
        // SAFETY: a block of at least `bytes` bytes that no other code knows of.
        unsafe { core::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
    }
    at
}

/// Whether a block is the engine's.
#[inline]
fn is_ours(block: *mut c_void) -> bool {
    engine::owns(block as usize) && is_in_arena_block(block as usize)
}

#[cold]
fn is_in_arena_block(at: usize) -> bool {
    engine::running().is_some_and(|engine| engine.space.holds_block(at))
}

#[inline]
fn is_small(bytes: usize) -> bool {
    bytes < THRESHOLD.load(Ordering::Relaxed) || bytes < page::malloc_threshold()
}

/// A block of the C library's. It is asked twice where the arena was in the way of a limit.
#[inline]
fn once_more(ask: impl Fn() -> *mut c_void) -> *mut c_void {
    let block = ask();
    if block.is_null() && limits::relieve() { ask() } else { block }
}

// The exported functions do not call each other. Another library may take over a call by an exported name. And that
// name has no address yet where the program allocates before this library is linked.

/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { allocate(bytes) }
}

#[inline]
unsafe fn allocate(bytes: usize) -> *mut c_void {
    if !is_small(bytes) {
        let at = large(bytes, MALLOC_ALIGN, Need::Any);
        if !at.is_null() {
            return at;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { once_more(|| next::malloc(bytes)) }
}

/// As calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    if let Some(bytes) = n.checked_mul(size)
        && !is_small(bytes)
    {
        let at = large(bytes, MALLOC_ALIGN, Need::Zero);
        if !at.is_null() {
            return at;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { once_more(|| next::calloc(n, size)) }
}

/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { give_back(block) }
}

#[inline]
unsafe fn give_back(block: *mut c_void) {
    if is_ours(block) {
        release(block as usize);
    } else {
        // SAFETY: the caller's promise.
        unsafe { next::free(block) }
    }
}

#[cold]
#[inline(never)]
fn release(at: usize) {
    if sandbox::must_keep(|| usable(at)) {
        return;
    }
    if dispatch::has_begun() {
        return drop_content(at);
    }
    let done = match (engine::enter(), engine::running()) {
        (Some(engine), _) => engine.space.free(at),
        // A signal handler that interrupted the engine frees, or a child without it: a later call takes the block in.
        (None, Some(engine)) if !engine.is_being_adopted() => engine.space.free_later(at),
        // Another thread of a forked child goes through all blocks right now: this one stays, unused.
        _ => true,
    };
    assert!(done, "free(): {at:#x} is not the start of a block");
}

/// Gives the memory of a block back, and not its addresses: the engine's own system calls would be the program's to
/// handle.
#[cold]
fn drop_content(at: usize) {
    let args = [at, usable(at) / PAGE * PAGE, libc::MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: the block is not used any more.
    let _ = unsafe { dispatch::syscall(libc::SYS_madvise, args) };
    let done = engine::running().is_some_and(|engine| engine.space.free_later(at));
    assert!(done, "free(): {at:#x} is not the start of a block");
}

/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { reallocate(block, bytes) }
}

unsafe fn reallocate(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: a null block makes it a malloc.
        return unsafe { allocate(bytes) };
    }
    if !is_ours(block) {
        // SAFETY: the caller's promise.
        return unsafe { moves::adopt(block, bytes) };
    }
    if bytes == 0 {
        release(block as usize);
        return core::ptr::null_mut();
    }
    let at = block as usize;
    let old = usable(at);
    // The C library, too, makes no block of its own smaller by moving it.
    if bytes <= old && (sandbox::must_keep(|| old) || confined::is_apart()) {
        return block;
    }
    if bytes <= old && (engine::is_retired() || is_special(at)) {
        // The rest behind goes back as if it were freed, by whole slots. One slot alone would be a place for small blocks.
        if let Some(engine) = moves::enter_for_calls() {
            let _ = engine.space.resize(raw::cpu(), at, bytes.max(SLOT + PAGE));
        }
        return block;
    }
    if !is_small(bytes)
        && let Some(engine) = engine::enter().filter(|engine| !engine.is_retired())
        && bytes <= engine.settings.memory
        && let Some(moved) = engine.space.resize(raw::cpu(), at, bytes)
    {
        return moved as *mut c_void;
    }
    // SAFETY: the caller's promise.
    unsafe { moves::move_to(block, old, bytes) }
}

/// Whether the program has done more to a block of ours than to read and write it, or may watch it.
fn is_special(at: usize) -> bool {
    seen::watches() || engine::running().is_some_and(|engine| engine.space.has_attributes(at))
}

/// The bytes of a block of ours, also while a thread is in the engine.
fn usable(at: usize) -> usize {
    engine::running().map_or(0, |engine| engine.space.usable(at))
}

// No reallocarray: the C library's calls the `realloc` that is first, which may be the program's own.

/// As memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    aligned(align, bytes, || unsafe { next::memalign(align, bytes) })
}

/// A large block, or what `ask` gives.
fn aligned(align: usize, bytes: usize, ask: impl Fn() -> *mut c_void) -> *mut c_void {
    match large_aligned(align, bytes) {
        at if at.is_null() => once_more(ask),
        at => at,
    }
}

/// A large block, or null.
fn large_aligned(align: usize, bytes: usize) -> *mut c_void {
    match !is_small(bytes) && align.is_power_of_two() && align <= 64 * SLOT {
        true => large(bytes, align, Need::Any),
        false => core::ptr::null_mut(),
    }
}

/// As aligned_alloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    // The meaning of an alignment that is no power of two depends on the C library's version.
    // SAFETY: the caller's promise.
    aligned(align, bytes, || unsafe { next::aligned_alloc(align, bytes) })
}

/// As posix_memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> i32 {
    let at = match align % size_of::<usize>() {
        0 => large_aligned(align, bytes),
        // An error.
        _ => core::ptr::null_mut(),
    };
    // SAFETY: `out` is writable by the caller's promise.
    unsafe {
        if !at.is_null() {
            *out = at;
            return 0;
        }
        match next::posix_memalign(out, align, bytes) {
            libc::ENOMEM if limits::relieve() => next::posix_memalign(out, align, bytes),
            answer => answer,
        }
    }
}

/// As valloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    aligned(PAGE, bytes, || unsafe { next::valloc(bytes) })
}

/// As pvalloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match faultless_base::units::round_up(bytes, PAGE) {
        // SAFETY: the caller's promise.
        Some(whole) => aligned(PAGE, whole, || unsafe { next::pvalloc(bytes) }),
        None => {
            set_errno(Errno::ENOMEM);
            core::ptr::null_mut()
        }
    }
}

/// As malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if is_ours(block) {
        usable(block as usize)
    } else {
        // SAFETY: the caller's promise.
        unsafe { next::usable(block) }
    }
}
