//! The most memory that a program had at once.

use std::mem::zeroed;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Runs a command to its end: how it ended, and the bytes that it had in memory at most, or one of its own children.
pub fn peak(command: &mut Command) -> (ExitStatus, u64) {
    let pid = command.spawn().expect("the command starts").id() as i32;
    // SAFETY: zero bytes are a value of the structure, and both outputs are writable. Nobody else waits for this child.
    let (status, usage) = unsafe {
        let (mut status, mut usage): (i32, libc::rusage) = (0, zeroed());
        assert_eq!(libc::wait4(pid, &mut status, 0, &mut usage), pid, "the command is a child of this process");
        (status, usage)
    };
    (ExitStatus::from_raw(status), usage.ru_maxrss as u64 * 1024)
}
