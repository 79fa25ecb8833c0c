//! The allocator behind ours: the next one in the order of symbol lookup, usually the C library's.

use core::ffi::c_void;
use core::ptr::null_mut;

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

/// Runs before `main`: large blocks are not served where the program's own faults are to be found in them, nor where a
/// function of another allocator would be asked about blocks of ours.
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
    match behind(Function::Memalign) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
        Early => early::allocate(bytes, align),
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

/// As aligned_alloc(3).
pub unsafe fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    match behind(Function::AlignedAlloc) {
        // SAFETY: the function of that name, and the caller's promise.
        At(at) => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(at)(align, bytes)
        },
        Early => early::allocate(bytes, align),
    }
}
