//! Starting the program and standing in for it: its terminal, its signals, its stops and its end.
//!
//! The program runs in this process's group, so that keys of the terminal reach it by themselves. All signals are
//! blocked here and taken one by one:
//!
//! | signal | what is done |
//! |---|---|
//! | from the kernel, to the group (terminal keys, window size) | nothing: the program got it too |
//! | from the kernel, to this process alone (hang-up of a terminal whose session it leads, a descriptor that it owns) | sent on to the program |
//! | from another process | sent on to the program |
//! | from the program itself (a signal to its whole group) | nothing: the program got it too |
//! | SIGCHLD from the kernel | the program's state is read: a stop is copied, an end is the end |
//!
//! While this process is stopped, a child of its own looks at the program, and continues this process when the program
//! goes on or ends by another's doing.
//!
//! One sent to the whole group by another process can reach the program twice: it is not known which other processes
//! were meant.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use super::begin::Started;
use super::evidence::Evidence;
use super::launch::{self, Files, Own};
use super::sys::{self, Event, Inherited, Usage};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// As a shell gives it: the status, or 128 and the signal.
    pub fn shell(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// Ends this process in the same way.
    pub fn copy(self) -> ! {
        if let Self::Signal(signal) = self {
            sys::no_core();
            sys::suffer(signal);
        }
        std::process::exit(self.shell())
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How.
    pub end: End,
    /// From just before its start to its end.
    pub wall: Duration,
    /// For how long it was stopped in that time, by a key or a signal.
    pub stopped: Duration,
    /// What it used up.
    pub usage: Usage,
    /// The signal that asked this process to end meanwhile, if one did.
    pub interrupted: Option<i32>,
    /// What was seen of the program.
    pub evidence: Evidence,
}

/// A program that runs.
pub struct Running {
    started: Started,
    start: Instant,
}

/// When a program is looked at for the first time; then each time after four times as long.
const LOOK: Duration = Duration::from_millis(8);
/// How long nothing is done at most.
const PAUSE: Duration = Duration::from_secs(5);

impl Running {
    /// Starts the program; from now on this process handles all signals by [`Running::wait`].
    pub fn start(command: &Command, files: Files, inherited: Inherited, own: Own) -> io::Result<Self> {
        sys::take_signals();
        let start = Instant::now();
        Ok(Self { started: launch::start(command, files, inherited, own)?, start })
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    /// Stands in for the program until it ends; `now_and_then` is called, if that takes long.
    pub fn wait(self, mut now_and_then: impl FnMut()) -> io::Result<Outcome> {
        let pid = self.pid();
        let (mut stopped, mut interrupted, mut helper) = (false, None, None);
        let (mut since, mut pauses) = (Instant::now(), Duration::ZERO);
        let (mut evidence, mut look, mut tended) = (Evidence::default(), LOOK, Instant::now());
        // Of these the program knows nothing, whoever they were for.
        let mut before = self.started.before;
        loop {
            if let Some(received) = sys::next_signal(look.saturating_sub(self.start.elapsed()).min(PAUSE)) {
                // One of our own helper's tells that the program goes on already.
                let is_helpers = received.signal == libc::SIGCONT
                    && received.sender.is_some_and(|sender| helper == Some(sender));
                // A signal to all of its group, or to its parent, is the program's own business.
                let is_own = is_helpers || received.sender.is_some_and(|sender| sys::descends(sender, pid));
                let asks_to_end =
                    matches!(received.signal, libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP);
                if asks_to_end && !is_own {
                    interrupted = Some(received.signal);
                }
                let bit = 1u64.checked_shl(received.signal as u32).unwrap_or(0);
                let is_early = before & bit != 0;
                before &= !bit;
                if (sys::is_for_one(&received) || is_early && sys::is_for_program(&received)) && !is_own {
                    sys::forward(&received, pid);
                }
            } else if self.start.elapsed() >= look {
                evidence.look(pid);
                look = self.start.elapsed() * 4;
            }
            // Also where signals come all the time.
            if tended.elapsed() >= PAUSE {
                now_and_then();
                tended = Instant::now();
            }
            // Also where no signal came: a filter may forbid to hold them back, and then none waits to be taken.
            if sys::has_ended(pid) {
                evidence.last_look(pid);
            }
            sys::reap_others(pid);
            while let Some(event) = sys::event(pid)? {
                let (end, usage) = match event {
                    Event::Exited(status, usage) => (End::Status(status), usage),
                    Event::Killed(signal, usage) => (End::Signal(signal), usage),
                    Event::Continued => {
                        if stopped {
                            pauses += since.elapsed();
                        }
                        stopped = false;
                        continue;
                    }
                    Event::Stopped(signal) => {
                        // Of two that come without one to go on between them, the first counts.
                        if !stopped {
                            since = Instant::now();
                        }
                        stopped = true;
                        helper = sys::suffer_with(signal, pid);
                        continue;
                    }
                };
                if stopped {
                    pauses += since.elapsed();
                }
                let wall = self.start.elapsed();
                return Ok(Outcome { end, wall, stopped: pauses, usage, interrupted, evidence });
            }
        }
    }
}

/// What to say about a program that could not be started, and the status to end with, as `env` would.
pub fn not_started(program: &std::ffi::OsStr, error: &io::Error) -> (String, u8) {
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or_default();
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    (format!("cannot run {}: {reason}", program.display()), status)
}
