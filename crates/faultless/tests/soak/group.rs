//! Memory pressure: a control group of this process's own with a limit, and a worker that takes memory beside the others.

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::pace::Pace;

/// Where groups of version 1 and 2 are, what their limit is called, and what names them in a process's list.
const MOUNTS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory"), ("/sys/fs/cgroup", "memory.max", "")];

/// Bytes that are taken at a time.
const STEP: usize = 8 << 20;
/// How often, in a short and in a long run.
const STEPS: [usize; 2] = [4, 16];

/// A group that this process is in until the value goes.
pub struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    /// One with a limit in bytes; the error says why there is none.
    pub fn new(limit: usize) -> io::Result<Self> {
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        for (mount, file, name) in MOUNTS {
            let path = Path::new(mount).join(format!("faultless-soak-{}", std::process::id()));
            let before = own(mount, name)?;
            let made = fs::create_dir(&path).and_then(|()| {
                // A folder of a group has its files at once.
                fs::OpenOptions::new().write(true).open(path.join(file))?;
                fs::write(path.join(file), limit.to_string())?;
                enter(&path)
            });
            match made {
                Ok(()) => return Ok(Self { path, before }),
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

/// The group that this process is in.
fn own(mount: &str, name: &str) -> io::Result<PathBuf> {
    let all = fs::read_to_string("/proc/self/cgroup")?;
    let path = all.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == name).then_some(path)
    });
    Ok(Path::new(mount).join(path.unwrap_or("/").trim_start_matches('/')))
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Takes memory, holds it for a moment, and gives it back.
pub fn press(pace: &Pace) -> usize {
    let most = STEPS[usize::from(!pace.is_short())];
    pace.run(|rng| {
        let new = |n: usize| black_box(vec![n as u8 | 1; STEP]);
        let taken: Vec<Vec<u8>> = (0..rng.within(1, most)).map(new).collect();
        thread::sleep(Duration::from_millis(rng.below(40) as u64));
        for (n, block) in taken.iter().enumerate() {
            assert!(block.iter().all(|byte| *byte == n as u8 | 1));
        }
    })
}
