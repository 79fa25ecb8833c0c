//! Functions that processes made at run time: files `perf-PID.map`, as interpreters and compilers write them.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::SystemTime;

/// Where they are.
const PLACE: &str = "/tmp";
/// Bytes that are taken at most, of all together.
const MOST: u64 = 64 << 20;

/// Those that this user's processes have written since then: their process and their text.
pub fn written_since(time: SystemTime) -> Vec<(u32, Vec<u8>)> {
    let mut rest = MOST;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(PLACE).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(process) else { continue };
        // Others could put a link, a pipe or false names there.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(entry.path()) else { continue };
        let Ok(data) = file.metadata() else { continue };
        let is_new = data.modified().is_ok_and(|modified| modified >= time);
        if !data.is_file() || data.uid() != crate::sys::user() || !is_new || data.len() > rest {
            continue;
        }
        let mut text = Vec::new();
        if file.take(rest).read_to_end(&mut text).is_ok() {
            rest -= text.len() as u64;
            found.push((pid, text));
        }
    }
    found.sort();
    found
}

/// The process in the name of such a file.
fn process(name: &str) -> Option<u32> {
    name.strip_prefix("perf-")?.strip_suffix(".map")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_in_the_name() {
        assert_eq!(process("perf-123.map"), Some(123));
        assert_eq!(["perf-.map", "perf-1.mapx", "perf-x1.map", "x"].map(process), [None; 4]);
    }
}
