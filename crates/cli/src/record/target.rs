//! The file of a recording: found fit for one before the program starts, and changed only once it has started.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use faultless_record::file::{MAGIC, Writer};
use faultless_record::sys;

/// A file that is open, and holds what it held. One that was made for this goes again unless a recording begins.
pub struct Target {
    file: File,
    made: Made,
}

/// Removes a file that was made, unless it is kept.
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // It is empty; nothing is lost if it stays.
            drop(std::fs::remove_file(path));
        }
    }
}

impl Target {
    /// Opens it. One that holds something else is left alone, and so is one that another command writes to.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, is_new) = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        if file.metadata().is_ok_and(|data| data.is_file()) {
            if !lock(&file) {
                bail!("another faultless record writes to {}: name another file with -o", path.display());
            }
            let mut first = Vec::new();
            let read = (&file).take(MAGIC.len() as u64).read_to_end(&mut first);
            if read.is_err() || !(first.is_empty() || first == MAGIC) {
                bail!("{} is there and is no recording: remove it, or name another file with -o", path.display());
            }
        }
        Ok(Self { file, made: Made(is_new.then(|| path.into())) })
    }

    /// Empties it, and begins a recording.
    pub fn begin(self) -> io::Result<Writer<BufWriter<File>>> {
        let Self { mut file, mut made } = self;
        made.0 = None;
        let data = file.metadata()?;
        if data.is_file() {
            // Command line and addresses are the user's own business. A file of another user keeps what it has.
            let mode = data.permissions().mode();
            if data.uid() == sys::user() && mode & 0o077 != 0 {
                file.set_permissions(Permissions::from_mode(mode & 0o700))?;
            }
            file.set_len(0)?;
            file.rewind()?;
        }
        Writer::new(BufWriter::new(file))
    }
}

/// Opens a file, and says whether it is new. A pipe without a reader is an error, and is not waited for.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let is_regular = match std::fs::metadata(path) {
        Ok(data) => data.is_file(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    let options = || {
        let mut options = OpenOptions::new();
        options.write(true).read(is_regular).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options
    };
    if is_regular {
        match options().create_new(true).open(path) {
            Ok(file) => return Ok((file, true)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let file = options().create(is_regular).open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("nobody reads this pipe"),
        _ => error,
    })?;
    // From now on its reader is waited for.
    // SAFETY: requests that take and give numbers, on an open descriptor.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK);
    }
    Ok((file, false))
}

/// Whether no other process holds the lock; it is held until the file is closed. A file system without locks has none held.
fn lock(file: &File) -> bool {
    // SAFETY: a request on an open descriptor.
    let done = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    done == 0 || io::Error::last_os_error().kind() != ErrorKind::WouldBlock
}
