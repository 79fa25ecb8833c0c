//! Calls after which the kernel may use pages of the program without a mapping. The memory of these pages must go
//! back to the kernel when the program is done with it: the kernel would still write to recycled memory, or send it.

#[cfg(target_arch = "x86_64")]
pub mod sends;

use core::arch::naked_asm;
use core::ffi::{c_int, c_uint, c_ulong, c_void};
use core::mem::MaybeUninit;

use faultless_base::sys::moves::Unregistered;
use faultless_base::sys::raw::{self, Answer};

use crate::alloc;
use crate::kernel::behind::{self, Function};
use crate::kernel::call::fetch;
use crate::kernel::call::{answer, pages, size, sound, status};
use crate::kernel::dispatch::syscall;
use crate::kernel::libraries_behind::Call;
use crate::mmap::attributes::{lasts, note};
use crate::mmap::{Replacing, gone, replace, unregistered};
use crate::runtime::engine::{self, Engine};
use crate::runtime::inside::aside;
use crate::runtime::{retire, seen};
use crate::shutdown::limits;

/// `_IOWR(0xAA, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: u32 = 0xC020_AA00;
/// Operations of io_uring_register(2) that take an array of buffers.
const REGISTER_BUFFERS: usize = 0;
const REGISTER_BUFFERS2: usize = 15;
const REGISTER_BUFFERS_UPDATE: usize = 16;

/// `_IO(0xAA, 0x00)`.
const USERFAULTFD_IOC_NEW: u32 = 0xAA00;

/// As mincore(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, bytes: usize, vec: *mut u8) -> c_int {
    before_mincore(addr, bytes);
    // SAFETY: the caller's promise.
    status(unsafe { Call::Mincore.pass_on([addr as usize, bytes, vec as usize, 0, 0, 0]) })
}

/// Before mincore(2).
pub fn before_mincore(addr: *mut c_void, bytes: usize) {
    if let Some(engine) = engine::settled()
        && let Some(span) = sound(addr as usize, bytes)
    {
        aside(|| engine.space.note_question(span));
    }
}

/// A segment over a block ends at the latest here.
const LARGEST_SEGMENT: usize = 1 << 40;
/// Pieces in an array, at most: the kernel refuses longer ones (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;
/// As many are read at once.
const CHUNK: usize = 16;

/// The beginning of `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
}

/// In its mode: missing pages are told of.
const REGISTER_MODE_MISSING: u64 = 1;

/// `struct io_uring_rsrc_register`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Resources {
    n: u32,
    _flags: u32,
    _reserved: u64,
    data: u64,
    _tags: u64,
}

/// `struct io_uring_rsrc_update2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Update {
    _offset: u32,
    _reserved: u32,
    data: u64,
    _tags: u64,
    n: u32,
    _reserved2: u32,
}

/// In its operation: the ring is a registered one.
const USE_REGISTERED_RING: usize = 1 << 31;

/// Calls `f` for each piece of memory of an array of the program's.
fn each_piece(pieces: *const libc::iovec, n: usize, f: impl Fn(*const c_void, usize)) {
    // Calls that the program does not make may be forbidden once it has confined itself.
    if engine::running().is_none_or(Engine::is_retired) || pieces.is_null() || n > MOST_PIECES {
        return;
    }
    let call = |piece: libc::iovec| f(piece.iov_base, piece.iov_len);
    let mut done = 0;
    while n - done >= CHUNK
        && let Some(chunk) = fetch(pieces.wrapping_add(done).cast::<[libc::iovec; CHUNK]>())
    {
        chunk.into_iter().for_each(call);
        done += CHUNK;
    }
    for i in done..n {
        // An array that is not readable is the kernel's to report.
        let Some(piece) = fetch(pieces.wrapping_add(i)) else { return };
        call(piece);
    }
}

/// As vmsplice(2), where no next function of its name can be jumped to.
#[cfg_attr(not(target_arch = "x86_64"), unsafe(export_name = "vmsplice"))]
pub unsafe extern "C" fn vmsplice_early(fd: c_int, pieces: *const libc::iovec, n: usize, flags: u32) -> isize {
    before_vmsplice(pieces, n);
    // SAFETY: the caller's promise.
    size(unsafe { Call::Vmsplice.pass_on([fd as usize, pieces as usize, n, flags as usize, 0, 0]) })
}

/// Before vmsplice(2): the pipe holds the pages themselves.
pub extern "C" fn before_vmsplice(pieces: *const libc::iovec, n: usize) {
    each_piece(pieces, n, |at, bytes| {
        if let Some(engine) = engine::settled() {
            aside(|| engine.space.reference(pages(at as usize, bytes)));
        }
    });
}

/// As ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let _unregistered = before_ioctl(request, argument);
    // SAFETY: the caller's promise.
    status(unsafe { Call::Ioctl.pass_on([fd as usize, request as usize, argument as usize, 0, 0, 0]) })
}

/// Before ioctl(2), during which the answer is held. Memory that the program watches by userfaultfd must not be touched
/// behind its back, and a range in which frames are on their way could not be registered.
pub fn before_ioctl(request: c_ulong, argument: *mut c_void) -> Option<Unregistered> {
    // The kernel looks at 32 bits.
    let request = request as u32;
    if retire::is_over() {
        return None;
    }
    if request == UFFDIO_REGISTER {
        before_userfaultfd();
        let unregistered = unregistered();
        if let Some(Register { start, bytes, mode }) = fetch(argument.cast()) {
            watch(start as usize, bytes as usize, mode & REGISTER_MODE_MISSING != 0);
        }
        return unregistered;
    }
    if request == USERFAULTFD_IOC_NEW {
        before_userfaultfd();
    }
    None
}

/// Before the program has a userfaultfd. What it has of ours by then may be in memory without having been touched; what
/// it gets from now on is as the kernel makes it.
pub fn before_userfaultfd() {
    let is_first = !seen::watches();
    if is_first {
        alloc::stop_serving();
    }
    seen::watch();
    if is_first
        && engine::running().is_some()
        && let Some(engine) = engine::enter_call()
    {
        engine.space.expose();
    }
}

/// The program registers this range, for missing pages or others.
fn watch(addr: usize, bytes: usize, missing: bool) {
    note(addr as *const c_void, bytes);
    if engine::running().is_some()
        && let Some(span) = sound(addr, bytes)
        && let Some(engine) = engine::enter_call()
    {
        engine.space.watch(raw::cpu(), span, missing);
    }
}

/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: u32,
) -> c_int {
    before_setsockopt(level, name);
    let args = [socket as usize, level as usize, name as usize, value as usize, bytes as usize, 0];
    // SAFETY: the caller's promise.
    status(unsafe { Call::Setsockopt.pass_on(args) })
}

/// Before setsockopt(2). With `SO_ZEROCOPY` the network sends from the pages of buffers that may be unmapped by then.
pub fn before_setsockopt(level: c_int, name: c_int) {
    if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
        retire::retire();
    }
}

/// Before send(2) and its like. The socket may have `SO_ZEROCOPY` from elsewhere.
pub extern "C" fn before_send(flags: c_int) {
    if flags & libc::MSG_ZEROCOPY != 0 && !engine::is_retired() {
        retire::retire();
    }
}

/// As shmat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    let _replaced = before_shmat(id, addr, flags);
    // SAFETY: the caller's promise.
    let at = limits::with_relief(|| unsafe {
        Call::Shmat.pass_on([id as usize, addr as usize, flags as usize, 0, 0, 0])
    });
    after_shmat(at, id);
    answer(at)
}

/// Before shmat(2), which may put a segment over any mapping. The result lives until after the call.
pub fn before_shmat(id: c_int, addr: *const c_void, flags: c_int) -> Option<Replacing> {
    let engine = engine::running().filter(|_| flags & libc::SHM_REMAP != 0)?;
    // A program that has confined itself may not be allowed to ask.
    let may_matter = engine::owns(addr as usize) || !engine.is_retired();
    may_matter.then(|| replace(addr as usize, segment_bytes(id)))?
}

/// After shmat(2): the segment may lie over a block, and over a mapping.
pub fn after_shmat(at: Answer, id: c_int) {
    // A program that has confined itself may not be allowed to ask.
    if let Ok(at) = at
        && engine::running().is_some()
        && !engine::is_retired()
    {
        let bytes = segment_bytes(id);
        note(at as *const c_void, bytes);
        gone(pages(at, bytes));
    }
}

/// How large a segment is. Where the kernel does not say, everything behind its address may be concerned.
fn segment_bytes(id: c_int) -> usize {
    let mut segment = MaybeUninit::<libc::shmid_ds>::uninit();
    let args = [id as usize, libc::IPC_STAT as usize, segment.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the structure is writable, and filled where the call succeeds.
    unsafe { syscall(libc::SYS_shmctl, args).map_or(LARGEST_SEGMENT, |_| segment.assume_init().shm_segsz) }
}

/// As process_madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const libc::iovec,
    n: usize,
    advice: c_int,
    flags: c_uint,
) -> isize {
    before_process_madvise(pieces, n, advice);
    let args = [process as usize, pieces as usize, n, advice as usize, flags as usize, 0];
    // SAFETY: the caller's promise.
    size(unsafe { Call::ProcessMadvise.pass_on(args) })
}

/// Before process_madvise(2), which may be about this process.
pub fn before_process_madvise(pieces: *const libc::iovec, n: usize, advice: c_int) {
    seen::refuse_huge();
    if engine::running().is_none() && lasts(advice) {
        // To read what it is for takes calls, which may be forbidden here.
        alloc::note_anywhere();
    }
    each_piece(pieces, n, note);
}

/// A call about a ring, which may be from elsewhere. By a ring the kernel sends from buffers that may be unmapped by
/// then (`IORING_OP_SEND_ZC`).
pub fn before_io_uring() {
    if !seen::references() {
        // The kernel may use a block after it was freed.
        alloc::stop_serving();
    }
    seen::refer();
}

/// Before io_uring_register(2), which the C library has no function for.
pub fn before_io_uring_register(args: [usize; 6]) {
    let [_, operation, argument, n, ..] = args;
    if engine::running().is_none_or(Engine::is_retired) {
        return;
    }
    let note_all = |data: u64, n: u32| each_piece(data as *const libc::iovec, n as usize, note);
    match operation as u32 as usize & !USE_REGISTERED_RING {
        REGISTER_BUFFERS => each_piece(argument as *const libc::iovec, n as u32 as usize, note),
        REGISTER_BUFFERS2 => {
            if let Some(all) = fetch(argument as *const Resources) {
                note_all(all.data, all.n);
            }
        }
        REGISTER_BUFFERS_UPDATE => {
            if let Some(some) = fetch(argument as *const Update) {
                note_all(some.data, some.n);
            }
        }
        _ => {}
    }
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
        if alloc::has_served() {
            flags &= !libc::RTLD_DEEPBIND;
        } else {
            alloc::stop_serving();
        }
    }
    // Older C libraries have it in a library of its own, which may be a part of the program that comes later.
    let to = match behind::next(Function::Dlopen) {
        0 => behind::ask(c"dlopen"),
        at => at,
    };
    Passed { to: to as *mut c_void, flags: flags as usize }
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
