//! Structures that the program points to, read as the kernel reads them: a bad address is its error, not ours.

use faultless_base::sys::raw::syscall;

use crate::engine;

/// What is at `at`; `None` where it cannot be read.
///
/// # Safety
/// Every pattern of bits must be a value of `T`.
pub unsafe fn read<T>(at: *const T) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    let bytes = size_of::<T>();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: bytes };
    let args = [engine::pid() as usize, &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: writes to `value` alone; what is not readable makes it fail.
    let read = unsafe { syscall(libc::SYS_process_vm_readv, args) };
    // SAFETY: all of it was written, by the caller's promise to a value.
    (read == Ok(bytes)).then(|| unsafe { value.assume_init() })
}
