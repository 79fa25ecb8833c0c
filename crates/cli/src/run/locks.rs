//! Record locks (`fcntl`) that this process had before its exec, and has further.
//!
//! They belong to a table of descriptors. A lock is given up when any descriptor of its file is closed in that table,
//! also one that was opened for a look alone. So a thread keeps the table as it is, and the main thread and all later
//! ones have a copy: whatever they open and close, the locks stay. There is such a thread only where there are locks.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{filters, sys};

type Call = Box<dyn FnOnce() + Send>;

/// What the thread with the table is to call.
static HOLDER: OnceLock<Mutex<Sender<Call>>> = OnceLock::new();
/// There are locks, and no such thread could be had.
static IS_TOGETHER: AtomicBool = AtomicBool::new(false);

/// The descriptors of this thread's table; `None`: they cannot be told.
pub fn descriptors() -> Option<Vec<i32>> {
    let all = fs::read_dir("/proc/thread-self/fd").ok()?;
    Some(all.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect())
}

/// Whether a lock was taken by this descriptor, of this thread's table.
fn has_lock(fd: &i32) -> bool {
    let about = fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}")).unwrap_or_default();
    about.lines().any(|line| line.starts_with("lock:") && line.contains("POSIX"))
}

/// The file of a descriptor.
fn file(fd: i32) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/thread-self/fd/{fd}")).ok().map(|about| (about.dev(), about.ino()))
}

/// From now on this command gives up no lock by what it opens and closes. Before it has opened a file that is not its own.
pub fn keep() {
    let is_locked = || descriptors().is_some_and(|all| all.iter().any(has_lock));
    if filters::may_kill() || HOLDER.get().is_some() || !is_locked() {
        return;
    }
    let (calls, called) = channel::<Call>();
    let thread = std::thread::Builder::new().name("locks".into());
    // Signals are for the main thread.
    let spawn = || thread.spawn(move || called.into_iter().for_each(|call| call()));
    // SAFETY: no memory is involved. Where it fails, the thread ends, and all is as before.
    let is_apart = sys::without_signals(spawn).is_ok() && unsafe { libc::unshare(libc::CLONE_FILES) } == 0;
    if is_apart {
        let _ = HOLDER.set(Mutex::new(calls));
    }
    IS_TOGETHER.store(!is_apart, Ordering::Relaxed);
}

/// Calls `f` where the locks are.
pub fn with<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let Some(holder) = HOLDER.get() else { return f() };
    let (result, results) = channel();
    let call: Call = Box::new(move || drop(result.send(f())));
    let sent = holder.lock().unwrap_or_else(PoisonError::into_inner).send(call);
    sent.ok().and_then(|()| results.recv().ok()).expect("the thread lives as long as the process")
}

/// Of these descriptors, those that this thread may close: not those of locked files, if it has the locks.
pub fn closable(files: Vec<i32>) -> Vec<i32> {
    if IS_TOGETHER.load(Ordering::Relaxed) { unlocked(files) } else { files }
}

/// Closes them in the table with the locks, but for those of locked files.
pub fn leave_others(files: Vec<i32>) {
    if HOLDER.get().is_some() {
        // SAFETY: descriptors of that thread's table, which nothing else uses.
        with(move || unlocked(files).into_iter().for_each(|fd| unsafe { _ = libc::close(fd) }));
    }
}

/// Those of files that no descriptor here has a lock of.
fn unlocked(files: Vec<i32>) -> Vec<i32> {
    let locked: HashSet<_> = files.iter().copied().filter(has_lock).map(file).collect();
    files.into_iter().filter(|fd| !locked.contains(&file(*fd))).collect()
}
