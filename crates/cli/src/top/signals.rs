//! Signals: those that end it leave the terminal as it was, and so do those that stop it until it goes on.
//!
//! All threads hold these signals back, and one thread takes them one by one. While the process is stopped, or waits for
//! the terminal, they have their usual effect: the kernel ends it also where no thread gets to run.
//!
//! As SIGTTOU and SIGTTIN are held back, too, a use of the terminal never stops a thread. So each use asks first whether
//! this is a background job.

use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};

use crate::run::{End, complain};
use crate::stat::{UNREACHED, signals::set};

/// How long a signal waits for what is being drawn: ten times this. Also how long a background job waits to be stopped.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is held back.
const HELD: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT];

/// Leaves the terminal as it was.
pub fn restore() -> io::Result<()> {
    let shown = execute!(io::stdout(), Show);
    ratatui::try_restore().and(shown)
}

/// Takes the terminal again, whatever others made of it meanwhile.
fn enter() -> io::Result<()> {
    // What is on already would not be set again.
    disable_raw_mode()?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Whether the terminal is another job's now.
pub fn is_background() -> bool {
    // SAFETY: queries of numbers.
    let (front, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    // Of a terminal that is not this session's no job is in front.
    front >= 0 && front != own
}

/// Stops all of a background job until it is in front, as a change of the terminal does. An error: no shell is there to
/// bring it there.
fn wait_for_terminal() -> io::Result<()> {
    // The kernel stops a background job that does this. Else it has an effect only after `tcflow(TCOOFF)`.
    // SAFETY: no pointers.
    match is_background() && unsafe { libc::tcflow(libc::STDIN_FILENO, libc::TCOON) } != 0 {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

/// Waits for the terminal while all signals have their usual effect.
pub fn begin() -> io::Result<()> {
    // Where the starter ignores them the kernel would stop no background job.
    // SAFETY: the default action, and no pointers.
    [SIGTSTP, SIGTTIN, SIGTTOU].into_iter().for_each(|signal| _ = unsafe { libc::signal(signal, libc::SIG_DFL) });
    mask(libc::SIG_UNBLOCK, &set(HELD));
    wait_for_terminal()
}

/// Has the thread that takes signals stop a background job, and waits a moment for that.
pub fn step_back() {
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), SIGCONT) };
    std::thread::sleep(PATIENCE);
}

/// Stops all processes that the key for it would stop: this one may have been started by another.
pub fn stop_all() {
    // SAFETY: no pointers.
    unsafe { libc::kill(0, SIGTSTP) };
}

fn mask(how: i32, set: &libc::sigset_t) {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(how, set, null_mut()) };
}

/// Does what `signal` does by default, and waits until this process has the terminal. It is not stopped where no process
/// could have it go on.
fn stop(signal: i32) -> io::Result<()> {
    let held = set(HELD);
    // One that ends it and came meanwhile does so here.
    mask(libc::SIG_UNBLOCK, &held);
    // SAFETY: no pointers. The signal comes before `raise` returns.
    unsafe { libc::raise(signal) };
    let waited = wait_for_terminal();
    mask(libc::SIG_BLOCK, &held);
    waited
}

/// Waits for what is being drawn; `None`: the terminal takes nothing, and cannot be restored either.
fn patiently(drawing: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    (0..10).find_map(|_| {
        let free = drawing.try_lock().ok();
        if free.is_none() {
            std::thread::sleep(PATIENCE);
        }
        free
    })
}

/// The next of the signals.
fn next() -> i32 {
    let mut signal = 0;
    // SAFETY: a valid set, and a number that is written. This fails for no set that is valid.
    unsafe { libc::sigwait(&set(HELD), &mut signal) };
    signal
}

/// Does what signals ask for, whatever other threads do: also where they wait for a terminal that has gone. `drawing` is
/// held by who writes to the terminal, `is_new` tells that nothing is on it any more.
pub fn follow(drawing: Arc<Mutex<()>>, is_new: Arc<AtomicBool>) -> io::Result<()> {
    let follow = move || {
        loop {
            let signal = next();
            let free = patiently(&drawing);
            // The terminal of another job is left alone.
            if signal != SIGCONT && free.is_some() && !is_background() {
                let _ = restore();
            }
            let waited = match signal {
                SIGCONT | SIGTSTP | SIGTTIN | SIGTTOU => stop(signal),
                signal => {
                    // Nothing is drawn until the end.
                    std::mem::forget(free);
                    End::Signal(signal).copy()
                }
            };
            if let Err(error) = waited {
                std::mem::forget(free);
                complain(&format!("the terminal is another job's: {error}"));
                End::Status(UNREACHED.into()).copy();
            }
            if free.is_some() && enter().is_ok() {
                is_new.store(true, Ordering::Relaxed);
            }
            drop(free);
            // The thread that draws waits for keys, and a change of size wakes it.
            // SAFETY: no pointers.
            unsafe { libc::kill(libc::getpid(), libc::SIGWINCH) };
        }
    };
    // The thread itself takes no other signal: a change of size has to wake the thread that draws.
    // SAFETY: both sets are writable, and zero bytes are a value of them.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let made = std::thread::Builder::new().name("signals".into()).spawn(follow);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        made?;
    }
    mask(libc::SIG_BLOCK, &set(HELD));
    Ok(())
}
