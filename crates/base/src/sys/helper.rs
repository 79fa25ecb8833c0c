//! A call by a short-lived thread with a table of descriptors of its own, which is empty at first.
//!
//! It costs 15 microseconds. The caller waits with signals held back, and the thread has the caller's thread-local
//! variables meanwhile. To the code that `f` calls it is the same thread, but for its number.

use core::sync::atomic::{AtomicU32, Ordering};

use super::raw::{self, syscall};
use super::stack::Taken;

/// Calls `f`, whose files end with the call. `None`: there can be no such thread now.
pub fn with_own_files<R, F: FnOnce() -> R>(f: F) -> Option<R> {
    let mut call = Call { f: Some(f), result: None };
    let number = AtomicU32::new(1);
    if !raw::may_call() {
        return None;
    }
    raw::without_signals(|| {
        let stack = Taken::new()?;
        // SAFETY: nobody else has the stack, and `call` is what this instance of `run` expects; both outlive the thread.
        let is_there = unsafe { clone(stack.top(), &number, run::<R, F>, (&raw mut call).cast()) };
        is_there.then(|| wait(&number))
    })?;
    call.result
}

struct Call<F, R> {
    f: Option<F>,
    result: Option<R>,
}

/// # Safety
/// `call` must be a `Call<F, R>` that no other code uses.
unsafe extern "C" fn run<R, F: FnOnce() -> R>(call: *mut u8) {
    let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
    // SAFETY: in one step, so that no file of the program's is held for a moment.
    let is_own = unsafe { syscall(libc::SYS_close_range, [0, u32::MAX as usize, unshare, 0, 0, 0]) }.is_ok();
    // SAFETY: by contract.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    if is_own {
        call.result = call.f.take().map(|f| f());
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

/// # Safety
/// `stack` must be the upper end of unused memory, `number` live until the thread has ended, and `f` may be called with
/// `argument` by another thread.
#[cfg(target_arch = "x86_64")]
unsafe fn clone(stack: usize, number: &AtomicU32, f: unsafe extern "C" fn(*mut u8), argument: *mut u8) -> bool {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let answer: isize;
    // SAFETY: the new thread continues behind the system call on its own stack, calls `f`, and ends itself alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r9",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const libc::SYS_exit,
            in("r9") f, in("r12") argument,
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") flags as usize, in("rsi") stack & !15, in("rdx") number.as_ptr(), in("r10") number.as_ptr(),
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer > 0
}

/// # Safety
/// None needed: it does nothing.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone(_: usize, _: &AtomicU32, _: unsafe extern "C" fn(*mut u8), _: *mut u8) -> bool {
    false
}

#[cfg(all(test, not(feature = "model"), target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_call_have_numbers_of_their_own() {
        let here = raw::open(c"/proc/self/maps").unwrap();
        let (there, here_seen_there) = with_own_files(|| {
            (raw::open(c"/proc/self/statm"), super::super::kept::file_of(here).is_some() && here != 0)
        })
        .unwrap();
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
                        let answer = with_own_files(|| i * 1000 + round);
                        assert!(answer.is_none_or(|answer| answer == i * 1000 + round), "{answer:?}");
                    }
                });
            }
        });
    }
}
