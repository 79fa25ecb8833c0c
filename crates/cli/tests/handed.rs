//! What a program has of the process in whose place `faultless run` starts it: descriptors, timers, signals.

mod common;

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};

use common::run;

/// Both ends of a pipe that programs inherit.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: two numbers that are writable, and descriptors that are new.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// `command`, with a call in its process before its exec, which gives 0.
fn with(mut command: Command, call: impl Fn() -> i32 + Send + Sync + 'static) -> Command {
    let call = move || if call() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the calls of these tests are allowed after a fork.
    unsafe { command.pre_exec(call) };
    command
}

fn quietly(mut command: Command) -> Child {
    command.stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap()
}

/// The rest of what is written there, until all ends to write to are closed.
fn rest(fd: OwnedFd) -> String {
    let mut text = String::new();
    std::fs::File::from(fd).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_the_program_closes_is_closed() {
    // Its standard output: the reader sees the end while the program goes on.
    let mut child = run(["--", "sh", "-c", "echo out; exec >&-; read line"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), child.try_wait().unwrap()), ("out\n", None));
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1), "it read the end");

    // A pipe of its own, of which it has the one end that is written to.
    let (read, write) = pipe();
    let script = format!("exec {}>&-; cat <&{}", write.as_raw_fd(), read.as_raw_fd());
    let mut child = quietly(run(["--", "sh", "-c", &script]));
    drop((read, write));
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_that_is_locked_for_it_stays_locked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let fd: RawFd = file.as_raw_fd();
    // The kind of the lock that there is, or what taking one gives.
    let lock = move |command: i32| {
        // SAFETY: zero bytes are a value of the structure, which is valid for the call.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            let answer = libc::fcntl(fd, command, &raw mut lock);
            if answer < 0 { answer } else { i32::from(lock.l_type) }
        }
    };
    let take = move || {
        // SAFETY: no memory is involved. The program inherits the descriptor.
        let is_kept = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        if lock(libc::F_SETLK) < 0 { -1 } else { is_kept }
    };
    let mut command = with(run(["--", "sh", "-c", "read line"]), take);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Its other files are closed by then.
    let output = format!("/proc/{}/fd/1", child.id());
    while std::fs::read_link(&output).unwrap().as_os_str() != "/dev/null" {
        std::thread::yield_now();
    }
    assert_eq!(lock(libc::F_GETLK), libc::F_WRLCK);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(lock(libc::F_GETLK), libc::F_UNLCK, "it has ended");
}

#[test]
fn a_timer_that_was_set_before_ends_it() {
    for (which, signal) in [(libc::ITIMER_REAL, libc::SIGALRM), (libc::ITIMER_PROF, libc::SIGPROF)] {
        let set = move || {
            let in_time = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
            let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let timer = libc::itimerval { it_interval: never, it_value: in_time };
            // SAFETY: a structure that is read.
            unsafe { libc::syscall(libc::SYS_setitimer, which, &raw const timer, null_mut::<u8>()) as i32 }
        };
        let mut child = quietly(with(run(["--", "sh", "-c", "while :; do :; done"]), set));
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
    }
}

#[test]
fn the_signal_of_a_parents_death_is_the_programs() {
    // SAFETY: no memory is involved.
    let die_too = || unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (read, write) = pipe();
    let mut command = with(run(["--", "sh", "-c", "echo begun; exec sleep 1000"]), die_too);
    let mut child = command.stdout(write).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut begun = [0; 6];
    let mut file = std::fs::File::from(read);
    file.read_exact(&mut begun).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(rest(file.into()), "", "nobody has the pipe any more");
}

#[test]
fn a_hang_up_of_its_terminal_reaches_it() {
    // SAFETY: a new terminal, and descriptors that are new.
    let (master, slave) = unsafe {
        let (mut master, mut slave) = (0, 0);
        assert_eq!(libc::openpty(&mut master, &mut slave, null_mut(), null(), null()), 0);
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    };
    let fd = slave.as_raw_fd();
    // SAFETY: no memory is involved.
    let lead = move || unsafe { if libc::setsid() < 0 { -1 } else { libc::ioctl(fd, libc::TIOCSCTTY, 0) } };
    let (read, write) = pipe();
    let mut command = with(run(["--", "sh", "-c", "echo begun; exec sleep 1000"]), lead);
    let mut child = command.stdout(write).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
    drop((command, slave));
    let mut file = std::fs::File::from(read);
    file.read_exact(&mut [0; 6]).unwrap();
    drop(master);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGHUP));
    assert_eq!(rest(file.into()), "");
}
