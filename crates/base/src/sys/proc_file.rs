//! Files of /proc that are read again and again, by any thread. They are those of the thread that opens them: the files
//! of the process say nothing once its first thread has ended.
//!
//! The background thread opens each anew in its own table. The program's threads share a descriptor, which lies aside
//! in the program's table (`kept.rs`), and is opened while there is one thread (`open.rs`). Without it each thread
//! reads the file apart, which takes longer.

use core::ffi::CStr;

use super::kept::Kept;
use super::open;
use super::raw::{self, syscall};
use super::thread;

/// What the process has in memory.
pub static STATM: ProcFile = ProcFile::new(c"/proc/thread-self/statm");
/// What the kernel says of it, filters of system calls among that.
pub static STATUS: ProcFile = ProcFile::new(c"/proc/thread-self/status");
/// The control groups that it is in.
pub static CGROUP: ProcFile = ProcFile::new(c"/proc/thread-self/cgroup");

const ALL: [&ProcFile; 3] = [&STATM, &STATUS, &CGROUP];

/// Such a file.
pub struct ProcFile {
    path: &'static CStr,
    kept: Kept,
}

impl ProcFile {
    const fn new(path: &'static CStr) -> Self {
        Self { path, kept: Kept::new() }
    }

    /// The descriptor, in the program's table. It is not to be closed.
    pub(super) fn number(&self) -> Option<usize> {
        // What was opened by a thread that has ended says nothing, or what was so then.
        if thread::is_this() || thread::is_outlived() {
            return None;
        }
        self.kept.get(|| open::file_aside(self.path))
    }

    /// Its first bytes, as far as they fit; empty when it cannot be had.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        if thread::is_this() {
            return if thread::has_own_files() { raw::read_file(self.path, buffer) } else { &[] };
        }
        let n = match self.number() {
            Some(fd) => read_at(fd, buffer, 0),
            None => return self.read_anew(buffer),
        };
        &buffer[..n]
    }

    /// The same, of this thread.
    pub fn read_anew<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let n = open::apart(|| raw::read_file(self.path, buffer).len()).unwrap_or(0);
        &buffer[..n]
    }

    /// The same by this thread and few system calls, all of which a program behind a filter has made: where the descriptor is kept,
    /// or the process has one thread. `None`: not now.
    pub fn read_plainly<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let n = match self.kept.open_one() {
            Some(fd) => read_at(fd, buffer, 0),
            None => open::here(|| raw::read_file(self.path, buffer).len())?,
        };
        Some(&buffer[..n])
    }

    /// For reading all of it, by one of the program's threads.
    pub fn reader(&self) -> Option<Reader> {
        Some(Reader { fd: self.number()?, at: 0 })
    }
}

/// A place in a file that others read, too.
pub struct Reader {
    fd: usize,
    at: usize,
}

impl Reader {
    /// The next bytes; how many: 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let n = read_at(self.fd, buffer, self.at);
        self.at += n;
        n
    }
}

/// Bytes of a descriptor that is kept; how many.
pub(super) fn read_at(fd: usize, buffer: &mut [u8], at: usize) -> usize {
    // SAFETY: the buffer is writable.
    unsafe { syscall(libc::SYS_pread64, [fd, buffer.as_mut_ptr() as usize, buffer.len(), at, 0, 0]) }.unwrap_or(0)
}

/// Opens all of them: the process is about to have more threads.
pub fn keep() {
    ALL.into_iter().for_each(|file| _ = file.number());
}

/// In a forked child: the descriptors are about the parent.
pub fn forget() {
    ALL.into_iter().for_each(|file| file.kept.close());
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_from_its_start_each_time() {
        let (mut first, mut second) = ([0; 4096], [0; 4096]);
        let first = CGROUP.read(&mut first);
        assert!(!first.is_empty());
        assert_eq!(first, CGROUP.read(&mut second));
        let mut reader = CGROUP.reader().unwrap();
        let mut byte = [0];
        assert!(first.iter().all(|b| reader.read(&mut byte) == 1 && byte[0] == *b));
    }
}
