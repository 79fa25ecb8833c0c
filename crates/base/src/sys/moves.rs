//! Moving pages between memory of the engine and of the program (`UFFDIO_MOVE`).
//!
//! The kernel moves pages only into a range that is registered with a userfaultfd. The range is registered for write
//! protection, and only while pages move; no page is ever protected. So no fault is delivered and no thread waits for
//! an answer of ours. The kernel serves faults in between as always: of two threads that bring the same page, the
//! first wins. For the same reason the kind of descriptor that every process may have is enough.
//!
//! The kernel refuses to move pages that are shared, pinned or locked, or that have other rights than their target.
//!
//! The background thread has a descriptor in its own table, which ends with it. The program's threads share one in the
//! program's table (`kept.rs`).

use core::sync::atomic::{AtomicUsize, Ordering};

use super::kept::{Kept, aside};
use super::raw::{self, NoSignals};
use super::uffd::{REGISTER_WP, Uffd, Wake, Way, feature};
use super::{frames, open as table, pagemap, thread};
use crate::Errno;
use crate::units::{SLOT, Span};

static BACKGROUND: Kept = Kept::of_background();
static PROGRAM: Kept = Kept::new();

/// A new background thread: what the last one had open ended with it.
pub fn new_thread() {
    BACKGROUND.forget();
}

/// Calls that must not meet a registered range: the kernel moves several areas in one call (Linux 6.17), but stops
/// half way at one that is registered.
struct Turns {
    /// Calls of the program under way that may move several areas.
    held: AtomicUsize,
    /// Threads that have a range registered.
    registered: AtomicUsize,
}

static TURNS: Turns = Turns { held: AtomicUsize::new(0), registered: AtomicUsize::new(0) };

impl Turns {
    /// No thread registers anything from now on until as many [`release`](Self::release)s. Waits for what is
    /// registered, which is a matter of our own calls to the kernel alone, but not for ever.
    fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        for _ in 0..TURN_TRIES {
            if !self.is_registered() {
                return;
            }
            thread::hurry();
            raw::sleep_ns(TURN_REST_NS);
        }
    }

    fn is_registered(&self) -> bool {
        self.registered.load(Ordering::SeqCst) != 0
    }

    fn release(&self) {
        self.held.fetch_sub(1, Ordering::Release);
    }

    /// `register`, unless its range might be met.
    fn take<T>(&self, register: impl FnOnce() -> T) -> Option<T> {
        self.registered.fetch_add(1, Ordering::SeqCst);
        let done = (self.held.load(Ordering::SeqCst) == 0).then(register);
        self.registered.fetch_sub(1, Ordering::Release);
        done
    }

    fn forget(&self) {
        self.held.store(0, Ordering::Relaxed);
        self.registered.store(0, Ordering::Relaxed);
    }
}

/// How often and how long a call of the program waits for ranges that are registered: a tenth of a second in all.
const TURN_TRIES: usize = 2000;
const TURN_REST_NS: u64 = 50_000;

/// While this lives, no range is registered that a call of the program's could meet. Signals are held back: a handler may
/// leave by a jump.
pub struct Unregistered(#[expect(dead_code, reason = "dropped")] NoSignals);

impl Unregistered {
    /// Waits for what is registered.
    pub fn hold() -> Self {
        let no_signals = NoSignals::new();
        TURNS.hold();
        Self(no_signals)
    }
}

impl Drop for Unregistered {
    fn drop(&mut self) {
        TURNS.release();
    }
}

/// In a forked child: the descriptors are about the parent's memory.
pub fn forget() {
    TURNS.forget();
    BACKGROUND.forget();
    PROGRAM.close();
}

/// Whether this process may have what it takes; the descriptor.
pub fn open() -> Result<Uffd, Errno> {
    let uffd = Uffd::open(Way::UserModeOnly)?;
    uffd.enable(feature::MOVE)?;
    Ok(uffd)
}

/// As [`super::Sys::move_pages`].
pub fn move_pages(from: Span, to: usize) -> Option<usize> {
    let (kept, number) = kept();
    match number {
        Some(number) => Some(move_in_turn(number, from, to)),
        None if kept.is_given_up() => None,
        // Not now: another thread opens it.
        None => Some(0),
    }
}

/// As [`super::Sys::may_move`].
pub fn is_open() -> bool {
    kept().1.is_some()
}

/// As [`move_pages`], of a thread that may wait for another one, which opens what it takes.
pub fn move_or_wait(from: Span, to: usize) -> usize {
    let mut has_looked_again = false;
    for _ in 0..TURN_TRIES {
        let (kept, number) = kept();
        if let Some(number) = number {
            return move_in_turn(number, from, to);
        }
        // It may have been opened just now.
        let is_opening = kept.is_being_opened();
        if !is_opening && has_looked_again {
            break;
        }
        has_looked_again = !is_opening;
        if is_opening {
            raw::sleep_ns(TURN_REST_NS);
        }
    }
    0
}

/// The descriptor of this kind of thread, if it is there now.
fn kept() -> (&'static Kept, Option<usize>) {
    match thread::is_this() {
        true => (&BACKGROUND, BACKGROUND.get(|| open_own().map(Uffd::keep))),
        false => (&PROGRAM, PROGRAM.get(open_aside)),
    }
}

fn move_in_turn(number: usize, from: Span, to: usize) -> usize {
    TURNS.take(|| move_with(&Uffd::kept(number), from, to)).unwrap_or(0)
}

/// Moves the huge page at `slot`, if one is there, to an empty `frame` of the engine's. False: it is not in the frame;
/// if the move stopped half way, the page is gone.
pub fn take_huge(slot: usize, frame: usize) -> bool {
    let from = Span::new(slot, SLOT);
    // Page by page it would take longer than to have a new one.
    if pagemap::first(from, pagemap::HUGE, 0) != Some(from) {
        return false;
    }
    match move_pages(from, frame).unwrap_or(0) {
        SLOT => true,
        done => {
            if done > 0 {
                frames::drop_pages(frame);
            }
            false
        }
    }
}

/// Before the process has more threads.
pub fn keep() {
    let _ = PROGRAM.get(open_aside);
}

/// For the program's threads, in the program's table.
fn open_aside() -> Result<usize, Errno> {
    table::unseen(|| aside(open()?.keep())).unwrap_or(Err(Errno::EMFILE))
}

/// For the background thread, in its own table.
fn open_own() -> Result<Uffd, Errno> {
    thread::has_own_files().then(open).ok_or(Errno::EPERM)?
}

fn move_with(uffd: &Uffd, from: Span, to: usize) -> usize {
    let target = Span::new(to, from.bytes());
    // SAFETY: nothing is ever write-protected, so no access waits.
    if unsafe { uffd.register(target, REGISTER_WP) }.is_err() {
        return 0;
    }
    let (mut done, mut piece) = (0, from.bytes());
    while done < from.bytes() {
        let part = Span::new(to + done, piece.min(from.bytes() - done));
        // SAFETY: `from` is the engine's own, and only pages that are missing are brought.
        match unsafe { uffd.move_pages(from.start + done, part, Wake::Later) } {
            Ok(()) => done += part.bytes(),
            // Either side may be several areas to the kernel, of which each needs a call of its own.
            Err(stopped) if stopped.error == Errno::EINVAL && stopped.done == 0 && piece > SLOT => piece = SLOT,
            // The address space changes: nothing is wrong with this page.
            Err(stopped) if stopped.error == Errno::EAGAIN && stopped.done > 0 => done += stopped.done,
            Err(stopped) => {
                done += stopped.done;
                break;
            }
        }
    }
    let _ = uffd.unregister_unwaited(target);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux, memory};
    use crate::sys::{Huge, Sys};
    use crate::units::PAGE;

    fn byte(at: usize) -> *mut u8 {
        at as *mut u8
    }

    #[test]
    fn no_thread_registers_anything_that_a_call_could_meet() {
        let turns = Turns { held: AtomicUsize::new(0), registered: AtomicUsize::new(0) };
        assert_eq!(turns.take(|| 1), Some(1));
        turns.hold();
        assert_eq!(turns.take(|| 2), None);
        turns.release();
        let registered = AtomicUsize::new(0);
        let register = || {
            registered.fetch_add(1, Ordering::SeqCst);
            registered.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            let move_some = || (0..20_000).for_each(|_| _ = turns.take(register));
            let moving = [scope.spawn(move_some), scope.spawn(move_some)];
            while !moving.iter().all(|thread| thread.is_finished()) {
                turns.hold();
                assert_eq!(registered.load(Ordering::SeqCst), 0);
                turns.release();
            }
        });
    }

    /// A thread that took the opening for a refusal would have small pages from then on.
    #[test]
    fn threads_wait_for_the_one_that_opens() {
        const THREADS: usize = 8;
        let Ok(_uffd) = open() else { return faultless_testkit::skip("no userfaultfd") };
        for _ in 0..10 {
            let (from, to) = (memory(THREADS), memory(THREADS));
            (from.start..from.end).step_by(SLOT).for_each(|at| Linux.touch(at));
            PROGRAM.forget();
            let start = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for slot in 0..THREADS {
                    let (start, at) = (&start, slot * SLOT);
                    scope.spawn(move || {
                        start.wait();
                        assert_eq!(move_or_wait(Span::new(from.start + at, SLOT), to.start + at), SLOT);
                    });
                }
            });
        }
    }

    #[test]
    fn pages_move_up_to_the_first_that_is_there() {
        let Ok(uffd) = open() else { return faultless_testkit::skip("no userfaultfd") };
        let (from, to) = (memory(4), memory(4));
        for slot in 0..4 {
            // SAFETY: memory of the test's own.
            unsafe { byte(from.start + slot * SLOT + 7).write(slot as u8 + 1) };
        }
        // SAFETY: the same.
        unsafe { byte(to.start + 2 * SLOT + 7).write(9) };
        assert_eq!(move_with(&uffd, from, to.start), 2 * SLOT);
        // SAFETY: the same.
        let bytes = |span: Span| [0, 1, 2, 3].map(|slot| unsafe { byte(span.start + slot * SLOT + 7).read() });
        assert_eq!(bytes(to), [1, 2, 9, 0]);
        assert_eq!(bytes(from), [0, 0, 3, 4]);
    }

    #[test]
    fn several_areas_are_moved_one_by_one_and_closed_ones_not_at_all() {
        let Ok(uffd) = open() else { return faultless_testkit::skip("no userfaultfd") };
        let (from, to) = (memory(4), memory(4));
        (from.start..from.end).step_by(SLOT).for_each(|at| Linux.touch(at));
        Linux.huge(Span::new(to.start + SLOT, SLOT), Huge::Refused);
        assert!(linux::reserve_at(Span::new(to.start + 3 * SLOT, SLOT), libc::MAP_FIXED));
        assert_eq!(move_with(&uffd, from, to.start), 3 * SLOT);
        assert!(Linux.present(to.start + 2 * SLOT) && !Linux.present(to.start + 3 * SLOT));
        assert!(Linux.present(from.start + 3 * SLOT) && !Linux.present(from.start + 2 * SLOT));
    }

    /// The range is registered no longer: a system call on a missing page works.
    #[test]
    fn what_is_missing_is_the_kernels_business() {
        let Ok(uffd) = open() else { return faultless_testkit::skip("no userfaultfd") };
        let (from, to) = (memory(1), memory(2));
        Linux.touch(from.start);
        assert_eq!(move_with(&uffd, from, to.start), SLOT);
        assert_eq!(Linux.peek_nonzero_pages(Span::new(to.start + SLOT, PAGE), 1), 0);
        let other = open().unwrap();
        // SAFETY: nothing is protected.
        assert!(unsafe { other.register(to, REGISTER_WP) }.is_ok(), "still registered with the first");
    }

    #[test]
    fn whole_huge_pages_move_with_their_bytes_and_others_stay() {
        let kept = memory(4).start;
        if open().is_err() {
            return faultless_testkit::skip("no pages are moved here");
        }
        pagemap::open();
        let memory = Span::new(frames::reserve_huge(3 * SLOT).unwrap(), 3 * SLOT);
        let byte = |at: usize| at as *mut u8;
        // SAFETY: memory of this test's own.
        let read = |at: usize| unsafe { byte(at).read_volatile() };
        // SAFETY: the same.
        let write = |at: usize, value: u8| unsafe { byte(at).write_volatile(value) };
        if !frames::fill(memory.start) {
            return faultless_testkit::skip("no huge page is to be had");
        }
        // The kernel does not move what a child of another test has, which may fork at any time. It goes when the child ends.
        let moves = |_| {
            write(memory.start + 5, 7);
            take_huge(memory.start, kept) || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                false
            }
        };
        assert!((0..1000).any(moves));
        assert_eq!((read(kept + 5), read(kept + SLOT - 1)), (7, 0));
        assert_eq!(read(memory.start + 5), 0, "nothing is left behind");
        // Small pages, and nothing at all.
        Linux.huge(Span::new(memory.start + SLOT, SLOT), Huge::Refused);
        write(memory.start + SLOT + PAGE, 8);
        assert!(!take_huge(memory.start + SLOT, kept + SLOT) && !take_huge(memory.start + 2 * SLOT, kept + SLOT));
        assert_eq!((read(memory.start + SLOT + PAGE), frames::is_whole(kept + SLOT)), (8, false));
    }
}
