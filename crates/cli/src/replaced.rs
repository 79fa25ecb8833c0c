//! A file for a report: found fit for it before there is a report, and replaced as a whole or not at all.
//!
//! A report goes to a new file beside it, which takes its name, rights and owner. So a full disk leaves what was there.
//! Reports are written in place to devices, pipes, links, files with several names or with an access list,
//! and files beside which no new one can be made. One to the file of an output of this process follows what is there:
//! the program has written to it, too.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use anyhow::{Context, Result};

/// Where a report goes.
pub struct Replaced {
    path: PathBuf,
    /// Open since before there was a report; later what replaced it.
    file: File,
    is_new: bool,
    is_written: bool,
}

impl Replaced {
    /// Opens it for writing, and makes it if it is not there. It keeps what it holds.
    pub fn open(path: &Path) -> Result<Self> {
        Self::at(path).with_context(|| format!("cannot write {}", path.display()))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        let made = options.clone().create_new(true).open(path);
        let (file, is_new) = match made {
            Ok(file) => (file, true),
            // There, or a link that leads nowhere yet.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (options.create(true).open(path)?, false),
            Err(error) => return Err(error),
        };
        let output = output_to(&file.metadata()?)?;
        let is_written = output.is_some();
        Ok(Self { path: path.into(), file: output.unwrap_or(file), is_new, is_written })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is now.
    pub fn about(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Writes a report. The first one replaces what was there, later ones follow it.
    pub fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if !self.is_written {
            let mut about = self.about()?;
            if about.is_file() && about.nlink() == 0 {
                // The program has removed it. What it may have put there instead is its own.
                self.file = OpenOptions::new().write(true).create_new(true).open(&self.path)?;
                about = self.about()?;
            }
            if about.is_file() && self.is_plain(&about) && self.replace(text, &about)? {
                self.is_written = true;
                return Ok(());
            }
            if about.is_file() {
                self.file.set_len(0)?;
            }
            self.is_written = true;
        }
        self.file.write_all(text)
    }

    /// Whether another file can stand in its place: this path is its only name, and no list says who else may use it.
    fn is_plain(&self, about: &Metadata) -> bool {
        let id = |of: &Metadata| (of.dev(), of.ino());
        let is_named = self.path.symlink_metadata().is_ok_and(|named| id(&named) == id(about));
        is_named && about.nlink() == 1 && !has_attribute(&self.path, c"system.posix_acl_access")
    }

    /// Whether a new file could be made that took its place. An error: there is no room for the report.
    fn replace(&mut self, text: &[u8], about: &Metadata) -> io::Result<bool> {
        let directory =
            self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = tempfile::NamedTempFile::with_prefix_in(".faultless-", directory);
        let Some(mut new) = new.ok().filter(|new| keep(new.as_file(), about).is_ok()) else { return Ok(false) };
        // Without the name of the new file in its error.
        new.as_file_mut().write_all(text)?;
        // A mount point keeps its name.
        let Ok(file) = new.persist(&self.path) else { return Ok(false) };
        self.file = file;
        Ok(true)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let is_empty = || self.about().is_ok_and(|about| about.len() == 0);
        if self.is_new && !self.is_written && is_empty() {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// The output of this process that goes to this file, if it is a regular one.
fn output_to(about: &Metadata) -> io::Result<Option<File>> {
    let outputs = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    for output in outputs.into_iter().flatten().map(File::from) {
        let of = output.metadata()?;
        if about.is_file() && (of.dev(), of.ino()) == (about.dev(), about.ino()) {
            return Ok(Some(output));
        }
    }
    Ok(None)
}

/// Whether a file has the attribute `name`.
pub fn has_attribute(path: &Path, name: &CStr) -> bool {
    let path = CString::new(path.as_os_str().as_bytes());
    // SAFETY: two strings that end with zero; no buffer, only the size is asked for.
    path.is_ok_and(|path| unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), null_mut(), 0) } > 0)
}

/// Gives a new file the owner and the rights of the file that it replaces.
pub fn keep(new: &File, old: &Metadata) -> io::Result<()> {
    let made = new.metadata()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    new.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn wrote(path: &Path, texts: &[&str]) {
        let mut file = Replaced::open(path).unwrap();
        texts.iter().for_each(|text| file.write(text.as_bytes()).unwrap());
    }

    #[test]
    fn a_file_is_replaced_with_its_rights_and_links_stay_links() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, other] = ["file", "link", "other"].map(|name| dir.path().join(name));
        std::fs::write(&file, "a long text of old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let before = file.metadata().unwrap();
        wrote(&file, &["new", ", more"]);
        let after = file.metadata().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new, more");
        assert!(before.ino() != after.ino() && after.mode() == before.mode());
        symlink("file", &link).unwrap();
        wrote(&link, &["by a link"]);
        std::fs::hard_link(&file, &other).unwrap();
        wrote(&other, &["both"]);
        assert!(link.is_symlink() && std::fs::read_to_string(&link).unwrap() == "both");
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&other).unwrap();
        wrote(&link, &["anew"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "anew");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_that_was_removed_meanwhile_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = Replaced::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write(b"report").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "report");
        let mut file = Replaced::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "the program's").unwrap();
        assert!(file.write(b"report").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "the program's");
    }

    #[test]
    fn one_that_gets_no_report_is_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        wrote(&file, &[]);
        assert!(!file.exists());
        std::fs::write(&file, "old").unwrap();
        wrote(&file, &[]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        assert!(Replaced::open(dir.path()).is_err());
        wrote(Path::new("/dev/null"), &["a", "b"]);
    }
}
