//! A control group that limits the kernel's page cache, where one can be made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::undo::Undo;

/// Where groups of version 1 and 2 are, and what their limit is called.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A control group of our own. It goes with this value.
pub struct Group {
    path: PathBuf,
    _undo: Undo,
}

impl Group {
    /// One with a limit in bytes; the error says why there is none.
    pub fn new(limit: usize) -> io::Result<Self> {
        let mut reason = io::Error::from(io::ErrorKind::NotFound);
        for (mount, file) in MOUNTS {
            let path = Path::new(mount).join(format!("faultless-bench-{}-{limit}", std::process::id()));
            let undone = path.clone();
            let _undo = Undo::by(move || remove(&undone));
            let made = fs::create_dir(&path).and_then(|()| {
                // A folder of a group has its files at once.
                fs::OpenOptions::new().write(true).open(path.join(file))?;
                fs::write(path.join(file), limit.to_string())
            });
            match made {
                Ok(()) => return Ok(Self { path, _undo }),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// The command, in the group from its first instruction on.
    pub fn enter(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"", "sh"]).arg(&self.path);
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

fn remove(group: &Path) {
    // The kernel may still count a process that has just ended.
    for _ in 0..10 {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}
