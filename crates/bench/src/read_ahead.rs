//! How far the kernel reads a device ahead: what is read by its mappings and calls depends on that. And files that the page
//! cache does not have.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::setting::{Changed, Setting};

/// What most machines have, in KiB.
pub const USUAL: &str = "128";

/// Which read-ahead a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ahead {
    /// The device's, as it was found.
    Found,
    /// What most machines have.
    Usual,
}

impl Ahead {
    /// What the name of a row has more.
    pub fn note(self) -> &'static str {
        match self {
            Self::Found => "",
            Self::Usual => ", read-ahead 128 KiB",
        }
    }
}

/// The read-ahead of the device that has the files of a folder.
pub struct ReadAhead {
    /// In KiB; the error says why it is not known.
    found: Result<String, String>,
    setting: Result<Setting, String>,
}

impl ReadAhead {
    /// Of the device of a folder.
    pub fn of(dir: &Path) -> Self {
        let path = path(dir);
        let read = || match &path {
            Ok(path) => fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display())),
            Err(why) => Err(why.to_string()),
        };
        let found = read().map(|text| text.trim().to_owned());
        let setting = match (&path, &found) {
            (Ok(path), Ok(found)) => Setting::new(path, || Ok(found.clone())),
            _ => Err("the files are not on a device".into()),
        };
        Self { found, setting }
    }

    /// What it is, in KiB.
    pub fn found(&self) -> Result<&str, &str> {
        self.found.as_deref().map_err(String::as_str)
    }

    /// Why no run has another one than was found, if that is so.
    pub fn why_not(&self) -> Option<&str> {
        match (&self.setting, self.found.as_deref()) {
            (Err(why), _) => Some(why),
            (_, Ok(USUAL)) => Some("it is that"),
            _ => None,
        }
    }

    /// Sets it for a run: until what this gives is dropped.
    pub fn set(&self, ahead: Ahead) -> Result<Option<Changed<'_>>, String> {
        match (ahead, &self.setting) {
            (Ahead::Found, _) => Ok(None),
            (_, Ok(setting)) => setting.set(USUAL).map(Some).map_err(|error| error.to_string()),
            (_, Err(why)) => Err(why.clone()),
        }
    }
}

fn path(dir: &Path) -> io::Result<PathBuf> {
    let device = fs::metadata(dir)?.dev();
    Ok(format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device)).into())
}

/// Writes all pages of the files below `dir`, and drops them from the page cache.
pub fn drop_pages(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            drop_pages(&path)?;
        } else if kind.is_file() {
            let file = fs::File::open(path)?;
            file.sync_data()?;
            // SAFETY: a descriptor that is open; takes no memory.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_device_has_no_read_ahead() {
        let ahead = ReadAhead::of(Path::new("/proc/self"));
        assert!(ahead.found().is_err() && ahead.why_not().is_some());
        assert!(
            ahead.set(Ahead::Found).is_ok_and(|changed| changed.is_none()) && ahead.set(Ahead::Usual).is_err()
        );
    }
}
