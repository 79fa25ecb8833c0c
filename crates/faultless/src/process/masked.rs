//! Signals that are held back while a thread is inside the engine: a handler that faulted there would wait for locks of
//! its own thread. For the same reason the stack is there that the engine needs: it may be memory of a region.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

use faultless_base::PAGE;
use faultless_base::sys::raw;

/// Until this is dropped, no signal interrupts this thread but those that it causes itself.
pub struct Masked(libc::sigset_t);

/// Caused by what the thread does, so holding them back would kill it.
const OWN: [i32; 5] = [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// The same as the kernel has it. Not worked out in a signal handler, which has little stack.
const OWN_MASK: u64 = {
    let (mut mask, mut i) = (0, 0);
    while i < OWN.len() {
        mask |= 1 << (OWN[i] - 1);
        i += 1;
    }
    mask
};

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

/// Bytes of stack that a call of the engine takes, and more.
const STACK: usize = 8 << 10;

/// Has the stack below touched before a lock is taken. The stack may be memory of another region, whose handler may
/// wait for this lock.
#[inline(never)]
fn touch_stack() {
    let mut room = MaybeUninit::<[u8; STACK]>::uninit();
    for at in (0..STACK).step_by(PAGE) {
        // SAFETY: inside the room.
        unsafe { room.as_mut_ptr().cast::<u8>().add(at).write_volatile(0) };
    }
}

impl Masked {
    /// Holds them back from now on.
    pub fn new() -> Self {
        touch_stack();
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
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

/// Until this is dropped, signals that this thread causes itself may interrupt it. With the kernel's own masks, which
/// are small: a signal handler has little stack.
pub struct Unblocked(u64);

impl Unblocked {
    /// From now on.
    pub fn own() -> Self {
        let mut before = 0;
        change_mask(libc::SIG_UNBLOCK, OWN_MASK, &raw mut before);
        Self(before)
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.0, null_mut());
    }
}

/// Changes what signals this thread holds back; `before` has what it was.
pub fn change_mask(how: i32, mask: u64, before: *mut u64) {
    let args = [how as usize, &raw const mask as usize, before as usize, size_of_val(&mask), 0, 0];
    // SAFETY: a mask to read from, and a place for one or none.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigprocmask, args) };
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
