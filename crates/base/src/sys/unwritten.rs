//! Dropping memory that is all zero, beside threads that may write to it for the first time.
//!
//! After `MADV_FREE` the kernel may drop a page, until a thread writes to it: a write and a drop never miss each
//! other. So a page is given free, then looked at, then dropped by `MADV_PAGEOUT`. The look sees all writes before
//! it. A write after it keeps the page.
//!
//! In between the kernel may drop the page for reasons of its own, with the bytes written before it was given free.
//! So a pipe holds it meanwhile: the kernel drops no page that has another reference.

use super::linux::{Linux, madvise};
use super::looks::copy_by;
use super::pagemap::Opened;
use super::raw::syscall;
use super::{Sys, open, thread};
use crate::units::{PAGE, Span};

/// A pipe that holds a page.
struct Held([i32; 2]);

impl Held {
    fn new(at: usize) -> Option<Self> {
        let mut ends = [0; 2];
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        // SAFETY: writes two numbers.
        unsafe { syscall(libc::SYS_pipe2, [&raw mut ends as usize, flags, 0, 0, 0, 0]) }.ok()?;
        let held = Self(ends);
        let piece = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: 1 };
        let args = [ends[1] as usize, &raw const piece as usize, 1, 0, 0, 0];
        // SAFETY: refers to the page, and reads it never.
        let sent = unsafe { syscall(libc::SYS_vmsplice, args) };
        (sent == Ok(1)).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for end in self.0 {
            // SAFETY: opened above.
            let _ = unsafe { syscall(libc::SYS_close, [end as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

/// Has the kernel take a page that was given free for a written one: where the program may not write to it, by a byte
/// that it holds already.
fn keep(slot: Span) -> bool {
    let by_hand = || {
        let mut byte = 0u8;
        let (path, at) = (c"/proc/thread-self/mem".as_ptr() as usize, &raw mut byte as usize);
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
        // SAFETY: a path that ends with zero, a byte of this stack, and memory of the program's, which does not change.
        unsafe {
            let file = syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]).ok()?;
            let read = syscall(libc::SYS_pread64, [file, at, 1, slot.start, 0, 0]);
            let written = read.and_then(|_| syscall(libc::SYS_pwrite64, [file, at, 1, slot.start, 0, 0]));
            let _ = syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            written.ok().filter(|&n| n == 1)
        }
    };
    madvise(slot, libc::MADV_POPULATE_WRITE) || by_hand().is_some()
}

/// As [`Sys::drop_zero`].
pub(super) fn drop_zero(slot: Span, room: Span) -> Option<bool> {
    open::apart(|| drop_by(&Opened::new()?, slot, room)).flatten()
}

fn drop_by(pagemap: &Opened, slot: Span, room: Span) -> Option<bool> {
    if pagemap.is_huge(slot)? {
        let gone = drop_unit(pagemap, slot, room);
        // The kernel divides a page that a forked process shares when it is read for another address.
        if gone.is_some() || pagemap.is_huge(slot)? {
            return gone.and_then(Unit::is_gone);
        }
        Linux.discard(room);
    }
    let room = Span::new(room.start, PAGE);
    let small_pages = || {
        let mut worst = Unit::Gone;
        for at in (slot.start..slot.end).step_by(PAGE).filter(|at| Linux.present(*at)) {
            worst = worst.max(drop_unit(pagemap, Span::new(at, PAGE), room)?);
            Linux.discard(room);
        }
        Some(worst)
    };
    let worst = small_pages()?;
    if worst != Unit::Held {
        return worst.is_gone();
    }
    // Each processor has pages in its hands that came there last. It lets them go before it looks for pages to write out.
    thread::on_each_cpu(|| _ = madvise(room, libc::MADV_PAGEOUT));
    small_pages()?.is_gone()
}

/// What became of a page, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    /// It is there no more.
    Gone,
    /// It is not zero.
    Used,
    /// It is zero, and the kernel keeps it.
    Held,
}

impl Unit {
    /// `None`: not now.
    fn is_gone(self) -> Option<bool> {
        (self != Self::Held).then_some(self == Self::Gone)
    }
}

/// The same for a huge page or a small one.
fn drop_unit(pagemap: &Opened, unit: Span, room: Span) -> Option<Unit> {
    let is_zero = || copy_by(pagemap, unit, room.start, false) && Linux.first_nonzero(room).is_none();
    if !is_zero() {
        return Some(Unit::Used);
    }
    let is_there = || match unit.bytes() {
        PAGE => Linux.present(unit.start),
        _ => pagemap.is_huge(unit) == Some(true),
    };
    // To hold a missing page would bring one.
    let held = if is_there() { Held::new(unit.start)? } else { return None };
    // One page is held: it has to be all of it.
    if !is_there() {
        return None;
    }
    // The kernel refuses locked memory, now and later.
    if !madvise(unit, libc::MADV_FREE) {
        return Some(Unit::Used);
    }
    if !is_zero() {
        // Before the pipe lets go of it.
        keep(unit);
        return Some(Unit::Used);
    }
    drop(held);
    madvise(unit, libc::MADV_PAGEOUT);
    let is_gone = || !Linux.present(unit.start) && !Linux.present(unit.end - PAGE);
    let is_one = || unit.bytes() == PAGE || pagemap.is_huge(unit) == Some(true);
    // The kernel keeps what a forked process shares, and what is pinned: a device may write there later. Shared pages
    // go by hand, where no other thread could write there meanwhile.
    if !is_gone() && open::is_alone_now() && is_one() && pagemap.is_shared(unit.start) && is_zero() {
        Linux.discard(unit);
    }
    Some(if is_gone() { Unit::Gone } else { Unit::Held })
}

#[cfg(test)]
mod tests {
    use core::hint::spin_loop;
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use super::*;
    use crate::sys::Huge;
    use crate::sys::linux::memory;
    use crate::units::SLOT;

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

    #[test]
    fn small_pages_go_one_by_one() {
        let (slot, room) = (Span::new(memory(1).start, SLOT), memory(1));
        Linux.huge(slot, Huge::Refused);
        (0..9).for_each(|page| Linux.touch(slot.start + page * PAGE));
        byte(slot.start + 3 * PAGE + 5).store(7, Ordering::Relaxed);
        // A page that the kernel has in its hands at this moment stays until the next try.
        let drops_to = |pages: usize| {
            (0..1000).any(|_| {
                let all = drop_zero(slot, room);
                assert!(all != Some(true) || pages == 0);
                Linux.present_pages(slot) == pages
            })
        };
        assert!(drops_to(1));
        assert_eq!(byte(slot.start + 3 * PAGE + 5).load(Ordering::Relaxed), 7);
        byte(slot.start + 3 * PAGE + 5).store(0, Ordering::Relaxed);
        assert!(drops_to(0));
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
