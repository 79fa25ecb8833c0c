//! Record locks (`fcntl`) that this process had before its exec, and has further.
//!
//! They belong to a table of descriptors. A lock is given up when any descriptor of its file is closed in that table,
//! also one that was opened for a look alone. So a thread keeps the table as it is, and the main thread and all later
//! ones have a copy: whatever they open and close, the locks stay. There is such a thread only where there are locks.

use std::collections::HashSet;
use std::fs;
use std::mem::zeroed;
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
    // A process may have many files, and hardly any has locks: that the kernel says in a twentieth of the time.
    if is_unlocked(*fd) {
        return false;
    }
    let about = fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}")).unwrap_or_default();
    about.lines().any(|line| line.starts_with("lock:") && line.contains("POSIX"))
}

/// Whether no process has a record lock of a descriptor's file, where the kernel itself knows that.
fn is_unlocked(fd: i32) -> bool {
    // SAFETY: the structure is writable, and zero bytes are a value of it. A lock of the file as it was opened is asked for
    // (`F_OFD_GETLK`): those of processes are in its way, also this one's.
    let is_free = || unsafe {
        let mut lock: libc::flock = zeroed();
        lock.l_type = libc::F_WRLCK as _;
        libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) == 0 && i32::from(lock.l_type) == libc::F_UNLCK
    };
    is_asked_here(fd) && is_free()
}

/// Whether a question about locks of a file stays in the kernel: a server might not answer. So it is of no file of a file
/// system without a device.
fn is_asked_here(fd: i32) -> bool {
    // SAFETY: an empty path, and a structure that is writable, of which zero bytes are a value. No server is asked, and
    // the kind of a file and its device are known without that.
    let about = unsafe {
        let (mut about, flags): (libc::statx, _) = (zeroed(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC);
        let known = libc::statx(fd, c"".as_ptr(), flags, libc::STATX_TYPE, &mut about) == 0;
        known.then_some(about)
    };
    about.is_some_and(|about| {
        let is_data = matches!(u32::from(about.stx_mode) & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
        !is_data || about.stx_dev_major != 0
    })
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

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn lock(fd: i32, kind: i32) {
        // SAFETY: zero bytes are a value of the structure, which is valid for the call.
        unsafe {
            let mut lock: libc::flock = zeroed();
            (lock.l_type, lock.l_start, lock.l_len) = (kind as _, 7, 1);
            assert_eq!(libc::fcntl(fd, libc::F_SETLK, &raw mut lock), 0);
        }
    }

    #[test]
    fn locks_of_all_kinds_of_files_are_seen() {
        let (named, unnamed) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempfile().unwrap());
        let ((_end, pipe), (socket, _other)) = (pipe().unwrap(), UnixStream::pair().unwrap());
        let again = fs::File::open(named.path()).unwrap();
        assert!(is_unlocked(pipe.as_raw_fd()) && is_unlocked(socket.as_raw_fd()));
        for fd in [named.as_raw_fd(), unnamed.as_raw_fd(), pipe.as_raw_fd(), socket.as_raw_fd()] {
            for kind in [libc::F_RDLCK, libc::F_WRLCK] {
                // A pipe is open one way.
                if kind == libc::F_RDLCK && fd == pipe.as_raw_fd() {
                    continue;
                }
                assert!(!has_lock(&fd));
                lock(fd, kind);
                assert!(!is_unlocked(fd) && has_lock(&fd));
                assert!(!has_lock(&again.as_raw_fd()), "it was taken by another descriptor");
                lock(fd, libc::F_UNLCK);
            }
        }
        assert!(!has_lock(&-1));
    }
}
