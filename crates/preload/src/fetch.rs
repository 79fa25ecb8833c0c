//! What the program points to, read by the kernel's hand: a bad pointer is the kernel's to report, by the call itself.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use faultless_base::sys::raw::syscall;

use crate::engine;

/// The value at `at` as the kernel would read it; `None` where it cannot.
pub fn fetch<T: Copy>(at: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = size_of::<T>();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: bytes };
    let args = [engine::pid() as usize, &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: writes to `value` alone; what is not readable makes it fail. All types here are plain numbers.
    unsafe {
        let read = syscall(libc::SYS_process_vm_readv, args);
        (read == Ok(bytes)).then(|| value.assume_init())
    }
}
