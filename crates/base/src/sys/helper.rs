//! A call by a short-lived thread with a table of descriptors of its own, which is empty at first.
//!
//! It costs 15 microseconds. The caller waits with signals held back, and the thread has the caller's thread-local
//! variables meanwhile. To the code that `f` calls it is the same thread, but for its number.

use core::sync::atomic::{AtomicU32, Ordering};

use super::raw::{self, NoSignals, syscall};
use super::stack::{self, Taken};
use super::thread;

/// Calls `f`, whose files end with the call. Not where there can be no such thread now.
pub fn with_own_files(mut f: &mut dyn FnMut()) {
    if !raw::may_call() {
        return;
    }
    let number = AtomicU32::new(1);
    let _no_signals = NoSignals::all();
    let Some(stack) = Taken::new() else { return };
    // SAFETY: no other thread has the stack, and `run` expects this function; both outlive the thread.
    if unsafe { thread::clone(stack.top(), &number, None, run, (&raw mut f).cast()) } {
        wait(&number);
    }
}

/// # Safety
/// As [`stack::run`].
unsafe extern "C" fn run(f: *mut u8) {
    let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
    // SAFETY: in one step, so that no file of the program's is held for a moment.
    let is_own = unsafe { syscall(libc::SYS_close_range, [0, u32::MAX as usize, unshare, 0, 0, 0]) }.is_ok();
    if is_own {
        // SAFETY: by contract.
        unsafe { stack::run(f) };
    }
}

/// Until the kernel has cleared the thread's number. It wakes as for a word that several processes share.
fn wait(number: &AtomicU32) {
    loop {
        let now = number.load(Ordering::Acquire);
        if now == 0 {
            return;
        }
        let args = [number.as_ptr() as usize, libc::FUTEX_WAIT as usize, now as usize, 0, 0, 0];
        // SAFETY: a live word; every outcome means "look again".
        let _ = unsafe { syscall(libc::SYS_futex, args) };
    }
}

#[cfg(all(test, not(feature = "model"), target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_call_have_numbers_of_their_own() {
        let here = raw::open(c"/proc/self/maps").unwrap();
        let look = || (raw::open(c"/proc/self/statm"), super::super::kept::file_of(here).is_some() && here != 0);
        // The other test may have all stacks.
        let looks = std::iter::repeat_with(|| {
            std::thread::yield_now();
            stack::once(look, with_own_files)
        });
        let (there, here_seen_there) = looks.flatten().next().unwrap();
        assert_eq!(there, Ok(0), "its table is empty");
        assert!(!here_seen_there);
        super::super::kept::close(here);
    }

    #[test]
    fn many_threads_have_such_a_call_at_once() {
        std::thread::scope(|scope| {
            for i in 0..8usize {
                scope.spawn(move || {
                    for round in 0..200 {
                        let answer = stack::once(|| i * 1000 + round, with_own_files);
                        assert!(answer.is_none_or(|answer| answer == i * 1000 + round), "{answer:?}");
                    }
                });
            }
        });
    }
}
