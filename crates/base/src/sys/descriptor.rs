//! Descriptors of this library in the program's table.
//!
//! A program may close descriptors that it does not know (`closefrom`), and the next file that it opens has the
//! number then. So a descriptor knows which file it was opened for, and is closed, read and registered with only
//! while it is still that file's.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Deref;

use super::raw::syscall;
use crate::PAGE;

/// A file, as the kernel tells files apart. Files without an inode of their own, like eventfds, it does not tell
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    device: u64,
    inode: u64,
}

fn file(number: usize) -> Option<File> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for the answer.
    unsafe { syscall(libc::SYS_fstat, [number, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) }.ok()?;
    // SAFETY: numbers, which the kernel has written.
    let stat = unsafe { stat.assume_init() };
    Some(File { device: stat.st_dev, inode: stat.st_ino })
}

/// A descriptor, closed at the end if it is still the same file's.
#[derive(Debug)]
pub struct Descriptor {
    number: usize,
    /// `None`: it is not looked at.
    file: Option<File>,
}

impl Descriptor {
    /// For a number that was just opened, and belongs to the caller alone.
    pub fn new(number: usize) -> Self {
        Self { number, file: file(number) }
    }

    /// For a number that other code closes.
    pub fn kept(number: usize) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { number, file: None })
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether a file of which this is known is the one that it was opened for.
    pub fn is_file(&self, device: u64, inode: u64) -> bool {
        self.file.is_none_or(|before| before == File { device, inode })
    }

    /// Whether it is open in the table of this thread, for the file that it was opened for.
    pub fn is_open(&self) -> bool {
        self.file.is_none_or(|before| file(self.number) == Some(before))
    }
}

/// Keeps a file there for as long as this lives, whoever closes its descriptors: an inode that is freed may be the next
/// file's. It is a mapping of a page that nobody may access.
#[derive(Debug)]
struct Inode(Option<usize>);

impl Inode {
    /// That of an open file that may be read. One that cannot be mapped is not kept.
    fn keep(number: usize) -> Self {
        let args = [0, PAGE, libc::PROT_NONE as usize, libc::MAP_PRIVATE as usize, number, 0];
        // SAFETY: a new mapping, at a place that the kernel chooses.
        Self(unsafe { syscall(libc::SYS_mmap, args) }.ok())
    }
}

/// A descriptor of a file that may lose its last name, or has none. The file stays as long as this does.
#[derive(Debug)]
pub struct FileDescriptor {
    descriptor: Descriptor,
    _inode: Inode,
}

impl FileDescriptor {
    /// For a number that was just opened, and belongs to the caller alone.
    pub fn new(number: usize) -> Self {
        Self { descriptor: Descriptor::new(number), _inode: Inode::keep(number) }
    }
}

impl Deref for FileDescriptor {
    type Target = Descriptor;

    fn deref(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            // SAFETY: this value's own mapping.
            let _ = unsafe { syscall(libc::SYS_munmap, [at, PAGE, 0, 0, 0, 0]) };
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.is_open() {
            // SAFETY: this value's own.
            let _ = unsafe { syscall(libc::SYS_close, [self.number, 0, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn pipe() -> [usize; 2] {
        let mut ends = [0i32; 2];
        // SAFETY: room for two numbers.
        unsafe { syscall(libc::SYS_pipe2, [ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) }.unwrap();
        ends.map(|end| end as usize)
    }

    #[test]
    fn an_inode_that_is_kept_is_no_other_file_s() {
        use std::os::fd::AsRawFd;
        let directory = std::env::temp_dir();
        let nameless = || {
            use std::os::unix::fs::OpenOptionsExt;
            std::fs::File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(&directory)
        };
        // Not all file systems know files without a name.
        let Ok(first) = nameless() else { return };
        let before = file(first.as_raw_fd() as usize);
        let kept = Inode::keep(first.as_raw_fd() as usize);
        drop(first);
        let others = [(); 50].map(|()| nameless().unwrap());
        assert!(
            others.iter().all(|other| file(other.as_raw_fd() as usize) != before),
            "the next file was taken for it"
        );
        drop(kept);
    }

    #[test]
    fn a_number_that_is_another_file_s_is_left_alone() {
        let [read, write] = pipe().map(Descriptor::new);
        assert!(read.is_open() && write.is_open());
        let [other, other_write] = pipe();
        // SAFETY: this test's own descriptors.
        unsafe { syscall(libc::SYS_dup3, [other, read.number(), 0, 0, 0, 0]) }.unwrap();
        assert!(!read.is_open() && write.is_open());
        let number = read.number();
        drop(read);
        assert!(file(number).is_some() && file(number) == file(other), "it was closed");
        drop([number, other, other_write].map(Descriptor::new));
        assert_eq!((file(number), file(other_write)), (None, None));
    }
}
