//! What a program has of the process in whose place `faultless run` starts it: descriptors, timers, signals.

mod common;

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;
use std::thread;

use common::recording::compiled;
use common::{Scratch, faultless, run};
use faultless_testkit::skip;

/// Both ends of a pipe. No program inherits them by itself: those of other tests begin at the same time.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: two numbers that are writable, and descriptors that are new.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
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

/// `command`, which inherits these descriptors.
fn inheriting<const N: usize>(command: Command, files: [RawFd; N]) -> Command {
    // SAFETY: no memory is involved.
    with(command, move || files.iter().map(|fd| unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) }).min().unwrap_or(0))
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

/// Those that stand in for a program, with the words before it.
const COMMANDS: [&[&str]; 3] = [&["run"], &["stat"], &["record", "-o", "/dev/null"]];

fn standing_in(command: &[&str], program: &[&str]) -> Command {
    faultless([command, &["--"], program].concat())
}

#[test]
fn what_the_program_closes_is_closed() {
    for command in COMMANDS {
        // Its standard output: the reader sees the end while the program goes on.
        let mut child = standing_in(command, &["sh", "-c", "echo out; exec >&-; read line"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), child.try_wait().unwrap()), ("out\n", None));
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(1), "it read the end");

        // A pipe of its own, of which it has the one end that is written to.
        let (read, write) = pipe();
        let script = format!("exec {}>&-; cat <&{}", write.as_raw_fd(), read.as_raw_fd());
        let command = standing_in(command, &["sh", "-c", &script]);
        let mut child = quietly(inheriting(command, [read.as_raw_fd(), write.as_raw_fd()]));
        drop((read, write));
        assert!(child.wait().unwrap().success());
    }
}

/// The first thing that it does is to close the end of a pipe that is read. Then no process has it.
#[test]
fn what_the_program_closes_at_once_is_closed_by_then() {
    let scratch = Scratch::new("at-once");
    let source = r#"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    close(atoi(words[1]));
    signal(SIGPIPE, SIG_IGN);
    return write(atoi(words[2]), "x", 1) == -1 && errno == EPIPE ? 7 : 1;
}"#;
    let program = compiled(&scratch, source, &[]);
    for command in COMMANDS.into_iter().cycle().take(12) {
        let (read, write) = pipe();
        let files = [read.as_raw_fd(), write.as_raw_fd()];
        let [first, second] = files.map(|fd| fd.to_string());
        let words = standing_in(command, &[program.to_str().unwrap(), &first, &second]);
        let mut child = quietly(inheriting(words, files));
        drop(read);
        assert_eq!(child.wait().unwrap().code(), Some(7), "{command:?}");
    }
}

/// Each run of a comparison has what the command inherited.
#[test]
fn a_comparison_keeps_files_for_the_next_run() {
    let (read, write) = pipe();
    std::io::Write::write_all(&mut std::fs::File::from(write), b"abcd").unwrap();
    let script = format!("head -c 1 <&{} >/dev/null", read.as_raw_fd());
    let command = run(["--compare", "2", "--", "sh", "-c", &script]);
    let out = inheriting(command, [read.as_raw_fd()]).output().unwrap();
    assert!(out.status.success(), "{}", common::text(&out.stderr));
    assert_eq!(rest(read), "", "four runs read a byte each");
}

/// Locks stay, whatever the command opens: here it looks at the program, which is the file that is locked.
#[test]
fn a_file_that_is_locked_for_it_stays_locked() {
    let scratch = Scratch::new("locked");
    let source = r#"
#include <signal.h>
#include <unistd.h>
static void told(int signal) { (void)!write(1, "told\n", 5); }
int main(void) {
    struct sigaction action = {.sa_handler = told, .sa_flags = SA_RESTART};
    char byte;
    sigaction(SIGUSR1, &action, 0);
    (void)!write(1, "begun\n", 6);
    return read(0, &byte, 1);
}"#;
    let path = compiled(&scratch, source, &[]);
    // A program that is open for writing cannot be run.
    let file = std::fs::File::open(&path).unwrap();
    let fd: RawFd = file.as_raw_fd();
    // The kind of the lock that is in the way of one to write, or what taking one to read gives.
    let lock = move |command: i32, kind: i32| {
        // SAFETY: zero bytes are a value of the structure, which is valid for the call.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = kind as i16;
            let answer = libc::fcntl(fd, command, &raw mut lock);
            if answer < 0 { answer } else { i32::from(lock.l_type) }
        }
    };
    let take = move || {
        // SAFETY: no memory is involved. The program inherits the descriptor.
        let is_kept = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        if lock(libc::F_SETLK, libc::F_RDLCK) < 0 { -1 } else { is_kept }
    };
    let there = || lock(libc::F_GETLK, libc::F_WRLCK);
    let more: [&[&str]; 3] =
        [&["run", "--files", path.to_str().unwrap()], &["run", "--quiet"], &["run", "--tree"]];
    for command in COMMANDS.into_iter().chain(more) {
        let mut command = with(standing_in(command, &[path.to_str().unwrap()]), take);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(there(), libc::F_RDLCK, "{command:?}");
        // The program has it, too, and goes on.
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) }, 0);
        output.read_exact(&mut [0; 5]).unwrap();
        drop(child.stdin.take());
        // All that the command had of the output is closed.
        output.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
        assert_eq!(there(), libc::F_UNLCK, "it has ended: {command:?}");
    }
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

/// Calls of exec that wait for an answer.
struct Execs(OwnedFd);

impl Execs {
    /// Those of the calling thread, and of the processes that it starts, from now on.
    fn of_this_thread() -> io::Result<Self> {
        let step = |code: u32, other: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: other, k };
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_execve as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        // SAFETY: a filter that is read, and a descriptor that is new.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) {
                ..0 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd as RawFd))),
            }
        }
    }

    /// The next one. `None`: no process is left that could make any.
    fn next(&self) -> Option<libc::seccomp_notif> {
        let mut wanted = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one structure, and one that is all zeroes, as the kernel wants it; both are writable.
            unsafe {
                libc::poll(&raw mut wanted, 1, -1);
                let mut exec: libc::seccomp_notif = std::mem::zeroed();
                match wanted.revents & libc::POLLIN {
                    0 => return None,
                    // A signal may have interrupted it meanwhile.
                    _ if libc::ioctl(wanted.fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut exec) != 0 => {}
                    _ => return Some(exec),
                }
            }
        }
    }

    /// It goes on.
    fn allow(&self, exec: &libc::seccomp_notif) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let answer = libc::seccomp_notif_resp { id: exec.id, val: 0, error: 0, flags };
        // SAFETY: a structure that is read. One that was interrupted comes again.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    }
}

/// Waits until a process is stopped.
fn until_stopped(pid: i32) {
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    while !is_stopped() {
        thread::yield_now();
    }
}

/// The command stops with a program that is stopped before it has begun, and goes on with it.
#[test]
fn a_stop_just_before_the_program_begins_is_seen() {
    let compare: &[&str] = &["run", "--compare", "1"];
    for words in COMMANDS.into_iter().chain([compare]) {
        let mut command = standing_in(words, &["/bin/true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (sender, receiver) = channel();
        // The filter stays with the thread.
        let starting = thread::spawn(move || {
            let execs = Execs::of_this_thread();
            let has_filter = execs.is_ok();
            sender.send(execs).unwrap();
            has_filter.then(|| command.spawn().unwrap())
        });
        let Ok(execs) = receiver.recv().unwrap() else {
            return skip("calls cannot be made to wait (seccomp)");
        };
        let first = execs.next().unwrap();
        let mut exec = first;
        // The command itself comes by `env`.
        while exec.pid == first.pid {
            execs.allow(&exec);
            exec = execs.next().unwrap();
        }
        let (command, program) = (first.pid as i32, exec.pid as i32);
        // SAFETY: no memory is involved; neither was waited for.
        let send = |signal| assert_eq!(unsafe { libc::kill(program, signal) }, 0);
        send(libc::SIGSTOP);
        until_stopped(program);
        until_stopped(command);
        send(libc::SIGCONT);
        let allowing =
            thread::spawn(move || std::iter::from_fn(|| execs.next()).for_each(|exec| execs.allow(&exec)));
        let mut child = starting.join().unwrap().unwrap();
        assert!(child.wait().unwrap().success(), "{words:?}");
        allowing.join().unwrap();
    }
}
