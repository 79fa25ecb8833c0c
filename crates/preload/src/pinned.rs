//! Calls after which the kernel may use pages of the program's without a mapping: their memory must go back to the
//! kernel when the program is done with it, since recycled it would still be written to, or sent.

use core::arch::naked_asm;
use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw::{self, Answer};
use faultless_mm::stats::Counter;

use crate::attributes::note;
use crate::mappings::{pages, sound, status};
use crate::{engine, given};

/// `_IOWR(0xAA, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: c_ulong = 0xC020_AA00;
/// Operations of io_uring_register(2) that take an array of buffers.
const REGISTER_BUFFERS: usize = 0;
const REGISTER_BUFFERS2: usize = 15;
const REGISTER_BUFFERS_UPDATE: usize = 16;

/// `_IO(0xAA, 0x00)`.
const USERFAULTFD_IOC_NEW: c_ulong = 0xAA00;

/// Whether the program will look what of its memory is resident.
static LOOKS: AtomicBool = AtomicBool::new(false);

/// The program will look what of its memory is resident.
pub fn look() {
    LOOKS.store(true, Ordering::SeqCst);
    if let Some(engine) = engine::settled() {
        engine.space.note_look();
    }
}

/// Whether it will, as far as known.
pub fn looks() -> bool {
    LOOKS.load(Ordering::SeqCst)
}

/// The program looks what of this range is resident.
fn expose(addr: usize, bytes: usize) {
    if engine::running().is_some()
        && let Some(span) = sound(addr, bytes)
        && let Some(engine) = engine::enter_call()
    {
        engine.space.expose(raw::cpu(), span);
    }
}

/// As mincore(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, bytes: usize, vec: *mut u8) -> c_int {
    expose(addr as usize, bytes);
    // SAFETY: the caller's promise.
    status(unsafe { raw::syscall(libc::SYS_mincore, [addr as usize, bytes, vec as usize, 0, 0, 0]) })
}

/// `struct uffdio_range`, the first field of `struct uffdio_register`.
#[repr(C)]
struct UffdRange {
    start: u64,
    bytes: u64,
}

/// `struct io_uring_rsrc_register` and, with other names, `struct io_uring_rsrc_update2`: the address of the
/// buffers is their third word, their number the first or the last half-word.
#[repr(C)]
struct Resources {
    n: u32,
    _flags: u32,
    _reserved: u64,
    data: u64,
    _tags: u64,
}

/// Whether the kernel refuses to move the pages of a mapping as long as it uses them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It does: they are pinned.
    Pinned,
    /// It does not: it has references to them that look like any other.
    Referenced,
}

/// The kernel will use these pieces of memory.
fn note_pieces(pieces: *const libc::iovec, n: usize, hold: Hold) {
    if engine::running().is_none() || pieces.is_null() {
        return;
    }
    for i in 0..n.min(1 << 16) {
        // SAFETY: a piece is two numbers.
        let Some(piece) = (unsafe { given::read(pieces.wrapping_add(i)) }) else { return };
        note(piece.iov_base, piece.iov_len);
        if hold == Hold::Referenced
            && let Some(engine) = engine::enter_call()
        {
            // Their frames are left to the kernel.
            engine.space.forget(pages(piece.iov_base as usize, piece.iov_len));
        }
    }
}

/// As vmsplice(2): the pipe holds the pages themselves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, pieces: *const libc::iovec, n: usize, flags: u32) -> isize {
    note_pieces(pieces, n, Hold::Referenced);
    // SAFETY: the caller's promise.
    let answer =
        unsafe { raw::syscall(libc::SYS_vmsplice, [fd as usize, pieces as usize, n, flags as usize, 0, 0]) };
    answer.map_or_else(
        |error| {
            engine::set_errno(error);
            -1
        },
        |n| n as isize,
    )
}

/// As ioctl(2). Memory that the program watches by userfaultfd must not be touched behind its back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: a range is two numbers.
    let range = || unsafe { given::read(argument.cast::<UffdRange>()) };
    if request == UFFDIO_REGISTER
        && let Some(range) = range()
    {
        note(range.start as *const c_void, range.bytes as usize);
        look();
        expose(range.start as usize, range.bytes as usize);
    } else if request == USERFAULTFD_IOC_NEW {
        look();
    }
    // SAFETY: the caller's promise.
    status(unsafe { raw::syscall(libc::SYS_ioctl, [fd as usize, request as usize, argument as usize, 0, 0, 0]) })
}

/// As setsockopt(2). With `SO_ZEROCOPY` the network sends from the pages of buffers that may be unmapped by then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: u32,
) -> c_int {
    if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
        engine::retire();
    }
    let args = [socket as usize, level as usize, name as usize, value as usize, bytes as usize, 0];
    // SAFETY: the caller's promise.
    status(unsafe { raw::syscall(libc::SYS_setsockopt, args) })
}

/// As io_uring_register(2), which the C library has no function for.
pub unsafe fn io_uring_register(args: [usize; 6]) -> Answer {
    let [_, operation, argument, n, ..] = args;
    match operation {
        REGISTER_BUFFERS => note_pieces(argument as *const libc::iovec, n, Hold::Pinned),
        REGISTER_BUFFERS2 | REGISTER_BUFFERS_UPDATE => {
            // SAFETY: resources are numbers.
            if let Some(resources) = unsafe { given::read(argument as *const Resources) } {
                let n = if operation == REGISTER_BUFFERS2 { resources.n as usize } else { n };
                note_pieces(resources.data as *const libc::iovec, n, Hold::Pinned);
            }
        }
        _ => {}
    }
    // SAFETY: the caller's promise.
    unsafe { raw::syscall(libc::SYS_io_uring_register, args) }
}

/// What our `dlopen` passes on to, and with which flags.
#[repr(C)]
struct Passed {
    to: *mut c_void,
    flags: usize,
}

/// Called by our `dlopen`. A library with `RTLD_DEEPBIND` uses the C library's allocator whatever is preloaded, and
/// may free what the program allocated. If we have not served a block yet we never will; if we have, the library
/// must find our functions, so the flag goes.
unsafe extern "C" fn before_dlopen(flags: c_int) -> Passed {
    let mut flags = flags;
    if flags & libc::RTLD_DEEPBIND != 0 {
        if engine::running().is_some_and(|engine| engine.page.sum(Counter::MallocServed) > 0) {
            flags &= !libc::RTLD_DEEPBIND;
        } else {
            crate::blocks::stop_serving();
        }
    }
    // SAFETY: a constant name.
    let to = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    Passed { to, flags: flags as usize }
}

/// As dlopen(3). It jumps to the real one, which looks at its caller's address.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi", "push rsi", "sub rsp, 8",
        "mov edi, esi",
        "call {before}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "mov esi, edx",
        "jmp rax",
        before = sym before_dlopen,
    )
}
