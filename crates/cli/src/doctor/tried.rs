//! What can only be found out by trying.

use std::mem::zeroed;

use faultless_base::sys::cgroup;
use faultless_base::sys::raw::{Answer, syscall};
use faultless_base::sys::uffd::{Uffd, Way};

/// What the kernel answered; errors are its numbers.
#[derive(Clone, Debug)]
pub struct Tried {
    /// A userfaultfd in each way, in the order of [`Way::ALL`]: the features that there are.
    pub uffd: [Result<u64, i32>; 3],
    /// A user namespace: whether userfaultfd works there, again in each way.
    pub namespace: Result<[bool; 3], i32>,
    /// An io_uring.
    pub io_uring: Result<(), i32>,
    /// Limits on address space, data and locked memory; `None`: unlimited.
    pub limits: Limits,
    /// That of the control group on memory, as the library sees it.
    pub group: cgroup::Limit,
    /// The user's number.
    pub user: u32,
}

/// Limits of this process, which its children inherit; in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: Option<u64>,
    /// `RLIMIT_DATA`.
    pub data: Option<u64>,
    /// `RLIMIT_MEMLOCK`.
    pub locked: Option<u64>,
}

impl Tried {
    /// Tries all of it.
    pub fn new() -> Self {
        Self {
            uffd: Way::ALL.map(uffd),
            namespace: namespace(),
            io_uring: io_uring(),
            limits: Limits {
                address_space: limit(libc::RLIMIT_AS),
                data: limit(libc::RLIMIT_DATA),
                locked: limit(libc::RLIMIT_MEMLOCK),
            },
            group: cgroup::limit(),
            // SAFETY: no arguments.
            user: unsafe { libc::geteuid() },
        }
    }
}

fn uffd(way: Way) -> Result<u64, i32> {
    Ok(Uffd::open(way)?.enable(0)?)
}

fn limit(kind: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    let known = unsafe { libc::getrlimit(kind, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn io_uring() -> Result<(), i32> {
    // `struct io_uring_params`: thirty words, all zero for the defaults.
    let mut params = [0u32; 30];
    // SAFETY: the structure is as large as the kernel's; the descriptor is closed.
    unsafe {
        let fd = syscall(libc::SYS_io_uring_setup, [1, params.as_mut_ptr() as usize, 0, 0, 0, 0])?;
        let _ = syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    }
    Ok(())
}

/// Tries a user namespace in a child: it cannot be left again. The child's status has a bit for each way of userfaultfd,
/// or is above them for an error number.
fn namespace() -> Result<[bool; 3], i32> {
    const NUMBERS: i32 = 8;
    // SAFETY: the child makes system calls alone, and ends without a trace; the structure is writable.
    let status = unsafe {
        let child = libc::fork();
        if child < 0 {
            return Err(*libc::__errno_location());
        }
        if child == 0 {
            let made: Answer = syscall(libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]);
            let status = match made {
                Ok(_) => (0..3).filter(|i| uffd(Way::ALL[*i]).is_ok()).fold(0, |set, i| set | 1 << i),
                Err(error) => (NUMBERS + error.number()).min(255),
            };
            libc::_exit(status);
        }
        let (mut status, mut usage): (i32, libc::rusage) = (0, zeroed());
        while libc::wait4(child, &mut status, 0, &mut usage) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                return Err(libc::ECHILD);
            }
        }
        status
    };
    match libc::WEXITSTATUS(status) {
        _ if !libc::WIFEXITED(status) => Err(libc::EINTR),
        ways @ 0..NUMBERS => Ok([0, 1, 2].map(|i| ways & 1 << i != 0)),
        number => Err(number - NUMBERS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_leaves_nothing_behind() {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = std::fs::read_link("/proc/self/ns/user").unwrap();
        let (first, open) = (Tried::new(), descriptors());
        let second = Tried::new();
        // Other tests open files meanwhile; a leak here would be six descriptors or more.
        assert!(descriptors() < open + 6);
        assert_eq!(std::fs::read_link("/proc/self/ns/user").unwrap(), before);
        assert_eq!((first.uffd, first.namespace), (second.uffd, second.namespace));
    }
}
