//! Limits of the addresses that the process may have, and of its files.

use super::raw::{self, leading_number, read_file, syscall};
use crate::Errno;

/// The limit of a resource; `RLIM64_INFINITY`: there is none.
fn ask(resource: u32) -> Result<u64, Errno> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: this process's own limit, and a structure to write to.
    unsafe { syscall(libc::SYS_prlimit64, [0, resource as usize, 0, &raw mut limit as usize, 0, 0]) }?;
    Ok(limit.rlim_cur)
}

/// The limit of a resource (`RLIMIT_…`), if there is one.
pub fn of(resource: u32) -> Option<usize> {
    let limit = ask(resource).ok().filter(|limit| *limit != libc::RLIM64_INFINITY);
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether a file may have `bytes` bytes; EFBIG if not, or if that is not known. To make one longer than the limit ends
/// the program (SIGXFSZ).
pub fn check_file(bytes: usize) -> Result<(), Errno> {
    match ask(libc::RLIMIT_FSIZE) {
        Ok(limit) if limit >= bytes as u64 => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}

/// The limit because of which the kernel has likely refused addresses, if there is one. It is asked after the call that
/// failed, which may have given some back.
pub fn of_addresses() -> Option<&'static str> {
    let most = leading_number(read_file(c"/proc/sys/vm/max_map_count", &mut [0; 32]));
    if most.zip(areas()).is_some_and(|(most, areas)| areas >= most - most / 16) {
        return Some("vm.max_map_count");
    }
    let limits = [(libc::RLIMIT_AS, "`ulimit -v`"), (libc::RLIMIT_DATA, "`ulimit -d`")];
    limits.into_iter().find(|(resource, _)| of(*resource).is_some()).map(|(_, name)| name)
}

/// Areas of memory of the process. It needs no memory, of which there may be none.
fn areas() -> Option<u64> {
    let mut file = raw::File::open(c"/proc/self/maps")?;
    let (mut areas, mut text) = (0, [0; 4096]);
    loop {
        match file.read(&mut text) {
            0 => return Some(areas),
            read => areas += text[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}
