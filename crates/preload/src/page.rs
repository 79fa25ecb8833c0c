//! The counters page: a file in the directory that `faultless run` made, or memory that nobody else sees.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw::syscall;
use faultless_mm::stats::Page;

use crate::settings;

static PRIVATE: Page = Page::new();

/// The page of this process.
pub fn open() -> &'static Page {
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() } as u32;
    let page = settings::stats_dir().and_then(|dir| shared(dir, pid, 0)).unwrap_or(&PRIVATE);
    page.start(pid);
    page
}

/// Maps the file DIR/PID, made anew, at address `at` (0: anywhere).
fn shared(dir: &[u8], pid: u32, at: usize) -> Option<&'static Page> {
    let mut path = [0u8; 512];
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = pid;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let name = &digits[first..];
    let end = dir.len() + 1 + name.len();
    path.get_mut(..dir.len())?.copy_from_slice(dir);
    *path.get_mut(dir.len())? = b'/';
    path.get_mut(dir.len() + 1..end)?.copy_from_slice(name);
    let path = CStr::from_bytes_until_nul(path.get(..=end)?).ok()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0o600, 0, 0];
    let bytes = size_of::<Page>();
    // SAFETY: a path that ends with zero; the new mapping has the size of the file, and zero bytes are a page.
    unsafe {
        let fd = syscall(libc::SYS_openat, args).ok()?;
        let place = (libc::MAP_SHARED | if at == 0 { 0 } else { libc::MAP_FIXED }) as usize;
        // Not only sized: a full file system shows here, not at the first store.
        let sized = syscall(libc::SYS_fallocate, [fd, 0, 0, bytes, 0, 0]);
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let map = sized.and_then(|_| syscall(libc::SYS_mmap, [at, bytes, prot, place, fd, 0]));
        let _ = syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        Some(&*(map.ok()? as *const Page))
    }
}

static PENDING: AtomicBool = AtomicBool::new(false);

/// In a forked child: its counters start from zero, in memory of its own, until [`after_fork`].
pub fn detach(page: &'static Page) {
    let at = core::ptr::from_ref(page) as usize;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    if core::ptr::eq(page, &PRIVATE) {
        return;
    }
    // SAFETY: replaces the shared page by a private one of zeroes at the same place; all its fields are atomics.
    let _ = unsafe { syscall(libc::SYS_mmap, [at, size_of::<Page>(), prot, flags, usize::MAX, 0]) };
    PENDING.store(true, Ordering::Release);
}

/// The first large request of a forked child: shares its counters.
#[inline]
pub fn after_fork(page: &'static Page) {
    if PENDING.load(Ordering::Relaxed) && PENDING.swap(false, Ordering::AcqRel) {
        // SAFETY: no arguments.
        let pid = unsafe { libc::getpid() } as u32;
        if let Some(dir) = settings::stats_dir() {
            shared(dir, pid, core::ptr::from_ref(page) as usize);
        }
        page.start(pid);
    }
}
