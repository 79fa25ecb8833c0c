//! What is this user's alone.

use std::ffi::{CString, OsStr};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// A directory that was looked at, and no link to one: what has its name later is another one.
pub struct Directory {
    held: File,
    about: Metadata,
}

impl Directory {
    /// The one with this name. No link is followed at the end of the path.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let held = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self { about: held.metadata()?, held })
    }

    /// Whether none but this user may change it.
    pub fn is_own(&self) -> bool {
        self.about.uid() == user() && self.is_closed()
    }

    /// The same, or none but root.
    pub fn is_safe(&self) -> bool {
        [0, user()].contains(&self.about.uid()) && self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.about.mode() & 0o022 == 0
    }

    /// Gives it these rights.
    fn set_mode(&mut self, mode: u32) -> std::io::Result<()> {
        let held = format!("/proc/self/fd/{}", self.held.as_raw_fd());
        std::fs::set_permissions(held, Permissions::from_mode(mode))?;
        self.about = self.held.metadata()?;
        Ok(())
    }

    /// What is in it under this name; a link is told as that.
    pub fn about(&self, name: &OsStr) -> std::io::Result<libc::stat> {
        let name = CString::new(name.as_bytes())?;
        // SAFETY: zero bytes are a value of the structure, which is writable; the name ends with zero.
        unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            match libc::fstatat(self.held.as_raw_fd(), name.as_ptr(), &mut about, libc::AT_SYMLINK_NOFOLLOW) {
                0 => Ok(about),
                _ => Err(Error::last_os_error()),
            }
        }
    }
}

/// Whether this is a directory, and no link to one, that none but this user may change.
pub fn is_directory(path: &Path) -> bool {
    Directory::open(path).is_ok_and(|dir| dir.is_own())
}

/// Makes such a directory with these rights, where there is none.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let shown = || path.display().to_string();
    let is_made = match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error).with_context(shown),
    };
    let is_own = Directory::open(path).and_then(|mut dir| {
        // Whatever the mask says. Another user may have put another one there since, where that is allowed.
        if is_made && dir.about.uid() == user() {
            dir.set_mode(mode)?;
        }
        Ok(dir.is_own())
    });
    ensure!(is_own.unwrap_or(false), "{} is not a directory of this user's alone", path.display());
    Ok(())
}

/// Opens the file of a lock, which is made where there is none. It waits for no other process, and takes nothing but a
/// regular file.
pub fn lock_file(path: &Path) -> std::io::Result<File> {
    let is_none = || Error::other("it is no regular file");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        // A FIFO that no process reads, or a socket; a directory; a link.
        Some(libc::ENXIO | libc::EISDIR | libc::ELOOP) => is_none(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(is_none()) }
}

/// A file that one process has at a time, as long as the result lives; another one waits.
pub fn lock(path: &Path) -> std::io::Result<File> {
    let file = lock_file(path)?;
    // SAFETY: a descriptor.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(file)
}
