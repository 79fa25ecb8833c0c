//! What the kernel's areas have in common. A range whose areas differ only in huge-page advice is one mapping to the
//! program: the engine's advice may have split it.

mod text;

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::Span;
use faultless_base::sys::linux::has_advised_between_slots;

use crate::kernel::dispatch::syscall;

pub use text::Mapping;

/// Advice of the engine's ends between slots: it has moved there, or the program has replaced the rest.
static SHIFTED: AtomicBool = AtomicBool::new(false);

/// Notes such an end.
pub fn note_shift() {
    SHIFTED.store(true, Ordering::Relaxed);
}

const SMAPS: &CStr = c"/proc/thread-self/smaps";

/// The file, by system calls.
struct File(usize);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // Whatever is there by that name in a root directory of the program's own must not hold this thread up.
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
        // SAFETY: the path ends with a zero byte.
        let fd = unsafe {
            syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0])
        };
        fd.ok().map(Self)
    }

    /// The next bytes; how many: 0 at its end, or where it cannot be read.
    fn read(&self, buffer: &mut [u8]) -> usize {
        let (at, bytes) = (buffer.as_mut_ptr() as usize, buffer.len());
        // SAFETY: the buffer is writable.
        unsafe { syscall(libc::SYS_read, [self.0, at, bytes, 0, 0, 0]) }.unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor opened above.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// What `span` is: areas without a file that differ in huge-page advice alone are one mapping. Where the kernel does not
/// tell, the range passes for one, too. `watches`: the program has a userfaultfd.
pub fn look_up(span: Span, watches: bool) -> Mapping {
    let Some(file) = File::open(SMAPS) else { return Mapping::One };
    text::look_up(
        |buffer| file.read(buffer),
        span,
        || SHIFTED.load(Ordering::Relaxed) || has_advised_between_slots(),
        watches,
    )
}
