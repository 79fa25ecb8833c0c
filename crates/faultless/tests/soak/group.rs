//! Memory pressure: a control group of this process's own with a limit, and a worker that takes what is left there.

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use faultless_base::sys::pressure;

use crate::pace::Pace;

/// Where groups of version 1 and 2 are, and what their limit is called.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Bytes that are taken at a time.
const STEP: usize = 8 << 20;
/// What is left to the others: they take more in a moment than they do on average.
const LEFT: usize = 128 << 20;

/// A group that this process is in until the value goes.
pub struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    /// One with a limit in bytes; the error says why there is none.
    pub fn new(limit: usize) -> io::Result<Self> {
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        for (mount, file) in MOUNTS {
            let path = Path::new(mount).join(format!("faultless-soak-{}", std::process::id()));
            let made = fs::create_dir(&path).and_then(|()| {
                // A folder of a group has its files at once.
                fs::OpenOptions::new().write(true).open(path.join(file))?;
                fs::write(path.join(file), limit.to_string())?;
                enter(&path)
            });
            match made {
                Ok(()) => return Ok(Self { path, before: mount.into() }),
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    why = error;
                }
            }
        }
        Err(why)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = enter(&self.before);
        let _ = fs::remove_dir(&self.path);
    }
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Takes memory until little is left, holds it for a moment, and gives it back.
pub fn press(pace: &Pace) -> usize {
    let limit = if pace.is_short() { 4 } else { 48 };
    let mut most = 0;
    let rounds = pace.run(|rng| {
        let mut taken: Vec<Vec<u8>> = Vec::new();
        while taken.len() < limit && pressure::available() > LEFT + STEP {
            taken.push(black_box(vec![taken.len() as u8 | 1; STEP]));
        }
        most = most.max(taken.len());
        thread::sleep(Duration::from_millis(rng.below(40) as u64));
        for (n, block) in taken.iter().enumerate() {
            assert!(block.iter().all(|byte| *byte == n as u8 | 1));
        }
    });
    println!("memory taken for pressure: {} MiB at most", (most * STEP) >> 20);
    rounds
}
