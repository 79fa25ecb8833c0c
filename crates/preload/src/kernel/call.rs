//! Calls as a program makes them: their ranges, what they point to, and how the C library tells their answers.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use faultless_base::sys::raw::Answer;
use faultless_base::{Errno, PAGE, Span};

use crate::kernel::dispatch::syscall;
use crate::kernel::linked::is_linked;

/// The calling thread's error number; 0 as long as its address cannot be known.
pub fn errno() -> Errno {
    if !is_linked() {
        return Errno::new(0);
    }
    // SAFETY: the C library's per-thread variable.
    Errno::new(unsafe { *libc::__errno_location() })
}

/// Sets the calling thread's error number.
pub fn set_errno(error: Errno) {
    if !is_linked() {
        return;
    }
    // SAFETY: the C library's per-thread variable.
    unsafe { *libc::__errno_location() = error.number() }
}

/// Called by functions in assembly when the kernel reports an error: what they return then.
pub unsafe extern "C" fn fail(error: c_int) -> isize {
    set_errno(Errno::new(error));
    -1
}

/// The C library's return value for a kernel's answer.
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

/// The same for calls that return a size or -1.
pub fn size(result: Answer) -> isize {
    answer(result) as isize
}

/// The range of a call as the kernel takes it; `None` when it will refuse it, or do nothing.
pub fn sound(addr: usize, bytes: usize) -> Option<Span> {
    let end = addr.checked_add(bytes)?.checked_next_multiple_of(PAGE)?;
    (addr % PAGE == 0 && bytes != 0).then_some(Span { start: addr, end })
}

/// The pages of a range, as the kernel rounds them.
pub fn pages(addr: usize, bytes: usize) -> Span {
    let end = addr.saturating_add(bytes);
    Span { start: addr, end: end.checked_next_multiple_of(PAGE).unwrap_or(end) }
}

/// This process.
pub fn pid() -> i32 {
    // Not by the C library, which may not be linked yet.
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// The value at `at`, read by the kernel; `None` where it cannot. The call itself reports a bad pointer.
pub fn fetch<T: Copy>(at: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = size_of::<T>();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: bytes };
    // By a call of the program's: it may be made in a handler that interrupted the engine.
    // SAFETY: no arguments.
    let thread = unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
    let args = [thread, &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: writes to `value` alone; what is not readable makes it fail. All types here are plain numbers.
    unsafe {
        match syscall(libc::SYS_process_vm_readv, args) {
            Ok(read) => (read == bytes).then(|| value.assume_init()),
            Err(Errno::EFAULT) => None,
            // The call itself is refused. The program means its argument to be readable.
            Err(_) => (!at.is_null()).then(|| at.read_unaligned()),
        }
    }
}
