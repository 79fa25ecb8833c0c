//! A descriptor that is kept open in a table that the program has too.
//!
//! It lies out of the way of the numbers that the program gets. The program may close it, or put a file of its own in
//! its place. So each use first asks whether the descriptor is still ours, and opens another one if not. A child of
//! vfork, and a thread with a table of its own, would leave one behind in each table: they have none kept.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::raw::{self, syscall};
use super::{home, open};
use crate::Errno;

/// Where descriptors lie in the program's table: below this number, and above those that select(2) takes where the
/// limit allows.
const BELOW: usize = 2048;
/// Numbers that must be free for one more, and below which the limit is too low to take one of them.
const ROOM: usize = 24;
const LEAST_LIMIT: usize = 64;

/// After this many tries there are no more: the process may not have one. Threads may have tables of their own, and
/// one descriptor stays open in each. Where that cannot be told, all tries count.
const MOST_TRIES: usize = 16;

/// Whether what this thread opens is there for the threads of the process, as far as that can be told.
fn is_in_shared_table() -> Option<bool> {
    const KCMP_FILES: usize = 2;
    if !raw::may_call() {
        return None;
    }
    // SAFETY: no arguments; compares two threads.
    unsafe {
        let (pid, thread) = (raw::process_number() as i32, raw::thread_number() as i32);
        if !home::is(pid) {
            return Some(false);
        }
        let same = || syscall(libc::SYS_kcmp, [pid as usize, thread as usize, KCMP_FILES, 0, 0, 0]);
        if pid == thread { Some(true) } else { same().ok().map(|order| order == 0) }
    }
}

/// A descriptor that is kept open.
pub struct Kept {
    /// Its number and one more; 0: none yet.
    number: AtomicUsize,
    /// The number of its file, by which it is told from others.
    file: AtomicU64,
    /// How the file is open (`F_GETFL`).
    flags: AtomicUsize,
    /// Held by the thread that opens it.
    opening: AtomicBool,
    /// How often that has failed, apart from times when there was no number to spare.
    tries: AtomicUsize,
    /// It is for a thread with a table of its own.
    is_own: bool,
}

impl Kept {
    /// None yet, for the threads of the program.
    pub const fn new() -> Self {
        Self::with(false)
    }

    /// The same for the background thread, which has a table of its own.
    pub const fn of_background() -> Self {
        Self::with(true)
    }

    const fn with(is_own: bool) -> Self {
        Self {
            number: AtomicUsize::new(0),
            file: AtomicU64::new(0),
            flags: AtomicUsize::new(0),
            opening: AtomicBool::new(false),
            tries: AtomicUsize::new(0),
            is_own,
        }
    }

    /// The table that it was in is gone.
    pub fn forget(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.tries.store(0, Ordering::Relaxed);
        self.opening.store(false, Ordering::Release);
    }

    /// Closes a descriptor that is of no use here.
    pub fn close(&self) {
        // Where another thread may put a file in its place it stays open. The program may have opened the same file: one
        // of /proc is told from that by flags that no program opens it with.
        let is_same = |number: &usize| flags_of(*number) == Some(self.flags.load(Ordering::Relaxed));
        open::unseen(|| self.open_one().filter(is_same).map(close));
        self.forget();
    }

    /// Its number, if it is there and ours.
    pub(super) fn open_one(&self) -> Option<usize> {
        let number = self.number.load(Ordering::Acquire).checked_sub(1)?;
        (file_of(number)? == self.file.load(Ordering::Relaxed)).then_some(number)
    }

    /// Its number; opens it by `open` if there is none.
    pub fn get(&self, open: impl FnOnce() -> Result<usize, Errno>) -> Option<usize> {
        if let Some(number) = self.open_one() {
            return Some(number);
        }
        let shared = if self.is_own { Some(true) } else { is_in_shared_table() };
        if self.is_given_up() || shared == Some(false) || self.opening.swap(true, Ordering::Acquire) {
            return None;
        }
        let opened = open().and_then(|number| {
            self.file.store(file_of(number).ok_or(Errno::EBADF)?, Ordering::Relaxed);
            self.flags.store(flags_of(number).ok_or(Errno::EBADF)?, Ordering::Relaxed);
            Ok(number)
        });
        let counts = opened != Err(Errno::EMFILE) && (opened.is_err() || shared.is_none());
        self.tries.fetch_add(counts as usize, Ordering::Relaxed);
        // A child of vfork has closed its own, perhaps, and not its parent's.
        if let Ok(number) = opened {
            self.number.store(number + 1, Ordering::Release);
        }
        self.opening.store(false, Ordering::Release);
        opened.ok()
    }

    /// Whether a thread opens it just now.
    pub fn is_being_opened(&self) -> bool {
        self.opening.load(Ordering::Acquire)
    }

    /// Whether it is not tried any more.
    pub fn is_given_up(&self) -> bool {
        self.tries.load(Ordering::Relaxed) >= MOST_TRIES
    }
}

/// A number that tells an open file from all others of its kind: each userfaultfd has an inode of its own (Linux
/// 5.12).
pub fn file_of(fd: usize) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is writable, and filled where the call succeeds.
    unsafe {
        syscall(libc::SYS_fstat, [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0]).ok()?;
        let stat = stat.assume_init();
        Some(stat.st_ino ^ stat.st_dev.rotate_left(48))
    }
}

fn flags_of(fd: usize) -> Option<usize> {
    // SAFETY: answers a number.
    unsafe { syscall(libc::SYS_fcntl, [fd, libc::F_GETFL as usize, 0, 0, 0, 0]) }.ok()
}

/// Opens a file of /proc for reading, with flags that change nothing about it, and that no program gives it.
pub(super) fn open_marked(path: &CStr) -> Result<usize, Errno> {
    const MARK: i32 = libc::O_APPEND | libc::O_SYNC | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | MARK;
    // SAFETY: a path that ends with zero.
    unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
    }
}

pub fn close(number: usize) {
    // SAFETY: a descriptor of ours.
    let _ = unsafe { syscall(libc::SYS_close, [number, 0, 0, 0, 0, 0]) };
}

/// Moves a descriptor out of the way of the program's numbers.
pub fn aside(number: usize) -> Result<usize, Errno> {
    let placed = copy_aside(number);
    close(number);
    placed
}

fn copy_aside(number: usize) -> Result<usize, Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let at = &raw mut limit as usize;
    // SAFETY: writes the limit; duplicates a descriptor of ours.
    unsafe {
        syscall(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, 0, at, 0, 0])?;
        let limit = limit.rlim_cur.min(BELOW as u64) as usize;
        if limit < LEAST_LIMIT {
            return Err(Errno::EMFILE);
        }
        syscall(libc::SYS_fcntl, [number, libc::F_DUPFD_CLOEXEC as usize, limit - ROOM, 0, 0, 0])
    }
}
