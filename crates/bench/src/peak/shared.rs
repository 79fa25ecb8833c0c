//! Shared memory that the processes of a run have made: it counts once, however many have it.
//!
//! That is a counters page for each process under faultless. It is a file in the directory of `faultless run`, or a
//! segment of System V shared memory. Segments of the program's own count, too. Its files do not, be they in memory:
//! those that it maps are no anonymous memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Bytes of it now; `is_ours` says which processes belong to the run.
pub fn shared(is_ours: impl Fn(u32) -> bool) -> u64 {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    pages(&is_ours) + resident(&segments, is_ours)
}

/// Blocks of the files in the directories that commands of the run have made, or this process for them.
fn pages(is_ours: impl Fn(u32) -> bool) -> u64 {
    let own = std::process::id();
    let is_known = |name: &str| maker(name).is_some_and(|maker| maker == own || is_ours(maker));
    let users = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    users
        .into_iter()
        .chain(["/dev/shm".into()])
        .filter_map(|place| fs::read_dir(place).ok())
        .flat_map(|entries| entries.flatten())
        .filter(|entry| entry.file_name().to_str().is_some_and(is_known))
        .filter_map(|entry| fs::read_dir(entry.path()).ok())
        .flat_map(|files| files.flatten())
        .filter_map(|file| file.metadata().ok())
        .map(|about| about.blocks() * 512)
        .sum()
}

/// The process that made a directory of this name, `faultless-PID-START-NAMESPACE-N`.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix("faultless-")?.split('-').next()?.parse().ok()
}

/// Resident bytes of the segments that processes of the run have made.
fn resident(segments: &str, is_ours: impl Fn(u32) -> bool) -> u64 {
    let mut lines = segments.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let column = |name: &str| names.iter().position(|column| *column == name);
    let (Some(maker), Some(resident)) = (column("cpid"), column("rss")) else { return 0 };
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_ours = is_ours(words.get(maker)?.parse().ok()?);
            is_ours.then_some(words.get(resident)?.parse::<u64>().ok()?)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_directories_of_others_do_not_count() {
        let segments = "       key      shmid perms   size  cpid  lpid nattch   uid   rss  swap\n\
                        0  1  1600  65536   12  12  1  0  8192  0\n\
                        0  2  1600  65536   13  13  1  0  4096  0\n";
        assert_eq!(resident(segments, |pid| pid == 12), 8192);
        assert_eq!(resident(segments, |_| true), 12288);
        assert_eq!(resident("", |_| true), 0);
        assert_eq!(maker("faultless-12-345-67-0"), Some(12));
        assert_eq!(maker("faultless-library-0-1"), None);
        assert_eq!(maker("other-12-345-67-0"), None);
    }
}
