//! The memory of the machine, and limits of the process that reservations of addresses would use up.

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
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().filter_map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a structure to write to.
        unsafe { libc::getrlimit(resource, &mut limit) };
        (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    });
    limits.min().map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
