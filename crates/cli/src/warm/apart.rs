//! Starts the daemon as a process of its own: no child of its starter, and with nothing that is open or blocked there.
//!
//! A program may take the place of the process that starts the daemon. Then a child of that process would be the
//! program's, which waits for its children. So a process between the two starts the daemon, and ends at once.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::sys::read_all;
use crate::said::complain;

/// Whether a process that loses its parent may become this one's child: the first process of its namespace, and one
/// that asked for it (`PR_SET_CHILD_SUBREAPER`).
pub fn takes_orphans() -> bool {
    let mut takes: libc::c_int = 0;
    // SAFETY: the number is writable.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut takes) };
    std::process::id() == 1 || (asked == 0 && takes != 0)
}

/// Starts `command`, and returns what it says before it closes its standard files. An error: nothing is started, or it
/// says nothing for that long.
pub fn start(mut command: Command, patience: Duration) -> io::Result<String> {
    let (here, there) = UnixStream::pair()?;
    let there = OwnedFd::from(there);
    command.stdin(Stdio::null()).stdout(there.try_clone()?).stderr(there).current_dir("/");
    fork_twice(|| {
        leave_all();
        complain(&format!("cannot start the daemon: {}", command.exec()));
    })?;
    // With it goes this process's end of what the daemon writes to.
    drop(command);
    match read_all(here, patience) {
        Ok(said) => Ok(String::from_utf8_lossy(&said).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

/// Has a process without a parent in this session call `f`, and end.
fn fork_twice(f: impl FnOnce()) -> io::Result<()> {
    // SAFETY: this process has one thread. The child has a copy of its memory, starts one more and ends. No signal tells
    // of its end: where SIGCHLD is blocked, it would stay pending for the program.
    unsafe {
        let between = libc::syscall(libc::SYS_clone, 0usize, 0usize, 0usize, 0usize, 0usize) as i32;
        if between == 0 {
            // No key of a terminal reaches a session without one.
            libc::setsid();
            match libc::fork() {
                0 => f(),
                -1 => libc::_exit(*libc::__errno_location()),
                _ => {}
            }
            libc::_exit(0);
        }
        let mut status = 0;
        while between > 0 && libc::waitpid(between, &mut status, libc::__WALL) < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        match libc::WEXITSTATUS(status) {
            _ if between < 0 => Err(io::Error::last_os_error()),
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Keeps no descriptor but the standard ones, and no signal blocked or ignored, once another program begins here.
fn leave_all() {
    // SAFETY: calls on this process's own state; zero bytes are a set of signals.
    unsafe {
        let cloexec = libc::CLOSE_RANGE_CLOEXEC as usize;
        libc::syscall(libc::SYS_close_range, 3usize, u32::MAX as usize, cloexec);
        (1..=libc::SIGRTMAX()).for_each(|signal| _ = libc::signal(signal, libc::SIG_DFL));
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Closes the way to the process that started this one.
pub fn say_no_more() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: two descriptors.
        if unsafe { libc::dup2(null.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
