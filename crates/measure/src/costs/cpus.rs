//! Which CPUs a measurement runs on.

use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The CPU that the measuring thread is pinned to; `usize::MAX`: none.
static PINNED: AtomicUsize = AtomicUsize::new(usize::MAX);

fn set(set: &libc::cpu_set_t) -> bool {
    // SAFETY: a valid set; this thread's own placement.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0 }
}

/// The CPUs that this process may use, in order; empty when there are more than the C library's set holds.
pub fn allowed() -> Vec<usize> {
    // SAFETY: zero bytes are an empty set, which is writable; the process's number names its first thread, which is
    // never pinned; bits below the set's size are asked for.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        if libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Pins this thread to one of them, and says to which.
pub fn pin() -> Option<usize> {
    // The last one: devices interrupt the first.
    let cpu = *allowed().last()?;
    // SAFETY: zero bytes are an empty set; the number is one that such a set had.
    let one = unsafe {
        let mut one: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut one);
        one
    };
    let pinned = set(&one);
    PINNED.store(if pinned { cpu } else { usize::MAX }, Ordering::Relaxed);
    pinned.then_some(cpu)
}

/// Has this thread run on the CPUs that the measuring thread is not pinned to, if there are any.
pub fn leave_to_others() {
    let pinned = PINNED.load(Ordering::Relaxed);
    let others: Vec<_> = allowed().into_iter().filter(|cpu| *cpu != pinned).collect();
    if others.is_empty() {
        return;
    }
    // SAFETY: zero bytes are an empty set; the numbers are those that such a set had.
    let chosen = unsafe {
        let mut chosen: libc::cpu_set_t = zeroed();
        others.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut chosen));
        chosen
    };
    set(&chosen);
}
