//! System calls that std has no safe form of.

use std::ffi::CString;
use std::io;
use std::mem::zeroed;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultless_base::sys::raw::{read_file, syscall};

use super::filters;
use crate::said::{CLOSED, is_closed};

/// What this process inherited, before Rust's runtime changed it: it ignores SIGPIPE and opens /dev/null in place
/// of missing standard files.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: a function of the type that the GNU C library's loader calls before main, with the words of the command.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn(libc::c_int, *const *const libc::c_char) = record;

extern "C" fn record(_: libc::c_int, words: *const *const libc::c_char) {
    // SAFETY: the words of this command, as the C library hands them to constructors.
    unsafe { filters::look(words) };
    // SAFETY: queries, and a handler that does nothing; `action` is writable.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGPIPE, null(), &mut action);
        PIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        // A file that becomes longer than the limit is an error, which is said. A handler, unlike SIG_IGN, is not inherited
        // by programs.
        libc::sigaction(libc::SIGXFSZ, null(), &mut action);
        if action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, null_mut());
        }
        let closed = (0..3).filter(|fd| libc::fcntl(*fd, libc::F_GETFD) < 0).fold(0, |set, fd| set | 1 << fd);
        CLOSED.store(closed, Ordering::Relaxed);
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// The signal state that this process was started with, for the program to start with.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: libc::sigset_t,
    child_ignored: bool,
}

impl Inherited {
    /// Reads the state, changing nothing.
    pub fn read() -> Self {
        // SAFETY: queries only; the structures are writable, and zero bytes are values of both.
        unsafe {
            let (mut mask, mut action): (libc::sigset_t, libc::sigaction) = (zeroed(), zeroed());
            libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut mask);
            libc::sigaction(libc::SIGCHLD, null(), &mut action);
            Self { mask, child_ignored: action.sa_sigaction == libc::SIG_IGN }
        }
    }

    /// Takes its mask up once the program has ended. Signals that wait until then were the program's too, and are
    /// dropped; each that comes later acts on this process.
    pub fn release(self) {
        while next_signal(Duration::ZERO).is_some() {}
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut()) };
    }

    /// Takes this state up: just before a program does. Of the standard files, `files` are as they were.
    pub fn restore(self, files: impl Iterator<Item = i32>) {
        // SAFETY: only calls that are allowed between fork and exec, on valid arguments.
        unsafe {
            for fd in files.filter(|fd| is_closed(*fd)) {
                libc::close(fd);
            }
            let or_default = |ignored| if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            libc::signal(libc::SIGPIPE, or_default(PIPE_IGNORED.load(Ordering::Relaxed)));
            libc::signal(libc::SIGCHLD, or_default(self.child_ignored));
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask, null_mut());
        }
    }
}

/// Calls `f`, in which a file that becomes longer than the limit is an error, and no signal.
pub fn with_long_files<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: this command's own action for a signal that its own writes alone bring.
    unsafe {
        let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let result = f();
        // A signal that is blocked waits, even an ignored one, and would be passed on to the program. This drops it.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, before);
        result
    }
}

/// Calls `f` with every signal blocked, as a thread has them that starts in it.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: sets that are writable, of which the first is valid after the call.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        result
    }
}

/// Blocks every signal, for [`next_signal`] to take them one by one, and has ended children wait to be reaped.
pub fn take_signals() {
    // SAFETY: a full set is valid, and so is the default action.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// The signals that wait for this process: bit N for signal N.
pub fn pending() -> u64 {
    // SAFETY: a set of this function's own, of which any content is one.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigpending(&mut set);
        (1..64).filter(|signal| libc::sigismember(&set, *signal) == 1).fold(0, |bits, signal| bits | 1 << signal)
    }
}

/// A signal that this process was sent.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None`: the kernel, as for a key of the terminal.
    pub sender: Option<i32>,
    value: Option<libc::sigval>,
}

/// Waits for the next signal; `None` when none came for so long.
pub fn next_signal(within: Duration) -> Option<Received> {
    let time = libc::timespec { tv_sec: within.as_secs() as _, tv_nsec: within.subsec_nanos() as _ };
    // SAFETY: the set, the time and the structure are valid; zero bytes are a value of the first and the last. The
    // fields that are read are those that the kernel fills in for such a code.
    unsafe {
        let (mut all, mut info): (libc::sigset_t, libc::siginfo_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        let signal = libc::sigtimedwait(&all, &mut info, &time);
        (signal > 0).then(|| {
            let by_process = matches!(info.si_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
            let value = (info.si_code == libc::SI_QUEUE).then(|| info.si_value());
            Received { signal, sender: by_process.then(|| info.si_pid()), value }
        })
    }
}

/// Whether a signal was for this process alone, or may have been. The kernel sends those of a terminal's keys to the whole
/// group; a hang-up to the leader of the session, with one that continues it; those of children and limits to whom they
/// are for. All others are those of descriptors and timers that the program's process would have.
pub fn is_for_one(received: &Received) -> bool {
    use libc::{SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};
    match received.signal {
        _ if received.sender.is_some() => true,
        // SAFETY: no arguments that are memory.
        libc::SIGHUP | libc::SIGCONT => unsafe { libc::getsid(0) == libc::getpid() },
        SIGINT | SIGQUIT | SIGTSTP | SIGTTIN | SIGTTOU | SIGWINCH => false,
        _ => is_for_program(received),
    }
}

/// Whether a signal of the kernel's is for a program and not for its parent.
pub fn is_for_program(received: &Received) -> bool {
    !matches!(received.signal, libc::SIGCHLD | libc::SIGPIPE | libc::SIGXCPU | libc::SIGXFSZ)
}

/// The parent in the text of `/proc/PID/stat`.
fn parent_in(stat: &str) -> Option<i32> {
    // number (name) state parent …
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Whether a process is `ancestor`, or was started by it or by those that it started, as far as they are there still.
pub fn descends(process: i32, ancestor: i32) -> bool {
    let parent = |process: &i32| {
        let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        parent_in(&String::from_utf8_lossy(&text)).filter(|parent| *parent > 1)
    };
    // A number that is taken again may close a circle.
    std::iter::successors(Some(process), parent).take(1000).any(|process| process == ancestor)
}

/// Sends `pid` a signal like the one received, with its value if it had one.
pub fn forward(received: &Received, pid: i32) {
    // SAFETY: no memory is involved; the value is passed on as it came.
    unsafe {
        match received.value {
            Some(value) => libc::sigqueue(pid, received.signal, value),
            None => libc::kill(pid, received.signal),
        };
    }
}

/// Does to this process what `signal` does by default: for a stop signal, returns once continued.
pub fn suffer(signal: i32) {
    // SAFETY: a default action and a set of one signal, on structures of our own.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        let (mut set, mut old): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut old);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, null_mut());
    }
}

/// Stops this process as `signal` stopped program `pid`, until either is continued, or the program ends. The number of
/// the helper that looks at the program meanwhile; it is gone when this returns.
pub fn suffer_with(signal: i32, pid: i32) -> Option<i32> {
    let path = |of: i32| std::ffi::CString::new(format!("/proc/{of}/stat")).ok();
    // SAFETY: no arguments.
    let this = unsafe { libc::getpid() };
    let (theirs, ours) = (path(pid)?, path(this)?);
    // SAFETY: the child has a copy of this memory, in which other threads may have held locks: it makes system calls
    // alone, until it is killed. Its number is that of a child that was not waited for.
    unsafe {
        let helper = match syscall(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) {
            Ok(0) => continue_when_gone_on(&theirs, this, &ours),
            made => made.ok().map(|helper| helper as i32),
        };
        suffer(signal);
        if let Some(helper) = helper {
            libc::kill(helper, libc::SIGKILL);
            libc::waitpid(helper, null_mut(), 0);
        }
        helper
    }
}

/// Continues process `this` whenever it is stopped and the program is not.
fn continue_when_gone_on(theirs: &std::ffi::CStr, this: i32, ours: &std::ffi::CStr) -> ! {
    const SHORTEST: libc::c_long = 10_000_000;
    const LONGEST: libc::c_long = 200_000_000;
    let is_stopped = |path| {
        let mut text = [0; 512];
        let text = read_file(path, &mut text);
        let name_end = text.windows(2).rposition(|two| two == b") ");
        name_end.is_some_and(|end| matches!(text.get(end + 2), Some(b'T' | b't')))
    };
    // A group of its own: what stops the program's, or continues it, is not for this one.
    // SAFETY: no memory but a time on this stack.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut pause = SHORTEST;
        while libc::getppid() == this {
            if is_stopped(ours) && !is_stopped(theirs) {
                libc::kill(this, libc::SIGCONT);
            }
            libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: pause }, null_mut());
            pause = (pause * 2).min(LONGEST);
        }
        libc::_exit(0)
    }
}

/// Has no core file written if this process is killed: the program has written its own.
pub fn no_core() {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads a valid structure.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
}

/// One.
pub const A_SECOND: Duration = Duration::from_secs(1);

/// Whether there is something to be read, or the end of it, within that time.
pub fn is_readable_within(file: &impl std::os::fd::AsRawFd, time: Duration) -> bool {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is writable.
    unsafe { libc::poll(&mut wanted, 1, time.as_millis() as i32) > 0 }
}

/// What a child has used up, with its own children that it has waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Time in its own code.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Most memory resident at once, in the largest of these processes.
    pub max_rss: u64,
    /// Page faults without input.
    pub minor_faults: u64,
    /// Page faults that waited for input.
    pub major_faults: u64,
}

impl From<libc::rusage> for Usage {
    fn from(r: libc::rusage) -> Self {
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Self {
            user: time(r.ru_utime),
            system: time(r.ru_stime),
            max_rss: r.ru_maxrss as u64 * 1024,
            minor_faults: r.ru_minflt as u64,
            major_faults: r.ru_majflt as u64,
        }
    }
}

/// What happened to a child.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It ended with this status.
    Exited(i32, Usage),
    /// This signal ended it.
    Killed(i32, Usage),
    /// This signal stopped it.
    Stopped(i32),
    /// It was continued.
    Continued,
}

/// Whether child `pid` has ended. It can still be looked at then: [`event`] takes it away.
pub fn has_ended(pid: i32) -> bool {
    event_code(pid, libc::WEXITED).is_some()
}

/// What has become of a child that has ended, or that a signal has stopped: `CLD_EXITED`, `CLD_KILLED`, `CLD_STOPPED` …
/// [`event`] has not told of it yet.
pub fn halted(pid: i32) -> Option<i32> {
    event_code(pid, libc::WEXITED | libc::WSTOPPED)
}

/// What has become of a child, of these events; it can be asked for again.
fn event_code(pid: i32, events: i32) -> Option<i32> {
    let flags = events | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: zero bytes are a value of the structure, which is writable.
    unsafe {
        let mut info: libc::siginfo_t = zeroed();
        let answer = libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags);
        (answer == 0 && info.si_pid() == pid).then_some(info.si_code)
    }
}

/// Whether a child has called exec since it was forked, as the kernel says.
pub fn has_called_exec(pid: i32) -> bool {
    const FORKED: u64 = 0x40;
    let text = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // number (name) state parent group session terminal its-group flags …
    let flags = text.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & FORKED == 0)
}

/// Takes away children that have ended, but for `pid`: those that lost their parent, where this process takes them in (as
/// process 1, or a subreaper from before its exec).
pub fn reap_others(pid: i32) {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: zero bytes are a value of the structure, which is writable; the number is that of a child.
    unsafe {
        loop {
            let mut info: libc::siginfo_t = zeroed();
            let found = libc::waitid(libc::P_ALL, 0, &mut info, flags) == 0;
            if !found || info.si_pid() == 0 || info.si_pid() == pid {
                return;
            }
            libc::waitpid(info.si_pid(), null_mut(), libc::WNOHANG);
        }
    }
}

/// The next thing that happened to child `pid`, if there is one.
pub fn event(pid: i32) -> io::Result<Option<Event>> {
    let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: zero bytes are a value of the structure; both outputs are writable.
    let (found, status, usage) = unsafe {
        let (mut status, mut usage): (i32, libc::rusage) = (0, zeroed());
        (libc::wait4(pid, &mut status, flags, &mut usage), status, usage)
    };
    match found {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ if libc::WIFSTOPPED(status) => Ok(Some(Event::Stopped(libc::WSTOPSIG(status)))),
        _ if libc::WIFCONTINUED(status) => Ok(Some(Event::Continued)),
        _ if libc::WIFSIGNALED(status) => Ok(Some(Event::Killed(libc::WTERMSIG(status), usage.into()))),
        _ => Ok(Some(Event::Exited(libc::WEXITSTATUS(status), usage.into()))),
    }
}

/// The real user and group of this process.
pub fn ids() -> (u32, u32) {
    // SAFETY: no arguments.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Whether programs that this process starts get no rights that it does not have (`PR_SET_NO_NEW_PRIVS`).
pub fn has_no_new_privileges() -> bool {
    // SAFETY: a query.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// How much of something this process may use: `RLIMIT_AS`, `RLIMIT_DATA` …; `None`: as much as it wants.
pub fn limit(kind: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    let known = unsafe { libc::getrlimit(kind, &mut limit) == 0 };
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A path as the kernel takes it.
fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Whether the kernel lets this user run a file, by its rights and by how its file system is mounted.
pub fn may_run(path: &Path) -> bool {
    // SAFETY: a string that ends with zero.
    text(path).is_some_and(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0)
}

/// Whether its file system is mounted so that no program runs from it (`noexec`).
pub fn runs_no_programs(path: &Path) -> bool {
    // SAFETY: a structure of integers.
    let mut about: libc::statvfs = unsafe { zeroed() };
    // SAFETY: a string that ends with zero, and a writable structure.
    let is_known = text(path).is_some_and(|path| unsafe { libc::statvfs(path.as_ptr(), &mut about) } == 0);
    is_known && about.f_flag & libc::ST_NOEXEC != 0
}
