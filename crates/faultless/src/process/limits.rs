//! The memory of the machine, and limits of the process that reservations of addresses would use up.

use faultless_base::raw::{syscall, unmap};
use faultless_base::sys::limits;
use faultless_base::{PAGE, SLOT};

/// The memory of this machine, in whole huge pages.
pub fn of_machine() -> Option<usize> {
    // SAFETY: a question.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    Some((usize::try_from(pages).ok()? * PAGE).next_multiple_of(SLOT))
}

/// Bytes that the process may have, where it may not have as many as there are: the smaller limit of addresses
/// (`ulimit -v`) and of data (`ulimit -d`).
pub fn memory() -> Option<usize> {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().filter_map(limits::of).min()
}

/// Whether the kernel grants so much private memory to a program that allocates it (`vm.overcommit_memory`). Regions
/// and blocks reserve addresses, which the kernel grants beyond that: filling them may then end the process. A limit of
/// the process (`ulimit -v`, `-d`) is not looked at: what a region takes of it is taken already.
pub fn is_granted(bytes: usize) -> bool {
    let can_map = |counted: i32| {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | counted);
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing, and only this function knows it.
        let at = unsafe { syscall(libc::SYS_mmap, [0, bytes, prot as usize, flags as usize, usize::MAX, 0]) };
        // SAFETY: the same.
        at.map(|at| unsafe { unmap(at, bytes) }).is_ok()
    };
    // What cannot be mapped either way lacks addresses, and not memory. With strict accounting the kernel counts both,
    // and a block when it is mapped.
    can_map(0) || !can_map(libc::MAP_NORESERVE)
}
