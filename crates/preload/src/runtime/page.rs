//! The page of counters and knobs, where others can reach it.
//!
//! It lies in this library's own memory, so that reading a knob takes no pointer. When the engine starts, shared
//! memory is mapped over it. That is a file in the directory that `faultless run` made, which outlives the process.
//! Without such a directory it is a segment of System V shared memory that is marked for removal at once. Such a
//! segment has no name, can be attached by its owner as long as a process has it mapped, and is gone with the last
//! one, however that ends. Neither takes a descriptor. Where there is neither, the page stays this process's own.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw::{self, Answer, boot_ns, syscall};
use faultless_base::sys::{limits, open, page_file};
use faultless_page::knobs::{Knob, Values};
use faultless_page::layout::Page;

use crate::runtime::{engine, inside, settings};

/// The page. All zero, so that it takes no room in the file of this library.
pub static PAGE: Page = Page::new();

const BYTES: usize = size_of::<Page>();

fn address() -> usize {
    (&raw const PAGE) as usize
}

/// Shares the page, with these knobs.
pub fn open(knobs: &Values) -> &'static Page {
    open_as(knobs, 0)
}

/// Shares the page of a process that runs plain, with the reason: a place in `faultless_page::layout::PLAIN`.
pub fn open_plain(knobs: &Values, why: u32) {
    open_as(knobs, why);
}

fn open_as(knobs: &Values, plain: u32) -> &'static Page {
    share();
    // Since `share`, only the threshold of malloc was written, with the value that it has here.
    PAGE.knobs.copy(knobs);
    PAGE.header.set_name(settings::name());
    start(plain);
    &PAGE
}

fn start(plain: u32) {
    PAGE.header.plain.store(plain, Ordering::Relaxed);
    PAGE.start(raw::process_number() as u32, boot_ns());
}

fn share() {
    let dir = settings::stats_dir();
    if dir.and_then(map_file).is_none() && attach_segment().is_ok() {
        dir.and_then(page_file::mark_lost);
    }
}

fn attach_segment() -> Answer {
    const REMAP: usize = libc::SHM_REMAP as usize;
    let flags = (libc::IPC_CREAT | 0o600) as usize;
    // SAFETY: the page is replaced by one of zeroes, which is a page; all of it is atomics.
    unsafe {
        let id = syscall(libc::SYS_shmget, [libc::IPC_PRIVATE as usize, BYTES, flags, 0, 0, 0])?;
        let attached = syscall(libc::SYS_shmat, [id, address(), REMAP, 0, 0, 0]);
        let _ = syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as usize, 0, 0, 0, 0]);
        attached
    }
}

/// Maps the file of this process over the page, made if need be.
fn map_file(dir: &[u8]) -> Option<()> {
    limits::check_file(BYTES).ok()?;
    let mut path = [0u8; page_file::PATH];
    let path = page_file::path(dir, &mut path)?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0o600, 0, 0];
    // SAFETY: a path that ends with zero; the page is replaced by the file, which has its size, and zeroes are a page.
    unsafe {
        let fd = syscall(libc::SYS_openat, args).ok()?;
        // Not only sized: a full file system shows here, not at the first store.
        let sized = syscall(libc::SYS_fallocate, [fd, 0, 0, BYTES, 0, 0]);
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as usize;
        let map = sized.and_then(|_| syscall(libc::SYS_mmap, [address(), BYTES, prot, flags, fd, 0]));
        let _ = syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        map.ok().map(|_| ())
    }
}

static PENDING: AtomicBool = AtomicBool::new(false);

/// Replaces the page; settings and the name of the program go over. The name is not asked for again: the program may
/// have changed it.
fn replace(by: impl FnOnce()) {
    let (knobs, name) = (Values::new(), PAGE.header.name());
    knobs.copy(&PAGE.knobs);
    by();
    PAGE.knobs.copy(&knobs);
    PAGE.header.put_name(name);
}

/// In a forked child: its counters start from zero, in memory of its own, until [`after_fork`]. Its knobs stay as the
/// parent had them.
pub fn detach() {
    if inside::are_calls_over() {
        return;
    }
    replace(|| {
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
        // SAFETY: replaces the page by one of zeroes at the same place; all of it is atomics.
        let _ = unsafe { syscall(libc::SYS_mmap, [address(), BYTES, prot, flags, usize::MAX, 0]) };
    });
    PENDING.store(true, Ordering::Release);
}

/// The first large request of a forked child: shares its page.
#[inline]
pub fn after_fork() {
    // A child of vfork has its parent's page.
    if PENDING.load(Ordering::Relaxed) && raw::may_call() && engine::is_home() {
        open::apart(|| {
            if PENDING.swap(false, Ordering::AcqRel) {
                replace(share);
                start(0);
            }
        });
    }
}

/// The smallest block of malloc that is served; 0: not known yet.
#[inline]
pub fn malloc_threshold() -> usize {
    PAGE.knobs.raw(Knob::MallocThreshold).load(Ordering::Relaxed) as usize
}

/// Makes that threshold known, if it is not.
pub fn know_malloc_threshold(bytes: usize) {
    let threshold = PAGE.knobs.raw(Knob::MallocThreshold);
    let _ = threshold.compare_exchange(0, bytes as u64, Ordering::Relaxed, Ordering::Relaxed);
}
