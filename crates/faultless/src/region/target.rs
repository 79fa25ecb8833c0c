//! The file that a snapshot is saved to, under another name until all of it is there.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::descriptor::Descriptor;

use crate::error::Error;
use crate::process::owner::Owner;

/// How a new file and a directory are opened.
const NEW: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOCTTY;
const DIRECTORY: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// A file that is being written. It lies where the path led to when it was made: the program may change its working
/// directory, and others may rename a directory on the way.
pub(crate) struct Target {
    directory: Descriptor,
    file: Descriptor,
    partial: CString,
    name: CString,
    owner: Owner,
}

impl Target {
    /// Makes the file.
    pub fn new(path: &Path) -> Result<Self, Error> {
        Self::make(path).map_err(kernel)
    }

    fn make(path: &Path) -> io::Result<Self> {
        let (directory, name) = split(path.as_os_str().as_bytes())?;
        let directory = open(libc::AT_FDCWD, &directory, DIRECTORY)?;
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mut partial = name.as_bytes().to_vec();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        partial.extend(format!(".partial-{}-{number}", process::id()).bytes());
        let partial = CString::new(partial)?;
        let file = open(number_of(&directory)?, &partial, NEW)?;
        Ok(Self { directory, file, partial, name, owner: Owner::here() })
    }

    /// Its length, as far as it is not written.
    pub fn set_length(&self, bytes: usize) -> Result<(), Error> {
        self.file().and_then(|file| file.set_len(bytes as u64)).map_err(kernel)
    }

    /// Writes a part.
    pub fn write(&self, bytes: &[u8], at: usize) -> Result<(), Error> {
        self.file().and_then(|file| file.write_all_at(bytes, at as u64)).map_err(kernel)
    }

    /// All of it was written: it gets its name when it is durable.
    pub fn end(&self) -> Result<(), Error> {
        self.name_it().map_err(kernel)
    }

    fn name_it(&self) -> io::Result<()> {
        self.file()?.sync_all()?;
        let directory = number_of(&self.directory)?;
        // SAFETY: both names end with a zero byte.
        tried(|| unsafe { libc::renameat(directory, self.partial.as_ptr(), directory, self.name.as_ptr()) })?;
        // SAFETY: no memory is given.
        tried(|| unsafe { libc::fsync(directory) }).map(drop)
    }

    fn file(&self) -> io::Result<ManuallyDrop<File>> {
        // SAFETY: open now; the descriptor closes it.
        number_of(&self.file).map(|number| ManuallyDrop::new(unsafe { File::from_raw_fd(number) }))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // In a child it is the parent's. It is gone if it has got its name.
        if let Ok(directory) = number_of(&self.directory)
            && self.owner.is_here()
        {
            // SAFETY: the name ends with a zero byte.
            unsafe { libc::unlinkat(directory, self.partial.as_ptr(), 0) };
        }
    }
}

/// The directory of a path, and the name there.
fn split(path: &[u8]) -> io::Result<(CString, CString)> {
    if path.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => path.split_at(slash + 1),
        None => (&b"."[..], path),
    };
    if name.is_empty() || name == b"." || name == b".." {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok((CString::new(directory)?, CString::new(name)?))
}

/// Opens a file; the directory is one that a relative path begins at.
fn open(directory: i32, path: &CString, flags: i32) -> io::Result<Descriptor> {
    // SAFETY: the path ends with a zero byte.
    let opened = tried(|| unsafe { libc::openat(directory, path.as_ptr(), flags, 0o666) })?;
    Ok(Descriptor::new(opened as usize))
}

/// A number to use at once. If the program has closed it, what it opened since under the same number is left alone.
fn number_of(descriptor: &Descriptor) -> io::Result<i32> {
    match descriptor.is_open() {
        true => Ok(descriptor.number() as i32),
        false => Err(io::Error::from_raw_os_error(libc::EBADF)),
    }
}

/// What a call answers when no signal interrupts it.
fn tried(call: impl Fn() -> i32) -> io::Result<i32> {
    loop {
        match call() {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            answer => return Ok(answer),
        }
    }
}

fn kernel(error: io::Error) -> Error {
    // A zero byte in a path is the only one that the kernel has not said.
    Error::Kernel(error.raw_os_error().unwrap_or(libc::EINVAL))
}
