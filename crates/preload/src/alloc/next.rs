//! The allocator behind ours: the next one in the order of symbol lookup, usually the C library's.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::alloc::{self, early};
use crate::kernel::library::{Library, any_behind, find};

/// `malloc` and its family, as another library defines them.
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

/// Other functions that take blocks, of an allocator behind ours.
const BESIDES: [&CStr; 4] = [c"reallocarray", c"free_sized", c"sallocx", c"tc_free"];

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
/// Whether the function that tells the size of a block is of the allocator that has the block.
static TELLS_SIZES: AtomicBool = AtomicBool::new(false);
static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// The allocator behind us.
enum Behind {
    /// The C library, by its own names of the functions.
    Libc,
    /// A function at this address. There may be blocks of [`early`].
    Other(usize),
    /// [`early`] alone, as long as this library is not linked.
    Early,
}
use Behind::{Early, Libc, Other};

#[inline]
fn behind(symbol: Symbol) -> Behind {
    match WHOSE.load(Ordering::Relaxed) {
        LIBC => Libc,
        _ => look_up(symbol),
    }
}

#[cold]
fn look_up(symbol: Symbol) -> Behind {
    if !crate::kernel::linked::is_linked() {
        return Early;
    }
    look_up_all();
    match FOUND[symbol as usize].load(Ordering::Acquire) {
        at if at != 0 && WHOSE.load(Ordering::Acquire) == OTHER => Other(at),
        _ => Libc,
    }
}

/// Finds out whose allocator is behind ours, and all of it at once: dlsym may itself allocate and free, which goes to
/// the C library until this is done.
pub fn look_up_all() {
    if WHOSE.load(Ordering::Acquire) != UNKNOWN {
        return;
    }
    WHOSE.store(LIBC, Ordering::Relaxed);
    let library = Library::c_library();
    let is_libc = |at: usize| at == 0 || library.is_some_and(|library| library.has(at));
    // An allocator may define some of the functions only, and the C library the others.
    let (own, _) = NAMES.split_at(Symbol::Usable as usize);
    let alone = !any_behind();
    let is_whole = alone || own.iter().all(|name| is_libc(find(name)));
    let debugs = !alone && is_whole && !is_libc(find_base(c"malloc"));
    if debugs {
        // The program's own faults are to be found, also in its large blocks.
        alloc::stop_serving();
    }
    // The way without a look-up is for a program that has no early block.
    let libc = is_whole && !debugs && !early::was_asked();
    // The C library's own have a second name, but the last ones.
    let known = if libc { own.len() } else { 0 };
    for (place, name) in FOUND.iter().zip(NAMES).skip(known) {
        place.store(if debugs { find_base(name) } else { find(name) }, Ordering::Relaxed);
    }
    let found = |symbol: Symbol| FOUND[symbol as usize].load(Ordering::Relaxed);
    let sizes = Library::of(found(Symbol::Usable));
    let blocks = if libc { library } else { Library::of(found(Symbol::Realloc)) };
    TELLS_SIZES.store(sizes.is_some() && sizes == blocks, Ordering::Relaxed);
    WHOSE.store(if libc { LIBC } else { OTHER }, Ordering::Release);
}

/// Runs before `main`: a function of another allocator would be asked about blocks of ours.
pub fn look_for_others() {
    let library = Library::c_library();
    let is_libc = |at: usize| at == 0 || library.is_some_and(|library| library.has(at));
    if any_behind() && BESIDES.iter().any(|name| !is_libc(find(name))) {
        alloc::stop_serving();
    }
}

/// The same, also where the function has the C library's oldest version only. The C library's own debugging allocator
/// hides its functions from a look-up without a version.
fn find_base(name: &CStr) -> usize {
    #[cfg(target_arch = "x86_64")]
    const BASE: [&CStr; 2] = [c"GLIBC_2.2.5", c"GLIBC_2.16"];
    #[cfg(not(target_arch = "x86_64"))]
    const BASE: [&CStr; 1] = [c"GLIBC_2.17"];
    // SAFETY: constant names.
    let of = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) as usize };
    BASE.iter().map(|version| of(version)).find(|at| *at != 0).unwrap_or(0)
}

/// As malloc(3).
#[inline]
pub unsafe fn malloc(bytes: usize) -> *mut c_void {
    match behind(Symbol::Malloc) {
        // SAFETY: the caller's promise.
        Libc => unsafe { __libc_malloc(bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        Other(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(at)(bytes)
        },
        Early => early::allocate(bytes, 1),
    }
}

/// As calloc(3).
#[inline]
pub unsafe fn calloc(n: usize, bytes: usize) -> *mut c_void {
    match behind(Symbol::Calloc) {
        // SAFETY: the caller's promise.
        Libc => unsafe { __libc_calloc(n, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        Other(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(n, bytes)
        },
        Early => early::allocate(n.saturating_mul(bytes), 1),
    }
}

/// As realloc(3).
#[inline]
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    match behind(Symbol::Realloc) {
        // SAFETY: the caller's promise.
        Libc => unsafe { __libc_realloc(block, bytes) },
        // SAFETY: the caller's promise.
        Early | Other(_) if early::holds(block) => unsafe { leave_early(block, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        Other(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>(at)(
                block, bytes,
            )
        },
        Early => early::allocate(bytes, 1),
    }
}

/// As realloc(3), for a block of [`early`].
unsafe fn leave_early(block: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 {
        return null_mut();
    }
    // SAFETY: the caller's promise.
    let new = unsafe { malloc(bytes) };
    if !new.is_null() {
        early::copy(block, new, bytes);
    }
    new
}

/// As free(3).
#[inline]
pub unsafe fn free(block: *mut c_void) {
    match behind(Symbol::Free) {
        // SAFETY: the caller's promise.
        Libc => unsafe { __libc_free(block) },
        Other(_) if early::holds(block) => {}
        // SAFETY: the function of that name, and the caller's promise.
        Other(at) => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(at)(block) },
        Early => early::free(block),
    }
}

/// As memalign(3).
pub unsafe fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match behind(Symbol::Memalign) {
        // SAFETY: the caller's promise.
        Libc => unsafe { __libc_memalign(align, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        Other(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
        Early => early::allocate(bytes, align),
    }
}

/// As malloc_usable_size(3). The C library has no second name for it.
pub unsafe fn usable(block: *mut c_void) -> usize {
    if early::holds(block) {
        return early::usable(block);
    }
    let _ = behind(Symbol::Usable);
    match FOUND[Symbol::Usable as usize].load(Ordering::Acquire) {
        0 => 0,
        // SAFETY: the function of that name, and the caller's promise.
        at => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(at)(block) },
    }
}

/// How many bytes of a block may be copied; `None` where its allocator does not say.
pub unsafe fn size(block: *mut c_void) -> Option<usize> {
    // SAFETY: the caller's promise.
    (early::holds(block) || TELLS_SIZES.load(Ordering::Relaxed)).then(|| unsafe { usable(block) })
}

/// As aligned_alloc(3). The C library has no second name for it either.
pub unsafe fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    let _ = behind(Symbol::AlignedAlloc);
    match FOUND[Symbol::AlignedAlloc as usize].load(Ordering::Acquire) {
        // SAFETY: the caller's promise.
        0 => unsafe { memalign(align, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        at => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
    }
}
