//! A control group that limits the kernel's page cache, where one can be made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Where groups of version 1 and 2 are, and what their limit is called.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A control group of our own. It goes with this value.
pub struct Group(PathBuf);

impl Group {
    /// One with a limit in bytes; the error says why there is none.
    pub fn new(limit: usize) -> io::Result<Self> {
        let mut reason = io::Error::from(io::ErrorKind::NotFound);
        for (mount, file) in MOUNTS {
            let group = Self(Path::new(mount).join(format!("faultless-bench-{}-{limit}", std::process::id())));
            let made = fs::create_dir(&group.0).and_then(|()| {
                // A folder of a group has its files at once.
                fs::OpenOptions::new().write(true).open(group.0.join(file))?;
                fs::write(group.0.join(file), limit.to_string())
            });
            match made {
                Ok(()) => return Ok(group),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// The command, in the group from its first instruction on.
    pub fn enter(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"", "sh"]).arg(&self.0);
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may still count a process that has just ended.
        for _ in 0..10 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}
