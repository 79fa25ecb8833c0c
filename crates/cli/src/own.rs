//! What is this user's alone.

use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
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
