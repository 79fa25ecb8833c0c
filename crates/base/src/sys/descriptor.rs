//! Descriptors of this library in the program's table.
//!
//! A program may close descriptors that it does not know (`closefrom`), and the next file that it opens has the
//! number then. So a descriptor knows which file it was opened for, and is closed, read and registered with only
//! while it is still that file's.

use core::mem::{ManuallyDrop, MaybeUninit};

use super::raw::syscall;

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
