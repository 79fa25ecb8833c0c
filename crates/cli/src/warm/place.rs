//! Where the daemon listens: a socket of this user's alone.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::sys;
use crate::own;

/// Names the socket, for the daemon and for programs.
pub const VARIABLE: &str = "FAULTLESS_WARM";

/// The socket: what `FAULTLESS_WARM` names, or one in the user's directory for such files.
pub fn socket() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let given = named(VARIABLE).filter(|path| !path.as_os_str().is_empty());
    given.unwrap_or_else(|| directory(named("XDG_RUNTIME_DIR")).join("socket"))
}

fn directory(runtime: Option<PathBuf>) -> PathBuf {
    match runtime.filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("faultless-warm"),
        // Wherever a program has its temporary files, the socket is in one place.
        None => format!("/tmp/faultless-warm-{}", own::user()).into(),
    }
}

/// Makes the socket's own directory, where there is none, and checks that none but this user may change it.
pub fn prepare(socket: &Path) -> Result<()> {
    ensure!(socket.is_absolute(), "{} is no absolute path", socket.display());
    ensure!(sys::Address::of(socket).is_some(), "{} is too long for a socket", socket.display());
    let dir = socket.parent().context("no directory")?;
    own::make_directory(dir, 0o700)
}

/// Whether there is a socket of this user's.
pub fn is_own(socket: &Path) -> bool {
    let about = socket.symlink_metadata();
    about.is_ok_and(|about| about.file_type().is_socket() && about.uid() == own::user())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("new/socket");
        prepare(&socket).unwrap();
        let mode = || dir.path().join("new").metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(dir.path().join("new"), Permissions::from_mode(0o770)).unwrap();
        assert!(prepare(&socket).unwrap_err().to_string().contains("this user's alone"));
        std::os::unix::fs::symlink("/tmp", dir.path().join("link")).unwrap();
        assert!(prepare(&dir.path().join("link/socket")).is_err());
        assert!(prepare(Path::new("socket")).is_err());
        assert!(prepare(&dir.path().join("x".repeat(200))).is_err());
        assert!(!is_own(&socket) && !is_own(dir.path()));
    }

    #[test]
    fn one_place_for_each_user() {
        assert_eq!(directory(Some("/run/user/7".into())), Path::new("/run/user/7/faultless-warm"));
        let other = format!("/tmp/faultless-warm-{}", own::user());
        assert_eq!(directory(Some("x".into())), Path::new(&other));
    }
}
