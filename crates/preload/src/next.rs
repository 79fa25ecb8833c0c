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
}

const NAMES: [&CStr; 6] = [c"malloc", c"calloc", c"realloc", c"free", c"memalign", c"malloc_usable_size"];

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
static FOUND: [AtomicUsize; 6] = [const { AtomicUsize::new(0) }; 6];

/// The address of another allocator's function; `None`: the C library's own.
#[inline]
fn other(symbol: Symbol) -> Option<usize> {
    match WHOSE.load(Ordering::Relaxed) {
        LIBC => None,
        _ => look_up(symbol),
    }
}

#[cold]
fn look_up(symbol: Symbol) -> Option<usize> {
    if WHOSE.load(Ordering::Acquire) == UNKNOWN {
        // What dlsym itself allocates comes from the C library.
        WHOSE.store(LIBC, Ordering::Relaxed);
        // SAFETY: a constant name.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[0].as_ptr()) } as usize;
        let whose = if next == 0 || next == __libc_malloc as *const () as usize { LIBC } else { OTHER };
        WHOSE.store(whose, Ordering::Release);
        if whose == LIBC {
            return None;
        }
    }
    let place = &FOUND[symbol as usize];
    if place.load(Ordering::Acquire) == 0 {
        // SAFETY: a constant name.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[symbol as usize].as_ptr()) } as usize;
        place.store(next, Ordering::Release);
    }
    Some(place.load(Ordering::Acquire)).filter(|&at| at != 0)
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

/// As malloc_usable_size(3). The C library has no second name for it, so it is always looked up.
pub unsafe fn usable(block: *mut c_void) -> usize {
    let place = &FOUND[Symbol::Usable as usize];
    if place.load(Ordering::Acquire) == 0 {
        // SAFETY: a constant name.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[Symbol::Usable as usize].as_ptr()) };
        place.store(next as usize, Ordering::Release);
    }
    match place.load(Ordering::Acquire) {
        0 => 0,
        // SAFETY: the function of that name, and the caller's promise.
        at => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(at)(block) },
    }
}
