//! The allocator behind ours: the next one in the order of symbol lookup, usually the C library's.
//!
//! Each function passes on to the next one of its own name: that may call another one of the family by its name, which is
//! ours again.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use faultless_base::PAGE;

use crate::alloc::{self, early};
use crate::kernel::behind::{self, Function, are_together, is_foreign};

/// Other functions that take blocks, of an allocator behind ours.
const BESIDES: [Function; 4] = [Function::Reallocarray, Function::FreeSized, Function::Sallocx, Function::TcFree];

/// The allocator behind us.
enum Behind {
    /// A function at this address.
    Function(usize),
    /// [`early`] alone, as long as the next functions are not known.
    Early,
}
use Behind::{Early, Function as At};

#[inline]
fn behind(function: Function) -> Behind {
    match behind::next(function) {
        0 => Early,
        at => At(at),
    }
}

/// Runs before `main`. Large blocks are not served where the program's own faults are to be found in them. Nor are
/// they where a function of another allocator would be asked about blocks of ours.
pub fn look_for_others() {
    if behind::debugs() || BESIDES.into_iter().any(is_foreign) {
        alloc::stop_serving();
    }
}

/// As malloc(3).
#[inline]
pub unsafe fn malloc(bytes: usize) -> *mut c_void {
    match behind(Function::Malloc) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(at)(bytes) },
        Early => early::allocate(bytes, 1),
    }
}

/// As calloc(3).
#[inline]
pub unsafe fn calloc(n: usize, bytes: usize) -> *mut c_void {
    match behind(Function::Calloc) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(n, bytes)
        },
        Early => early::allocate(n.saturating_mul(bytes), 1),
    }
}

/// As realloc(3).
#[inline]
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    match behind(Function::Realloc) {
        // SAFETY: the caller's promise.
        _ if early::holds(block) => unsafe { leave_early(block, bytes) },
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe {
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
    match behind(Function::Free) {
        At(_) if early::holds(block) => {}
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(at)(block) },
        Early => early::free(block),
    }
}

/// As memalign(3).
pub unsafe fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { aligned(Function::Memalign, align, bytes) }
}

/// As aligned_alloc(3).
pub unsafe fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { aligned(Function::AlignedAlloc, align, bytes) }
}

/// Asks one of the two functions that take an alignment and a size.
unsafe fn aligned(function: Function, align: usize, bytes: usize) -> *mut c_void {
    type Aligned = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    match behind(function) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, Aligned>(at)(align, bytes) },
        Early => early::allocate(bytes, align),
    }
}

/// As posix_memalign(3).
pub unsafe fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    match behind(Function::PosixMemalign) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, PosixMemalign>(at)(out, align, bytes) },
        Early if !align.is_power_of_two() || align % size_of::<usize>() != 0 => libc::EINVAL,
        Early => {
            let block = early::allocate(bytes, align);
            if block.is_null() {
                return libc::ENOMEM;
            }
            // SAFETY: the caller's promise.
            unsafe { *out = block };
            0
        }
    }
}

/// As valloc(3).
pub unsafe fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { of_pages(Function::Valloc, bytes) }
}

/// As pvalloc(3).
pub unsafe fn pvalloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { of_pages(Function::Pvalloc, bytes) }
}

/// Asks one of the two functions that give whole pages. Not every C library has both.
unsafe fn of_pages(function: Function, bytes: usize) -> *mut c_void {
    type OfPages = unsafe extern "C" fn(usize) -> *mut c_void;
    match behind(function) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, OfPages>(at)(bytes) },
        Early => match bytes.checked_next_multiple_of(PAGE) {
            // SAFETY: the caller's promise.
            Some(whole) => unsafe { memalign(PAGE, whole) },
            None => null_mut(),
        },
    }
}

/// As malloc_usable_size(3).
pub unsafe fn usable(block: *mut c_void) -> usize {
    match behind(Function::Usable) {
        _ if early::holds(block) => early::usable(block),
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(at)(block) },
        Early => 0,
    }
}

/// How many bytes of a block may be copied; `None` where its allocator does not say.
pub unsafe fn size(block: *mut c_void) -> Option<usize> {
    let tells = || are_together(Function::Usable, Function::Realloc);
    // SAFETY: the caller's promise.
    (early::holds(block) || tells()).then(|| unsafe { usable(block) })
}

/// Whether a block is a mapping of its own, which goes to the kernel as a whole when it is freed. Of the C library alone:
/// there a bit before the block says so (`IS_MMAPPED` of glibc's malloc.c).
pub unsafe fn is_mapping(block: *mut c_void) -> bool {
    const IS_MMAPPED: usize = 2;
    !early::holds(block)
        && !is_foreign(Function::Memalign)
        // SAFETY: the word before a block is its size, with such bits.
        && unsafe { block.cast::<usize>().sub(1).read() } & IS_MMAPPED != 0
}
