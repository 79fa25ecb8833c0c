//! A setting of the system that is changed for the duration of some runs.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::process;

/// The right to change one. A watcher beside it puts the setting back when this process ends, in any way: the watcher
/// waits for the end of a pipe that only this process holds open.
pub struct Setting {
    path: PathBuf,
    found: String,
    watcher: Child,
    pipe: Option<ChildStdin>,
}

impl Setting {
    /// Of the file at `path`, which takes back what was `found` there. The error says why it cannot be changed.
    pub fn new(path: &Path, found: String) -> Result<Self, String> {
        let name = path.display();
        if !process::is_root() {
            return Err("changing the system's setting takes root".into());
        }
        fs::write(path, &found).map_err(|error| format!("{name}: {error}"))?;
        let mut watcher = Command::new("sh")
            .args(["-c", "read _; echo \"$1\" > \"$2\"", "sh", &found])
            .arg(path)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let pipe = watcher.stdin.take();
        Ok(Self { path: path.to_owned(), found, watcher, pipe })
    }

    /// Sets it until the returned guard is dropped.
    pub fn set(&self, value: &str) -> io::Result<Changed<'_>> {
        fs::write(&self.path, value)?;
        Ok(Changed(self))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.pipe = None;
        if let Err(error) = self.watcher.wait() {
            eprintln!("faultless: putting {} back: {error}", self.path.display());
        }
    }
}

/// While it lives, the setting is changed.
pub struct Changed<'a>(&'a Setting);

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        let Setting { path, found, .. } = self.0;
        if let Err(error) = fs::write(path, found) {
            eprintln!("faultless: {}: {error}; it was {found}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_put_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = || fs::read_to_string(file.path()).unwrap();
        let setting = match Setting::new(file.path(), "8192".into()) {
            Ok(setting) => setting,
            Err(why) => return faultless_testkit::skip(&why),
        };
        let changed = setting.set("128").unwrap();
        assert_eq!(read(), "128");
        drop(changed);
        assert_eq!(read(), "8192");
        fs::write(file.path(), "1").unwrap();
        drop(setting);
        assert_eq!(read(), "8192\n");
    }
}
