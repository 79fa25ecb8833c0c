//! Functions that processes made at run time: files `perf-PID.map`, as interpreters and compilers write them.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Where they are.
const PLACE: &str = "/tmp";
/// Bytes that are taken at most, of all together.
const MOST: u64 = 64 << 20;

/// A process that runs already: its file may be older than the recording.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pid: u32,
    user: u32,
    since: SystemTime,
}

impl Running {
    /// What is known of it; nothing if it has ended.
    pub fn of(pid: u32) -> Option<Self> {
        let user = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let age = age(&String::from_utf8_lossy(&stat), &uptime)?;
        Some(Self { pid, user, since: SystemTime::now().checked_sub(age)? })
    }

    /// Whether it can have written a file of this process, owner and time.
    fn has_written(&self, pid: u32, user: u32, time: SystemTime) -> bool {
        (self.pid, self.user) == (pid, user) && time >= self.since
    }
}

/// How long ago a process began, and a moment more: from `/proc/PID/stat` and `/proc/uptime`.
fn age(stat: &str, uptime: &str) -> Option<Duration> {
    // The kernel counts in hundredths for programs, whatever it does itself.
    const TICKS: f64 = 100.0;
    let (_, fields) = stat.rsplit_once(") ")?;
    let start: f64 = fields.split(' ').nth(19)?.parse().ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64((uptime - start / TICKS).max(0.0) + 1.0).ok()
}

/// Those that this user's processes have written since then, and that of `running`: their process and their text. The
/// number is that of those for which there is no room.
pub fn written_since(time: SystemTime, running: Option<Running>) -> (Vec<(u32, Vec<u8>)>, u64) {
    written_in(Path::new(PLACE), time, running)
}

fn written_in(place: &Path, time: SystemTime, running: Option<Running>) -> (Vec<(u32, Vec<u8>)>, u64) {
    let (mut rest, mut too_large) = (MOST, 0);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(process) else { continue };
        // Others could put a link, a pipe or false names there.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(entry.path()) else { continue };
        let Ok(data) = file.metadata() else { continue };
        let is_wanted = data.modified().is_ok_and(|modified| {
            let is_ours = data.uid() == crate::sys::user() && modified >= time;
            is_ours || running.is_some_and(|running| running.has_written(pid, data.uid(), modified))
        });
        if !data.is_file() || !is_wanted {
            continue;
        }
        if data.len() > rest {
            too_large += 1;
            continue;
        }
        let mut text = Vec::new();
        if file.take(rest).read_to_end(&mut text).is_ok() {
            rest -= text.len() as u64;
            found.push((pid, text));
        }
    }
    found.sort();
    (found, too_large)
}

/// The process in the name of such a file.
fn process(name: &str) -> Option<u32> {
    name.strip_prefix("perf-")?.strip_suffix(".map")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_an_age() {
        let stat = |name: &str| format!("7 ({name}) S 1 {} 12345 0", "0 ".repeat(17).trim());
        assert_eq!(age(&stat("a) b"), "200.45 1.0\n"), Some(Duration::from_secs_f64(78.0)));
        assert_eq!(age(&stat("x"), "0.00 0.00"), Some(Duration::from_secs(1)));
        for (stat, uptime) in [("", "1"), ("7 (x) S", "1"), ("7 (x) S 1", "x"), (&stat("x"), "")] {
            assert_eq!(age(stat, uptime), None);
        }
        assert!(Running::of(std::process::id()).is_some() && Running::of(u32::MAX).is_none());
    }

    /// A file may be written as soon as the recording begins, and its time comes from another clock.
    #[test]
    fn what_is_written_at_once_counts_and_what_is_too_large_is_told() {
        let dir = std::env::temp_dir().join(format!("faultless-names-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for pid in 0..200 {
            let since = crate::sys::file_time();
            let name = dir.join(format!("perf-{pid}.map"));
            std::fs::write(&name, "x").unwrap();
            assert_eq!(written_in(&dir, since, None), (vec![(pid, vec![b'x'])], 0));
            std::fs::remove_file(name).unwrap();
        }
        let large = std::fs::File::create(dir.join("perf-7.map")).unwrap();
        large.set_len(MOST + 1).unwrap();
        std::fs::write(dir.join("perf-8.map"), "y").unwrap();
        let found = written_in(&dir, SystemTime::UNIX_EPOCH, None);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, (vec![(8, vec![b'y'])], 1));
    }

    #[test]
    fn the_process_is_in_the_name() {
        assert_eq!(process("perf-123.map"), Some(123));
        assert_eq!(["perf-.map", "perf-1.mapx", "perf-x1.map", "x"].map(process), [None; 4]);
    }
}
