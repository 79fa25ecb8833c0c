//! What a program has of the process that starts it, as after an exec in that process's place.
//!
//! It is the timers, and the signal of the parent's death. A subreaper stays one. Descriptors are the program's only ones.
//! Behind a filter that kills for a call, nothing of it is handed on.

use std::fs;
use std::mem::zeroed;
use std::ptr::null_mut;

use super::{filters, locks};
use crate::warm;

const TIMERS: [i32; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// What this process has, and the program is to have.
pub struct Handed {
    timers: [libc::itimerval; 3],
    death: i32,
    takes_orphans: bool,
}

fn is_set(timer: &libc::itimerval) -> bool {
    (timer.it_value.tv_sec, timer.it_value.tv_usec) != (0, 0)
}

fn set(which: i32, timer: &libc::itimerval) {
    // SAFETY: a timer of this process, and a structure that is read. The C library takes the number by different types.
    unsafe { libc::syscall(libc::SYS_setitimer, which, &raw const *timer, null_mut::<libc::itimerval>()) };
}

impl Handed {
    /// Reads it, changing nothing.
    pub fn read() -> Self {
        // SAFETY: queries; zero bytes are a value of the structures, which are writable.
        unsafe {
            let mut handed = Self { timers: zeroed(), death: 0, takes_orphans: false };
            if filters::may_kill() {
                return handed;
            }
            for (which, timer) in TIMERS.iter().zip(&mut handed.timers) {
                libc::syscall(libc::SYS_getitimer, *which, &raw mut *timer);
            }
            libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut handed.death);
            handed.takes_orphans = warm::takes_orphans();
            handed
        }
    }

    /// In the program's process, before its exec: only calls that are allowed there.
    pub fn take(&self) {
        for (which, timer) in TIMERS.iter().zip(&self.timers).filter(|(_, timer)| is_set(timer)) {
            set(*which, timer);
        }
        self.take_death();
        if self.takes_orphans {
            // SAFETY: the same.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        }
    }

    /// The signal of the parent's death alone, which belongs to a thread.
    pub fn take_death(&self) {
        if self.death != 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, self.death) };
        }
    }

    /// In this process, once the program has them: its timers go off no more.
    pub fn let_go(&self) {
        // SAFETY: zero bytes are a value of the structure.
        let none = unsafe { zeroed() };
        TIMERS
            .iter()
            .zip(&self.timers)
            .filter(|(_, timer)| is_set(timer))
            .for_each(|(which, _)| set(*which, &none));
    }
}

/// Files that this process inherited, and closes before the program begins: all but its standard error. So what the
/// program closes is closed: a reader of its output sees the end, and a writer to its input an error.
#[derive(Default)]
pub struct Left(Vec<i32>);

impl Left {
    /// Those that this process has now; none where they cannot be told, or a filter might kill for what it takes.
    pub fn find() -> Self {
        if filters::may_kill() {
            return Self::default();
        }
        // SAFETY: a query. What came over an exec has no such flag, and all that this command opens has it.
        let is_inherited = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } & libc::FD_CLOEXEC == 0;
        let all = locks::descriptors().unwrap_or_default();
        Self(all.into_iter().filter(|fd| *fd != 2).filter(is_inherited).collect())
    }

    /// Closes them.
    pub fn close(self) {
        let files = locks::closable(self.0);
        if files.is_empty() {
            return;
        }
        // SAFETY: descriptors that nothing of this command uses: it neither reads standard input, nor writes to standard
        // output, from now on.
        unsafe {
            let empty = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            for fd in &files {
                match fd {
                    // A file that is opened later must not become a standard one.
                    0 | 1 if empty >= 0 => _ = libc::dup3(empty, *fd, libc::O_CLOEXEC),
                    0 | 1 => {}
                    _ => _ = libc::close(*fd),
                }
            }
            if empty >= 0 {
                libc::close(empty);
            }
        }
        locks::leave_others(files);
    }
}

/// Whether children of this process are in another PID namespace than itself (`unshare --pid` without `--fork`): the
/// first one would be its process 1, which signals do not end.
pub fn is_between_namespaces() -> bool {
    let name = |of| fs::read_link(format!("/proc/self/ns/{of}")).ok();
    name("pid").is_some_and(|own| name("pid_for_children") != Some(own))
}
