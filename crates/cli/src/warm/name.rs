//! The name of the daemon's socket. Who removes it has the daemon end: nothing else could reach it any more.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// It is removed with this, if it is still the socket's.
pub struct Name {
    path: PathBuf,
    /// Device and inode of the socket.
    id: (u64, u64),
    /// Readable once the socket or its directory may have changed its name; `None`: the kernel does not tell.
    watch: Option<File>,
}

impl Name {
    /// Of a socket that was bound just now.
    pub fn of(path: &Path) -> io::Result<Self> {
        let about = path.symlink_metadata()?;
        Ok(Self { path: path.to_owned(), id: (about.dev(), about.ino()), watch: watch(path).ok() })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it still names the socket. Where that cannot be told, it does.
    pub fn is_own(&self) -> bool {
        match self.path.symlink_metadata() {
            Ok(about) => (about.dev(), about.ino()) == self.id,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }

    /// Where the kernel tells of changes.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.watch.as_ref().map(File::as_raw_fd)
    }

    /// Takes what the kernel told.
    pub fn hear(&self) {
        let mut events = [0; 4096];
        while self.watch.as_ref().is_some_and(|mut watch| watch.read(&mut events).is_ok_and(|n| n > 0)) {}
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.is_own() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Has the kernel tell when the socket or its directory is renamed or removed.
fn watch(socket: &Path) -> io::Result<File> {
    let flags = libc::IN_CLOEXEC | libc::IN_NONBLOCK;
    // SAFETY: no pointers; a new descriptor has no other owner.
    let watch = unsafe {
        match libc::inotify_init1(flags) {
            ..0 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    let directory = socket.parent().ok_or(ErrorKind::InvalidInput)?;
    let moved = libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;
    // A name less is a change of the socket's attributes. It is there while it is bound.
    for (path, events) in [(socket, moved | libc::IN_ATTRIB | libc::IN_DONT_FOLLOW), (directory, moved)] {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a descriptor and a path.
        if unsafe { libc::inotify_add_watch(watch.as_raw_fd(), path.as_ptr(), events) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(watch.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn whatever_takes_the_name_away_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, other) = (dir.path().join("own"), dir.path().join("other"));
        let path = inner.join("socket");
        let tells = |name: &Name| {
            let mut wait = [super::super::sys::waiting(name.descriptor().unwrap(), libc::POLLIN)];
            super::super::sys::poll(&mut wait, Some(std::time::Duration::ZERO));
            wait[0].revents != 0
        };
        let changes: [&dyn Fn(); 4] = [
            &|| std::fs::remove_file(&path).unwrap(),
            &|| std::fs::rename(&path, inner.join("moved")).unwrap(),
            &|| std::fs::rename(&inner, &other).unwrap(),
            &|| {
                std::fs::write(inner.join("file"), "").unwrap();
                std::fs::rename(inner.join("file"), &path).unwrap();
            },
        ];
        for (i, change) in changes.into_iter().enumerate() {
            std::fs::create_dir(&inner).unwrap();
            let _socket = UnixDatagram::bind(&path).unwrap();
            let name = Name::of(&path).unwrap();
            assert!(name.is_own() && !tells(&name));
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            assert!(name.is_own() && tells(&name), "another change is no other name");
            name.hear();
            assert!(!tells(&name));
            change();
            assert!(!name.is_own() && tells(&name), "{i}");
            let is_taken = path.exists();
            drop(name);
            assert_eq!(path.exists(), is_taken, "what others put there stays");
            let _ = (std::fs::remove_dir_all(&inner), std::fs::remove_dir_all(&other));
        }
    }
}
