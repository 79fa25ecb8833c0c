//! Whether memory is short: by the kernel's pressure stall information, by the control group's limit, and by what
//! the machine has left.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::raw::{leading_number, now_ns, read_file};

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
    stalled || group_is_full(&mut buffer) || little_is_left(read_file(c"/proc/meminfo", &mut buffer))
}

/// The control group's limit in bytes, if it has one.
pub fn group_limit() -> Option<u64> {
    let mut buffer = [0u8; 512];
    group_files(&mut buffer, |_, limit| limit)
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

fn group_is_full(buffer: &mut [u8]) -> bool {
    group_files(buffer, |used, limit| Some((used?, limit?)))
        .is_some_and(|(used, limit)| used > limit / 100 * FULL_PERCENT)
}

/// Calls `f` with what the control group of this process uses and may use, of version 2 or 1 of the interface.
fn group_files<R>(buffer: &mut [u8], f: impl Fn(Option<u64>, Option<u64>) -> Option<R>) -> Option<R> {
    let text = read_file(c"/proc/self/cgroup", buffer);
    let mut path = [0u8; 600];
    for line in text.split(|b| *b == b'\n') {
        let mut fields = line.splitn(3, |b| *b == b':');
        let (Some(id), Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (root, used, limit): (&[u8], &[u8], &[u8]) = if id == b"0" && kinds.is_empty() {
            (b"/sys/fs/cgroup", b"/memory.current", b"/memory.max")
        } else if kinds.split(|b| *b == b',').any(|k| k == b"memory") {
            (b"/sys/fs/cgroup/memory", b"/memory.usage_in_bytes", b"/memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = if group == b"/" { b"" } else { group };
        let mut read = |name: &[u8]| {
            let mut end = 0;
            for part in [root, group, name, b"\0"] {
                path.get_mut(end..end + part.len())?.copy_from_slice(part);
                end += part.len();
            }
            let mut digits = [0u8; 32];
            leading_number(read_file(CStr::from_bytes_until_nul(&path).ok()?, &mut digits))
        };
        let (used, limit) = (read(used), read(limit));
        if let Some(result) = f(used, limit) {
            return Some(result);
        }
    }
    None
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
