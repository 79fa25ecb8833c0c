//! Signals: those that end it leave the terminal as it was, and so do those that stop it until it goes on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::run::End;

/// How long a signal waits for what is being drawn: ten times this.
const PATIENCE: Duration = Duration::from_millis(100);

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

/// Stops all processes that the key for it would stop: this one may have been started by another.
pub fn stop_all() {
    // SAFETY: no pointers.
    unsafe { libc::kill(0, SIGTSTP) };
}

/// Stops this process, until it goes on. Not so where no process could have it go on.
fn stop() {
    // SAFETY: both structures are writable, and zero bytes are a value of them. The signal comes before `raise` returns.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut usual: libc::sigaction = std::mem::zeroed();
        usual.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(SIGTSTP, &usual, &mut before);
        libc::raise(SIGTSTP);
        libc::sigaction(SIGTSTP, &before, std::ptr::null_mut());
    }
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

/// Does what signals ask for, whatever other threads do: also where they wait for a terminal that has gone. `drawing` is
/// held by who writes to the terminal, `is_new` tells that nothing is on it any more.
pub fn follow(drawing: Arc<Mutex<()>>, is_new: Arc<AtomicBool>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT])?;
    let follow = move || {
        for signal in signals.forever() {
            let free = patiently(&drawing);
            if signal != SIGCONT && free.is_some() {
                let _ = restore();
            }
            match signal {
                SIGCONT => {}
                SIGTSTP => stop(),
                signal => {
                    // Nothing is drawn until the end.
                    std::mem::forget(free);
                    End::Signal(signal).copy();
                }
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
    std::thread::Builder::new().name("signals".into()).spawn(follow)?;
    Ok(())
}
