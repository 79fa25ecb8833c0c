//! The C library's calls, looked up as any program does, so that a preloaded library comes first. Some of them are
//! made without the C library instead, so that the preloaded one does not hear of them.

use std::cell::Cell;
use std::ffi::c_void;

use crate::direct;
pub use crate::direct::Answer;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Reading and writing.
pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Private anonymous memory.
pub const ANON: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Advice the libc crate may not name: installs guard pages.
pub const GUARD_INSTALL: i32 = 102;
/// Removes guard pages.
pub const GUARD_REMOVE: i32 = 103;

/// The error number of this thread.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn status(result: i32) -> Answer {
    if result == 0 { Ok(0) } else { Err(errno()) }
}

fn place(result: *mut c_void) -> Answer {
    if result == libc::MAP_FAILED { Err(errno()) } else { Ok(result as usize) }
}

thread_local! {
    /// Which of the next calls are made without the C library: a bit for each.
    static DIRECT: Cell<u64> = const { Cell::new(0) };
}

/// Says which of this thread's next calls are made without the C library: a bit for each, again and again.
pub fn without_library(calls: u64) {
    DIRECT.set(calls);
}

/// Makes a call of the table below by the system call, if its turn is such, and else by the C library.
///
/// # Safety
/// As the call.
unsafe fn either(nr: i64, args: [usize; 6], library: impl FnOnce() -> Answer) -> Answer {
    let calls = DIRECT.get();
    DIRECT.set(calls.rotate_right(1));
    // SAFETY: the caller's promise.
    if calls & 1 == 1 { unsafe { direct::syscall(nr, args) } } else { library() }
}

/// mmap(2).
pub fn mmap(at: usize, bytes: usize, prot: i32, flags: i32, fd: i32, offset: usize) -> Answer {
    let args = [at, bytes, prot as usize, flags as usize, fd as usize, offset];
    // SAFETY: fixed places are only asked for in memory of the caller's model.
    unsafe {
        either(libc::SYS_mmap, args, || {
            place(libc::mmap(at as *mut c_void, bytes, prot, flags, fd, offset as i64))
        })
    }
}

/// munmap(2).
pub fn munmap(at: usize, bytes: usize) -> Answer {
    // SAFETY: memory of the caller's model, to which no reference exists.
    unsafe { either(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0], || status(libc::munmap(at as *mut c_void, bytes))) }
}

/// mprotect(2).
pub fn mprotect(at: usize, bytes: usize, prot: i32) -> Answer {
    let args = [at, bytes, prot as usize, 0, 0, 0];
    // SAFETY: as in `munmap`.
    unsafe { either(libc::SYS_mprotect, args, || status(libc::mprotect(at as *mut c_void, bytes, prot))) }
}

/// madvise(2).
pub fn madvise(at: usize, bytes: usize, advice: i32) -> Answer {
    let args = [at, bytes, advice as usize, 0, 0, 0];
    // SAFETY: as in `munmap`.
    unsafe { either(libc::SYS_madvise, args, || status(libc::madvise(at as *mut c_void, bytes, advice))) }
}

/// mremap(2) with all its arguments.
///
/// Huge-page advice of the library's for a part of a mapping splits it into areas. The kernel resizes only what is one
/// area. A program that makes the system call itself finds `EFAULT` then. That is known, and is not counted here.
pub fn mremap(at: usize, old: usize, new: usize, flags: i32, to: usize) -> Answer {
    let args = [at, old, new, flags as usize, to, 0];
    // SAFETY: as in `munmap`; a fixed target is memory of the caller's model too.
    let library = || place(unsafe { libc::mremap(at as *mut c_void, old, new, flags, to as *mut c_void) });
    // SAFETY: the same.
    match unsafe { either(libc::SYS_mremap, args, library) } {
        Err(libc::EFAULT) => library(),
        answer => answer,
    }
}

/// mlock(2).
pub fn mlock(at: usize, bytes: usize) -> Answer {
    // SAFETY: locking changes no byte.
    unsafe { either(libc::SYS_mlock, [at, bytes, 0, 0, 0, 0], || status(libc::mlock(at as *const c_void, bytes))) }
}

/// munlock(2).
pub fn munlock(at: usize, bytes: usize) -> Answer {
    // SAFETY: unlocking changes no byte.
    unsafe {
        either(libc::SYS_munlock, [at, bytes, 0, 0, 0, 0], || status(libc::munlock(at as *const c_void, bytes)))
    }
}

/// msync(2) with `MS_ASYNC`, which does nothing but look whether the range is mapped.
pub fn msync(at: usize, bytes: usize) -> Answer {
    // SAFETY: changes nothing.
    status(unsafe { libc::msync(at as *mut c_void, bytes, libc::MS_ASYNC) })
}

/// mincore(2); which pages are present is not told.
pub fn mincore(at: usize, bytes: usize) -> Answer {
    let mut pages = vec![0u8; bytes.div_ceil(PAGE).min(1 << 16)];
    // SAFETY: the vector has a byte for each page; longer ranges are asked about only if unsound.
    status(unsafe { libc::mincore(at as *mut c_void, bytes, pages.as_mut_ptr()) })
}

/// A file in memory of `pages` pages, page `p` full of the word `content(p)`.
pub fn file(pages: usize, content: impl Fn(usize) -> u64) -> i32 {
    use std::io::Write;
    use std::os::fd::{FromRawFd, IntoRawFd};
    // SAFETY: a constant name, and the new descriptor is the caller's alone.
    let mut file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"ops".as_ptr(), libc::MFD_CLOEXEC)) };
    for p in 0..pages {
        let page: Vec<u8> = (0..PAGE / 8).flat_map(|_| content(p).to_ne_bytes()).collect();
        file.write_all(&page).expect("a file in memory can be written");
    }
    file.into_raw_fd()
}

/// Lets `ms` milliseconds pass.
pub fn sleep_ms(ms: usize) {
    std::thread::sleep(std::time::Duration::from_millis(ms as u64));
}
