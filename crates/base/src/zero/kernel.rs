//! Zeroing by the kernel.

use crate::raw::syscall;

/// Gives pages back and has the kernel bring others; whether it did. If not, they are zero, too, or not there.
///
/// # Safety
/// The memory must be private, anonymous, writable, and the caller's alone; whole pages.
pub unsafe fn repopulate(at: *mut u8, bytes: usize) -> bool {
    let advise = |advice: i32| {
        // SAFETY: the caller's promise; both calls leave zeroes.
        unsafe { syscall(libc::SYS_madvise, [at as usize, bytes, advice as usize, 0, 0, 0]) }.is_ok()
    };
    bytes == 0 || advise(libc::MADV_DONTNEED) && advise(libc::MADV_POPULATE_WRITE)
}
