//! The allocator behind ours: the next one in the order of symbol lookup, usually the C library's.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `malloc` and its family, as somebody else defines them.
#[derive(Clone, Copy)]
enum Symbol {
    Malloc,
    Calloc,
    Realloc,
    Free,
    Memalign,
    Usable,
    AlignedAlloc,
}

const NAMES: [&CStr; 7] =
    [c"malloc", c"calloc", c"realloc", c"free", c"memalign", c"malloc_usable_size", c"aligned_alloc"];

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
}

const UNKNOWN: usize = 0;
const LIBC: usize = 1;
const OTHER: usize = 2;

static WHOSE: AtomicUsize = AtomicUsize::new(UNKNOWN);
static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// The address of another allocator's function; `None`: the C library's own.
#[inline]
fn other(symbol: Symbol) -> Option<usize> {
    match WHOSE.load(Ordering::Relaxed) {
        LIBC => None,
        _ => look_up(symbol),
    }
}

/// Finds out whose allocator is behind ours, and all of it at once: dlsym may itself allocate and free, which goes to
/// the C library until this is done.
#[cold]
fn look_up(symbol: Symbol) -> Option<usize> {
    if WHOSE.load(Ordering::Acquire) == UNKNOWN {
        WHOSE.store(LIBC, Ordering::Relaxed);
        for (place, name) in FOUND.iter().zip(NAMES) {
            // SAFETY: a constant name.
            place.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize, Ordering::Relaxed);
        }
        let malloc = FOUND[Symbol::Malloc as usize].load(Ordering::Relaxed);
        let is_libc = malloc == 0 || malloc == __libc_malloc as *const () as usize;
        WHOSE.store(if is_libc { LIBC } else { OTHER }, Ordering::Release);
    }
    let at = FOUND[symbol as usize].load(Ordering::Acquire);
    (WHOSE.load(Ordering::Acquire) == OTHER && at != 0).then_some(at)
}

/// As malloc(3).
#[inline]
pub unsafe fn malloc(bytes: usize) -> *mut c_void {
    match other(Symbol::Malloc) {
        // SAFETY: the function of that name, and the caller's promise.
        Some(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(at)(bytes)
        },
        // SAFETY: the caller's promise.
        None => unsafe { __libc_malloc(bytes) },
    }
}

/// As calloc(3).
#[inline]
pub unsafe fn calloc(n: usize, bytes: usize) -> *mut c_void {
    match other(Symbol::Calloc) {
        // SAFETY: the function of that name, and the caller's promise.
        Some(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(n, bytes)
        },
        // SAFETY: the caller's promise.
        None => unsafe { __libc_calloc(n, bytes) },
    }
}

/// As realloc(3).
#[inline]
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    match other(Symbol::Realloc) {
        // SAFETY: the function of that name, and the caller's promise.
        Some(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>(at)(
                block, bytes,
            )
        },
        // SAFETY: the caller's promise.
        None => unsafe { __libc_realloc(block, bytes) },
    }
}

/// As free(3).
#[inline]
pub unsafe fn free(block: *mut c_void) {
    match other(Symbol::Free) {
        // SAFETY: the function of that name, and the caller's promise.
        Some(at) => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(at)(block) },
        // SAFETY: the caller's promise.
        None => unsafe { __libc_free(block) },
    }
}

/// As memalign(3).
pub unsafe fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match other(Symbol::Memalign) {
        // SAFETY: the function of that name, and the caller's promise.
        Some(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
        // SAFETY: the caller's promise.
        None => unsafe { __libc_memalign(align, bytes) },
    }
}

/// As malloc_usable_size(3). The C library has no second name for it.
pub unsafe fn usable(block: *mut c_void) -> usize {
    let _ = other(Symbol::Usable);
    match FOUND[Symbol::Usable as usize].load(Ordering::Acquire) {
        0 => 0,
        // SAFETY: the function of that name, and the caller's promise.
        at => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(at)(block) },
    }
}

/// As aligned_alloc(3). The C library has no second name for it either.
pub unsafe fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    let _ = other(Symbol::AlignedAlloc);
    match FOUND[Symbol::AlignedAlloc as usize].load(Ordering::Acquire) {
        // SAFETY: the caller's promise.
        0 => unsafe { memalign(align, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        at => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
    }
}
