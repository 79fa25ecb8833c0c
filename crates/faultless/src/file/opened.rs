//! A descriptor of a file that the program may close.
//!
//! A program may close descriptors that it does not know (`closefrom`), and the next file that it opens has the number
//! then. So before each use this looks whether the number is still that of the file that it was opened for. If not, the
//! use is `EBADF`, and the end of this closes nothing. A file that has lost its name stays as long as this does: else
//! the next file could be taken for it.

use std::fs::{File, Metadata};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

use faultless_base::Errno;
use faultless_base::sys::descriptor::FileDescriptor;

/// Such a descriptor.
pub(super) struct Opened {
    /// Closed by `descriptor`.
    file: ManuallyDrop<File>,
    descriptor: FileDescriptor,
}

impl Opened {
    pub(super) fn new(file: File) -> Self {
        let descriptor = FileDescriptor::new(file.as_raw_fd() as usize);
        Self { file: ManuallyDrop::new(file), descriptor }
    }

    /// EBADF: it is not open any more.
    pub(super) fn get(&self) -> Result<&File, Errno> {
        if self.descriptor.is_open() { Ok(&self.file) } else { Err(Errno::EBADF) }
    }

    /// The same, with what the file is like, by one call.
    pub(super) fn get_with_metadata(&self) -> Result<(&File, Metadata), Errno> {
        let about = self.file.metadata().map_err(|error| Errno::new(error.raw_os_error().unwrap_or(libc::EIO)))?;
        if self.descriptor.is_file(about.dev(), about.ino()) { Ok((&self.file, about)) } else { Err(Errno::EBADF) }
    }

    /// Its number, for the next call.
    pub(super) fn number(&self) -> Result<RawFd, Errno> {
        self.get().map(AsRawFd::as_raw_fd)
    }

    /// The same for a call that writes at a place of the file. EBADF, too, where writes go to the end, whatever place
    /// they name: the program has opened the file anew by this number.
    pub(super) fn number_to_write(&self) -> Result<RawFd, Errno> {
        let number = self.number()?;
        // SAFETY: a question about a descriptor.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        if flags >= 0 && flags & libc::O_APPEND == 0 { Ok(number) } else { Err(Errno::EBADF) }
    }
}
