//! The contender "huge pages always": the system's setting, changed for the duration of one run.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::machine::{self, THP};
use super::process;

/// The right to change the setting. A watcher beside it puts the setting back when this process ends, in any way: the
/// watcher waits for the end of a pipe that only this process holds open.
pub struct Huge {
    found: String,
    watcher: Child,
    pipe: Option<ChildStdin>,
}

impl Huge {
    /// The error says why there is no such contender.
    pub fn new() -> Result<Huge, String> {
        let found = machine::huge_page_mode().ok_or("this kernel has no transparent huge pages")?;
        if !process::is_root() {
            return Err("changing the system's setting takes root".into());
        }
        fs::write(THP, &found).map_err(|error| format!("{THP}: {error}"))?;
        let mut watcher = Command::new("sh")
            .args(["-c", "read _; echo \"$1\" > \"$2\"", "sh", &found, THP])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let pipe = watcher.stdin.take();
        Ok(Huge { found, watcher, pipe })
    }

    /// Sets the mode until the returned guard is dropped.
    pub fn always(&self) -> io::Result<Always<'_>> {
        fs::write(THP, "always")?;
        Ok(Always(self))
    }
}

impl Drop for Huge {
    fn drop(&mut self) {
        self.pipe = None;
        if let Err(error) = self.watcher.wait() {
            eprintln!("faultless: putting {THP} back: {error}");
        }
    }
}

/// While it lives, huge pages are always used.
pub struct Always<'a>(&'a Huge);

impl Drop for Always<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::write(THP, &self.0.found) {
            eprintln!("faultless: {THP}: {error}; it was {}", self.0.found);
        }
    }
}
