//! What the standard library has no call for: a child that dies with us, its resource usage, its whole group.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// What a finished child used, its own waited-for children included.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Usage {
    /// Seconds in user mode.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Largest resident set of any process of it, in bytes.
    pub resident: u64,
    /// How often a process was made to leave its CPU.
    pub switches: u64,
    /// How often one left it to wait.
    pub sleeps: u64,
}

/// Makes the child the head of a process group of its own, killed when this process ends for whatever reason.
pub fn tie(command: &mut Command) {
    command.process_group(0);
    // SAFETY: prctl is async-signal-safe and takes no pointer here.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// Waits for the child, and says how it ended and what it used.
pub fn wait(pid: u32) -> io::Result<(ExitStatus, Usage)> {
    let mut status = 0;
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are writable; the child is ours and no other thread waits for it.
    while unsafe { libc::wait4(pid as i32, &mut status, 0, &mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let used = Usage {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        resident: usage.ru_maxrss as u64 * 1024,
        switches: usage.ru_nivcsw as u64,
        sleeps: usage.ru_nvcsw as u64,
    };
    Ok((ExitStatus::from_raw(status), used))
}

/// Processor time of this process and all its threads, in seconds.
pub struct Times {
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

/// What this process has used so far.
pub fn own_times() -> io::Result<Times> {
    let usage = own_usage()?;
    Ok(Times { user: seconds(usage.ru_utime), system: seconds(usage.ru_stime) })
}

/// Page faults that the kernel has resolved for this process so far, minor and major.
pub fn own_faults() -> io::Result<u64> {
    let usage = own_usage()?;
    Ok((usage.ru_minflt + usage.ru_majflt) as u64)
}

fn own_usage() -> io::Result<libc::rusage> {
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place is writable.
    match unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } {
        0 => Ok(usage),
        _ => Err(io::Error::last_os_error()),
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Kills what is left of a child's group. The group may be gone already.
pub fn kill_group(pid: u32) {
    // SAFETY: no pointers; the group was made by [`tie`].
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}

/// Forks a child that ends at once, and waits for it.
pub fn fork_once() -> io::Result<()> {
    // SAFETY: the child does nothing but end.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: ends the child without running anything of the parent's.
        0 => unsafe { libc::_exit(0) },
        child => wait(child as u32).map(drop),
    }
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: takes and changes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Whether two processes have the same memory, as parent and child have after vfork.
pub fn share_memory(one: u32, other: u32) -> bool {
    /// Of the kernel's `enum kcmp_type`.
    const KCMP_VM: libc::c_long = 1;
    // SAFETY: no pointers. A kernel without the call, or one that refuses it, gives -1.
    unsafe { libc::syscall(libc::SYS_kcmp, one as libc::c_long, other as libc::c_long, KCMP_VM, 0, 0) == 0 }
}
