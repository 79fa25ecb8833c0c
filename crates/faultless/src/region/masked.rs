//! Signals that are held back while a thread is inside the engine: a handler that faulted there would wait for locks of
//! its own thread.

use std::mem::zeroed;

/// Until this is dropped, no signal interrupts this thread but those that it causes itself.
pub struct Masked(libc::sigset_t);

/// Caused by what the thread does, so holding them back would kill it.
const OWN: [i32; 5] = [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// All signals that other causes have.
pub fn others() -> libc::sigset_t {
    // SAFETY: zero bytes are a value, and both calls only write to the set.
    unsafe {
        let mut set = zeroed();
        libc::sigfillset(&mut set);
        for signal in OWN {
            libc::sigdelset(&mut set, signal);
        }
        set
    }
}

impl Masked {
    /// Holds them back from now on.
    pub fn new() -> Self {
        // SAFETY: zero bytes are a value; only this thread's mask changes.
        unsafe {
            let mut before = zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &others(), &mut before);
            Self(before)
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the mask that `new` found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Until this is dropped, SIGBUS may interrupt this thread.
pub struct Unblocked(libc::sigset_t);

impl Unblocked {
    /// From now on.
    pub fn sigbus() -> Self {
        // SAFETY: zero bytes are a value; only this thread's mask changes.
        unsafe {
            let (mut sigbus, mut before) = (zeroed(), zeroed());
            libc::sigemptyset(&mut sigbus);
            libc::sigaddset(&mut sigbus, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &sigbus, &mut before);
            Self(before)
        }
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        // SAFETY: the mask that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Whether this thread blocks SIGBUS.
pub fn blocks_sigbus() -> bool {
    // SAFETY: zero bytes are a value; the call only reads the mask.
    unsafe {
        let mut now = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
        libc::sigismember(&now, libc::SIGBUS) == 1
    }
}
