//! Dropping memory that is all zero, beside threads that may write to it for the first time.
//!
//! After `MADV_FREE` the kernel may drop a page, until somebody writes to it: a write and a drop never miss each other.
//! So a page is given free, then looked at, then dropped by `MADV_PAGEOUT`. The look sees what was written before it. What
//! is written after it keeps the page.
//!
//! In between the kernel may drop the page for reasons of its own, with what was written before it was given free. So a pipe
//! holds it meanwhile: the kernel drops no page that somebody else refers to.

use core::sync::atomic::{AtomicBool, Ordering};

use super::kept::{Kept, aside};
use super::linux::{Linux, madvise};
use super::raw::syscall;
use super::{Sys, open, pagemap};
use crate::units::{SLOT, Span};

/// The ends of a pipe, which lie aside in the program's table; see `open.rs`.
static READ: Kept = Kept::new();
static WRITE: Kept = Kept::new();
/// Whether the pipe holds a page. If the page is held for good it stays so.
static IN_USE: AtomicBool = AtomicBool::new(false);

fn write_end() -> Option<usize> {
    WRITE.get(|| {
        open::unseen(|| {
            let (mut ends, flags) = ([0i32; 2], (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize);
            // SAFETY: writes two numbers.
            unsafe { syscall(libc::SYS_pipe2, [&raw mut ends as usize, flags, 0, 0, 0, 0]) }?;
            let [read, write] = ends.map(|end| aside(end as usize));
            READ.close();
            READ.get(|| read).ok_or(libc::EBADF)?;
            write
        })
        .unwrap_or(Err(libc::EMFILE))
    })
}

fn read_end() -> Option<usize> {
    READ.get(|| Err(libc::EMFILE))
}

/// Before the process has more threads.
pub(super) fn keep() {
    let _ = write_end();
}

/// In a forked child, for which what its parent holds is not held.
pub(super) fn forget() {
    READ.close();
    WRITE.close();
    IN_USE.store(false, Ordering::Relaxed);
}

/// A page that the pipe holds.
struct Held(());

impl Held {
    fn new(at: usize) -> Option<Self> {
        if IN_USE.swap(true, Ordering::Acquire) {
            return None;
        }
        let piece = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: 1 };
        let args = |end| [end, &raw const piece as usize, 1, 0, 0, 0];
        let end = write_end().filter(|_| read_end().is_some());
        // SAFETY: refers to the page, and reads it never.
        let sent = end.is_some_and(|end| unsafe { syscall(libc::SYS_vmsplice, args(end)) } == Ok(1));
        if !sent {
            IN_USE.store(false, Ordering::Release);
        }
        sent.then_some(Self(()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut byte = 0u8;
        // SAFETY: writes a byte.
        let read = |end| unsafe { syscall(libc::SYS_read, [end, &raw mut byte as usize, 1, 0, 0, 0]) };
        // Where the program has closed its end it stays in use.
        if read_end().map(read) == Some(Ok(1)) {
            IN_USE.store(false, Ordering::Release);
        }
    }
}

/// As [`Sys::drop_zero`].
pub(super) fn drop_zero(slot: Span, room: Span) -> Option<bool> {
    let is_zero = || Linux.copy_from_program(slot, room.start) && Linux.first_nonzero(room).is_none();
    if !is_zero() {
        return Some(false);
    }
    let is_huge = || pagemap::is_huge(slot) == Some(true);
    // To hold a missing page would bring one.
    let held = if is_huge() { Held::new(slot.start)? } else { return None };
    // One page is held: it has to be all of it.
    if !is_huge() || !madvise(slot, libc::MADV_FREE) {
        return None;
    }
    if !is_zero() {
        // To the kernel it is written to from now on. If it does not take that, the page is held for good.
        if !madvise(slot, libc::MADV_POPULATE_WRITE) {
            core::mem::forget(held);
        }
        return Some(false);
    }
    drop(held);
    madvise(slot, libc::MADV_PAGEOUT);
    Some(!Linux.present(slot.start) && !Linux.present(slot.start + SLOT / 2))
}

#[cfg(test)]
mod tests {
    use core::hint::spin_loop;
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use super::*;
    use crate::sys::Huge;
    use crate::sys::linux;

    fn memory(slots: usize) -> Span {
        let span = linux::reserve(slots * SLOT, SLOT).unwrap();
        assert!(Linux.open_first(span));
        Linux.huge(span, Huge::Advised);
        span
    }

    fn byte(at: usize) -> &'static AtomicU8 {
        // SAFETY: memory of the test's own, which stays.
        unsafe { AtomicU8::from_ptr(at as *mut u8) }
    }

    #[test]
    fn what_is_zero_goes_and_what_is_not_stays() {
        let (slots, room) = (memory(2), memory(1));
        let (zero, used) = (Span::new(slots.start, SLOT), Span::new(slots.start + SLOT, SLOT));
        Linux.touch(zero.start);
        byte(used.start + 77_777).store(5, Ordering::Relaxed);
        let Some(gone) = drop_zero(zero, room) else { return faultless_testkit::skip("no huge pages") };
        assert!(gone && !Linux.present(zero.start));
        assert_eq!(drop_zero(used, room), Some(false));
        assert_eq!(byte(used.start + 77_777).load(Ordering::Relaxed), 5);
    }

    /// Another thread writes twice, at any time: both writes stay.
    #[test]
    fn no_first_write_is_lost() {
        const ROUNDS: usize = 300;
        let (slot, room) = (memory(1), memory(1));
        let (turn, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (first, second) = (byte(slot.start + SLOT / 3), byte(slot.start + SLOT - 9));
        let (mut gone, mut lost) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while turn.load(Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                    (0..round % 60 * 80).for_each(|_| spin_loop());
                    first.store(1, Ordering::Relaxed);
                    (0..round * 37 % 2000).for_each(|_| spin_loop());
                    second.store(2, Ordering::Relaxed);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                Linux.discard(slot);
                Linux.touch(slot.start);
                turn.store(round, Ordering::Release);
                gone += usize::from(drop_zero(slot, room) == Some(true));
                while done.load(Ordering::Acquire) != round {
                    std::thread::yield_now();
                }
                let seen = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
                lost += usize::from(seen != (1, 2));
            }
        });
        assert_eq!(lost, 0, "{gone} of {ROUNDS} were dropped");
    }
}
