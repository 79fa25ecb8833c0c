//! Waiting for a moment, or for a signal that ends this command.

use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// What ends a watch: the keys of the terminal, and signals that ask it to end.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Whether it is ignored, as `nohup` has it: then it ends nothing. Shells have SIGINT ignored for what runs in the
/// background, and a script ends it by that signal all the same.
fn is_kept_out(signal: i32) -> bool {
    // SAFETY: a query; zero bytes are a value of the structure, which is writable.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        signal == libc::SIGHUP
            && libc::sigaction(signal, null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// These signals.
pub fn set(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    // SAFETY: zero bytes are a value of the set, which is writable.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        signals.into_iter().for_each(|signal| _ = libc::sigaddset(&mut set, signal));
        set
    }
}

fn ends() -> libc::sigset_t {
    // The kernel keeps an ignored signal that is blocked, and it would be taken.
    set(ENDS.into_iter().filter(|signal| !is_kept_out(*signal)))
}

/// From now on these signals wait until [`wait`] takes them.
pub fn hold() {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &ends(), null_mut()) };
}

/// Waits for so long, or until one of the signals comes: whether one did.
pub fn wait(time: Duration) -> bool {
    let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
    // SAFETY: a valid set and a valid time; nothing is to be told about the signal.
    unsafe { libc::sigtimedwait(&ends(), null_mut(), &time) > 0 }
}

/// From now on they act again, but for those that wait already.
pub fn release() {
    while wait(Duration::ZERO) {}
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &ends(), null_mut()) };
}
