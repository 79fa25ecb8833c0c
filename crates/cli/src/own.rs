//! What is this user's alone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// Whether this is a directory, and no link to one, that none but this user may change.
pub fn is_directory(path: &Path) -> bool {
    let about = path.symlink_metadata();
    about.is_ok_and(|about| about.is_dir() && about.uid() == user() && about.mode() & 0o022 == 0)
}

/// Makes such a directory with these rights, where there is none.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        // Whatever the mask says.
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    }
    ensure!(is_directory(path), "{} is not a directory of this user's alone", path.display());
    Ok(())
}

/// A file that one process has at a time, as long as the result lives; another one waits.
pub fn lock(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    // SAFETY: a descriptor.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(file)
}
