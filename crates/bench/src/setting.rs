//! A setting of the system that is changed for the duration of some runs.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::process;

/// What this process has locked. It may change a setting in several places, one after the other.
static LOCKED: Mutex<Vec<(PathBuf, Weak<File>)>> = Mutex::new(Vec::new());

/// The right to change one, which one process has at a time. A watcher beside it puts the setting back when this process ends, in any way: the watcher
/// waits for the end of a pipe that only this process holds open.
pub struct Setting {
    path: PathBuf,
    found: String,
    watcher: Child,
    pipe: Option<ChildStdin>,
    _lock: Arc<File>,
}

/// Locks a setting's file. The lock goes with the last descriptor of it, which is the watcher's.
fn lock(path: &Path) -> Result<Arc<File>, String> {
    let name = path.display();
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    locked.retain(|(_, lock)| lock.strong_count() > 0);
    if let Some(lock) = locked.iter().find(|(other, _)| other == path).and_then(|(_, lock)| lock.upgrade()) {
        return Ok(lock);
    }
    let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
    // SAFETY: a descriptor that is open; takes no memory.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(format!("{name}: another bench changes it ({})", io::Error::last_os_error()));
    }
    let lock = Arc::new(file);
    locked.push((path.to_owned(), Arc::downgrade(&lock)));
    Ok(lock)
}

impl Setting {
    /// Of the file at `path`, which takes back what is found there by `read`. The error says why it cannot be changed.
    pub fn new(path: &Path, read: impl FnOnce() -> Result<String, String>) -> Result<Self, String> {
        let name = path.display();
        if !process::is_root() {
            return Err("changing the system's setting takes root".into());
        }
        let lock = lock(path)?;
        let found = read()?;
        fs::write(path, &found).map_err(|error| format!("{name}: {error}"))?;
        let mut watcher = Command::new("sh")
            .args(["-c", "read _; echo \"$1\" > \"$2\"", "sh", &found])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(lock.try_clone().map_err(|error| format!("{name}: {error}"))?)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let pipe = watcher.stdin.take();
        Ok(Self { path: path.to_owned(), found, watcher, pipe, _lock: lock })
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
        let setting = match Setting::new(file.path(), || Ok("8192".into())) {
            Ok(setting) => setting,
            Err(why) => return faultless_testkit::skip(&why),
        };
        let changed = setting.set("128").unwrap();
        assert_eq!(read(), "128");
        drop(changed);
        assert_eq!(read(), "8192");
        fs::write(file.path(), "1").unwrap();
        let locks =
            |wait: &str| Command::new("flock").args(["--timeout", wait]).arg(file.path()).arg("true").status();
        match locks("0") {
            Ok(status) => assert!(!status.success(), "another process has the right, too"),
            Err(why) => faultless_testkit::skip(&why),
        }
        let again = Setting::new(file.path(), || Ok("8192".into())).unwrap();
        drop(setting);
        assert_eq!(read(), "8192\n");
        drop(again);
        assert!(locks("30").is_ok_and(|status| status.success()));
    }
}
