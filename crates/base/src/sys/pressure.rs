//! Whether memory is short: by the kernel's pressure stall information, by the control group's limit, and by what
//! the machine has left.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::raw::{File, leading_number, now_ns, read_file};
use crate::units::PAGE;

/// Share of time (in 1/1000) that some task waited for memory, above which it is short.
const STALLED_PER_MILLE: u64 = 50;
/// Share of the limit (in 1/100) in use above which memory is short.
const FULL_PERCENT: u64 = 92;
/// Share of the machine's memory (in 1/100) below which what is left is too little.
const LEFT_PERCENT: u64 = 3;

static LAST_STALL_US: AtomicU64 = AtomicU64::new(u64::MAX);
static LAST_LOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Whether memory is short now, compared with the previous call.
pub fn is_short() -> bool {
    let mut buffer = [0u8; 2048];
    let stalled = stalls(read_file(c"/proc/pressure/memory", &mut buffer));
    stalled || group_is_full() || little_is_left(read_file(c"/proc/meminfo", &mut buffer))
}

/// The control group's limit in bytes, if it has one, or one that it is part of.
pub fn group_limit() -> Option<u64> {
    let mut tightest = None;
    each_group(|_, limit| tightest = Some(limit.min(tightest.unwrap_or(u64::MAX))));
    tightest
}

/// Bytes that the control group may still take, and its limit: of the group with the least room, if any has a limit.
#[inline(never)]
pub fn headroom() -> Option<(usize, usize)> {
    let mut tightest: Option<(u64, u64)> = None;
    each_group(|used, limit| {
        let left = limit.saturating_sub(used);
        if tightest.is_none_or(|(least, _)| left < least) {
            tightest = Some((left, limit));
        }
    });
    tightest.map(|(left, limit)| (left as usize, limit as usize))
}

/// Bytes that this process has in memory.
pub fn resident() -> Option<usize> {
    let mut buffer = [0u8; 128];
    let text = read_file(c"/proc/self/statm", &mut buffer);
    let at = text.iter().position(|b| *b == b' ')? + 1;
    Some(leading_number(&text[at..])? as usize * PAGE)
}

fn stalls(text: &[u8]) -> bool {
    let Some(total) = number_after(text, b"total=") else { return false };
    let now = now_ns();
    let before = LAST_STALL_US.swap(total, Ordering::Relaxed);
    let elapsed_us = now.saturating_sub(LAST_LOOK_NS.swap(now, Ordering::Relaxed)) / 1000;
    before != u64::MAX && total.saturating_sub(before) * 1000 > elapsed_us * STALLED_PER_MILLE
}

fn little_is_left(text: &[u8]) -> bool {
    match (number_after(text, b"MemTotal:"), number_after(text, b"MemAvailable:")) {
        (Some(total), Some(left)) => left * 100 < total * LEFT_PERCENT,
        _ => false,
    }
}

fn group_is_full() -> bool {
    let mut full = false;
    each_group(|used, limit| full |= used > limit / 100 * FULL_PERCENT);
    full
}

/// The names of what a version of the interface says of a group.
struct Files {
    root: &'static [u8],
    used: &'static [u8],
    limit: &'static [u8],
    stat: &'static [u8],
    /// Of its statistics, the pages of files.
    cached: [&'static [u8]; 2],
}

const VERSION_1: Files = Files {
    root: b"/sys/fs/cgroup/memory",
    used: b"/memory.usage_in_bytes",
    limit: b"/memory.limit_in_bytes",
    stat: b"/memory.stat",
    cached: [b"total_inactive_file", b"total_active_file"],
};
const VERSION_2: Files = Files {
    root: b"/sys/fs/cgroup",
    used: b"/memory.current",
    limit: b"/memory.max",
    stat: b"/memory.stat",
    cached: [b"inactive_file", b"active_file"],
};
/// Version 1 says so where there is no limit, or a little less.
const NO_LIMIT: u64 = 1 << 62;

/// Calls `f` for the control group of this process and each that it is part of, if they have a limit: with what they use, but
/// for what the kernel can reclaim, and may use.
fn each_group(mut f: impl FnMut(u64, u64)) {
    let mut buffer = [0u8; 512];
    let text = read_file(c"/proc/self/cgroup", &mut buffer);
    for line in text.split(|b| *b == b'\n') {
        let mut fields = line.splitn(3, |b| *b == b':');
        let (Some(id), Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let files = if id == b"0" && kinds.is_empty() {
            &VERSION_2
        } else if kinds.split(|b| *b == b',').any(|k| k == b"memory") {
            &VERSION_1
        } else {
            continue;
        };
        let mut group = group.strip_suffix(b"/").unwrap_or(group);
        loop {
            if let (Some(used), Some(limit)) =
                (number(files, group, files.used), number(files, group, files.limit))
                && limit < NO_LIMIT
            {
                let cached = if used > limit / 2 { cached(files, group) } else { 0 };
                f(used.saturating_sub(cached), limit);
            }
            let Some(end) = group.iter().rposition(|b| *b == b'/') else { break };
            group = &group[..end];
        }
    }
}

fn open(files: &Files, group: &[u8], name: &[u8]) -> Option<File> {
    let mut path = [0u8; 600];
    let mut end = 0;
    for part in [files.root, group, name, b"\0"] {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    File::open(CStr::from_bytes_until_nul(&path).ok()?)
}

fn number(files: &Files, group: &[u8], name: &[u8]) -> Option<u64> {
    let mut digits = [0u8; 32];
    let n = open(files, group, name)?.read(&mut digits);
    leading_number(&digits[..n])
}

/// Bytes of the group's that are pages of files: the kernel drops them before it kills anybody.
fn cached(files: &Files, group: &[u8]) -> u64 {
    let Some(mut file) = open(files, group, files.stat) else { return 0 };
    let (mut chunk, mut line, mut n, mut sum) = ([0u8; 256], [0u8; 64], 0, 0);
    loop {
        let got = file.read(&mut chunk);
        if got == 0 {
            return sum;
        }
        for &byte in &chunk[..got] {
            if byte != b'\n' {
                line[n.min(63)] = byte;
                n += 1;
                continue;
            }
            let text = &line[..n.min(63)];
            let value = |key: &&[u8]| leading_number(text.strip_prefix(*key)?.strip_prefix(b" ")?);
            sum += files.cached.iter().find_map(value).unwrap_or(0);
            n = 0;
        }
    }
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = text.windows(key.len()).position(|w| w == key)? + key.len();
    leading_number(text[at..].trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_their_names() {
        let psi = b"some avg10=0.00 avg60=0.12 avg300=0.00 total=12345\nfull avg10=0.00 total=7\n";
        assert_eq!(number_after(psi, b"total="), Some(12345));
        let meminfo = b"MemTotal:       24683520 kB\nMemFree:  1 kB\nMemAvailable:     500000 kB\n";
        assert_eq!(number_after(meminfo, b"MemAvailable:"), Some(500_000));
        assert!(little_is_left(meminfo));
        assert_eq!(leading_number(b"max\n"), None);
        assert_eq!(number_after(b"", b"total="), None);
    }

    #[test]
    fn a_rise_of_the_stall_time_is_pressure() {
        assert!(!stalls(b"some total=0"), "the first look has nothing to compare with");
        assert!(stalls(b"some total=999999999999"));
        assert!(!stalls(b"some total=999999999999"));
    }
}
