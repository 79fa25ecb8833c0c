//! When a file may be opened in the program's table of descriptors.
//!
//! A file that is opened gets the lowest free number, if only for a moment. Another thread of the program misses that
//! number then. Or it puts a file of its own there, which our `close` would close. So a guest of the program opens
//! files only where no other thread can see it:
//!
//! - in a process with one thread, signals held back,
//! - in the background thread, which has its own table,
//! - in a thread made for that (`helper.rs`).
//!
//! Some descriptors must be in the program's table, because its threads need them often. They are opened while the
//! process has one thread, and lie aside (`kept.rs`).

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::kept::{aside, open_marked};
use super::raw::{self, NoSignals, now_ns, syscall};
use super::stack::once;
use super::{helper, home, thread};
use crate::Errno;

/// Whether the table is a program's that does not know of us. A program that links this crate expects its descriptors.
static GUEST: AtomicBool = AtomicBool::new(false);
/// Until when the process is taken to have other threads.
static CROWDED_UNTIL: AtomicU64 = AtomicU64::new(0);
/// The one thread of the process is in [`unseen`] or [`apart`].
static INSIDE: AtomicBool = AtomicBool::new(false);
const CROWDED_NS: u64 = 1_000_000;

/// This process, with this number, is a guest's, and this memory is its own. Again in a forked child.
pub fn be_guest(number: i32) {
    GUEST.store(true, Ordering::Relaxed);
    home::note(number);
    CROWDED_UNTIL.store(0, Ordering::Relaxed);
}

/// Whether this is no child of vfork, which has its parent's memory, and a table of its own.
fn is_home() -> bool {
    home::is(raw::process_number() as i32)
}

/// Threads of this process: the entries of its task directory. To count them takes no descriptor.
fn threads() -> Option<usize> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let args =
        [libc::AT_FDCWD as usize, c"/proc/self/task".as_ptr() as usize, stat.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: a path that ends with zero; the structure is writable, and filled where the call succeeds.
    unsafe {
        syscall(libc::SYS_newfstatat, args).ok()?;
        (stat.assume_init().st_nlink as usize).checked_sub(2)
    }
}

/// Whether no other thread of the program has this table. Without `/proc` that is not known, and not so.
fn is_alone() -> bool {
    let now = now_ns();
    if now < CROWDED_UNTIL.load(Ordering::Relaxed) {
        return false;
    }
    let alone = match threads() {
        // The one thread of a child of vfork has its parent's memory, and perhaps its table, with all threads there.
        Some(1) => is_home(),
        // The background thread is counted while it is alive, and a moment longer.
        Some(2) => thread::is_alive() && is_home(),
        _ => false,
    };
    // What is so in a child of vfork says nothing about its parent.
    if !alone && is_home() {
        CROWDED_UNTIL.store(now + CROWDED_NS, Ordering::Relaxed);
    }
    alone
}

/// Calls `f`, which puts files aside in the program's table, where no thread of the program can see how. `None`: not
/// now.
pub fn unseen<R>(f: impl FnOnce() -> R) -> Option<R> {
    fn unseen(f: &mut dyn FnMut()) {
        if !GUEST.load(Ordering::Relaxed) {
            f();
        } else if !thread::is_this() && is_home() {
            alone(f);
        }
    }
    once(f, unseen)
}

/// Calls `f`, which opens files and closes them again, on any stack. `None`: not now.
pub fn apart<R>(f: impl FnOnce() -> R) -> Option<R> {
    fn apart(f: &mut dyn FnMut()) {
        match thread::is_this() {
            _ if !GUEST.load(Ordering::Relaxed) => f(),
            true if thread::has_own_files() => f(),
            true => {}
            false => {
                if !alone(f) {
                    helper::with_own_files(f);
                }
            }
        }
    }
    once(f, apart)
}

/// Calls `f`, which opens files and closes them again, by this thread or never.
pub fn here<R>(f: impl FnOnce() -> R) -> Option<R> {
    fn here(f: &mut dyn FnMut()) {
        match GUEST.load(Ordering::Relaxed) {
            true => _ = alone(f),
            false => f(),
        }
    }
    once(f, here)
}

/// Calls `f` if no other thread of the program has this table, with signals held back; whether it did.
fn alone(f: &mut dyn FnMut()) -> bool {
    if is_alone_now() {
        f();
        return true;
    }
    // Before the look: a handler may open files and start threads.
    let _no_signals = NoSignals::new();
    // A child of vfork has one thread and a table of its own, and its parent's memory: it notes nothing there.
    if !is_home() && threads() == Some(1) {
        f();
        return true;
    }
    let alone = is_alone();
    if alone {
        INSIDE.store(true, Ordering::Relaxed);
        f();
        INSIDE.store(false, Ordering::Relaxed);
    }
    alone
}

/// Whether this is [`apart`] or [`unseen`], in a process without another thread of the program.
pub(super) fn is_alone_now() -> bool {
    // No other thread of this process is there that could read this; a child of vfork may be.
    INSIDE.load(Ordering::Relaxed) && is_home()
}

/// Opens a file of /proc for reading, and puts it aside.
pub fn file_aside(path: &core::ffi::CStr) -> Result<usize, Errno> {
    unseen(|| aside(open_marked(path)?)).unwrap_or(Err(Errno::EMFILE))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_without_a_descriptor() {
        let before = threads().unwrap();
        let (go, stop) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || stop.recv().is_err());
        // Other tests begin and end theirs.
        assert!(before >= 1 && threads().unwrap() >= 2);
        drop(go);
        assert!(other.join().unwrap());
    }
}
