//! Where the daemon listens: a socket of this user's alone.

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

/// The file beside the socket that one daemon has at a time.
pub fn lock_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Whether there is a socket of this user's, in a directory that others can neither change nor have put in its place.
pub fn is_own(socket: &Path) -> bool {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else { return false };
    let about =
        own::Directory::open(dir).ok().filter(own::Directory::is_safe).and_then(|dir| dir.about(name).ok());
    about.is_some_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFSOCK && about.st_uid == own::user())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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
    fn a_socket_is_trusted_where_others_can_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let [own, link] = ["own", "link"].map(|name| dir.path().join(name));
        std::fs::create_dir(&own).unwrap();
        let _socket = std::os::unix::net::UnixDatagram::bind(own.join("socket")).unwrap();
        std::fs::write(own.join("file"), "").unwrap();
        // As in /tmp, where another user may put a link to any directory of this one.
        std::os::unix::fs::symlink("own", &link).unwrap();
        assert!(is_own(&own.join("socket")));
        assert!(![own.join("file"), own.join("none"), link.join("socket")].iter().any(|path| is_own(path)));
        std::fs::set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
        assert!(!is_own(&own.join("socket")));
    }

    #[test]
    fn a_socket_is_not_its_own_lock() {
        let of = |socket: &str| lock_of(Path::new(socket));
        assert_eq!(["/a/socket", "/a/x.lock"].map(of), ["/a/socket.lock", "/a/x.lock.lock"].map(PathBuf::from));
    }

    #[test]
    fn one_place_for_each_user() {
        assert_eq!(directory(Some("/run/user/7".into())), Path::new("/run/user/7/faultless-warm"));
        let other = format!("/tmp/faultless-warm-{}", own::user());
        assert_eq!(directory(Some("x".into())), Path::new(&other));
    }
}
