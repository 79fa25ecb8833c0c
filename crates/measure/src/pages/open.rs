//! Opening a file that another user may have put there.
//!
//! Directories and environments of other users name pages. Such a name may lead to a device, a terminal or a pipe, and
//! opening that can do harm: a terminal may become the one of this process. So [`Looked`] takes hold of the file
//! without opening it (`O_PATH`). The caller looks at its kind and owner, and then opens that same file.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A regular file that was looked at, and not opened yet.
#[derive(Debug)]
pub struct Looked {
    held: File,
    path: PathBuf,
    /// What the kernel says of it.
    pub about: Metadata,
}

impl Looked {
    /// The file with this name. `None`: it is something else. No link is followed at the end of the path.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
        let about = held.metadata()?;
        Ok(about.is_file().then(|| Self { held, path: path.to_owned(), about }))
    }

    /// Opens it, for writing too where this user may: who may only read a page can still watch.
    pub fn open(&self) -> io::Result<File> {
        self.reopen(true).or_else(|_| self.reopen(false))
    }

    /// Opens it to be read.
    pub fn open_to_read(&self) -> io::Result<File> {
        self.reopen(false)
    }

    /// The same in a directory of this command's own, where no other user can replace a file: one descriptor is enough.
    pub fn open_own(self) -> io::Result<File> {
        match self.open() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                let Self { held, path, about } = self;
                drop(held);
                by_name(&path, &about, true).or_else(|_| by_name(&path, &about, false))
            }
            opened => opened,
        }
    }

    fn reopen(&self, write: bool) -> io::Result<File> {
        // Without /proc only a command's own directory is read.
        if !super::find::is_proc_there() {
            return by_name(&self.path, &self.about, write);
        }
        // This name is a link, to the very file.
        let held = format!("/proc/self/fd/{}", self.held.as_raw_fd());
        with_flags(Path::new(&held), write, FLAGS)
    }
}

/// The end of a lease on the file is not waited for.
const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

fn with_flags(path: &Path, write: bool, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// The file of this name, if it is still the file that was looked at.
fn by_name(path: &Path, about: &Metadata, write: bool) -> io::Result<File> {
    let file = with_flags(path, write, FLAGS | libc::O_NOFOLLOW)?;
    let now = file.metadata()?;
    let is_same = (now.dev(), now.ino()) == (about.dev(), about.ino());
    if is_same { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("link")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(status.success());
        let file = Looked::at(&at("file")).unwrap().expect("a file");
        let own = Looked::at(&at("file")).unwrap().expect("a file");
        // What has its name by now is not opened.
        std::fs::remove_file(at("file")).unwrap();
        std::fs::write(at("file"), "another").unwrap();
        assert_eq!(file.open().unwrap().metadata().unwrap().len(), 1);
        assert!(by_name(&at("file"), &file.about, true).is_err());
        assert_eq!(own.open_own().unwrap().metadata().unwrap().len(), 1);
        for other in [at("link"), at("pipe"), dir.path().to_owned(), "/dev/null".into(), "/dev/tty".into()] {
            assert!(Looked::at(&other).unwrap().is_none(), "{}", other.display());
        }
    }
}
