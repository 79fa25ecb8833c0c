//! Whether memory is short: by the kernel's pressure stall information, by the control group's limit, and by what
//! the machine has left.

use core::sync::atomic::{AtomicU64, Ordering};

use super::proc_file::STATM;
use super::raw::{leading_number, now_ns, read_file};
use super::{cgroup, open};
use crate::units::PAGE;

/// Share of time (in 1/1000) that some task waited for memory, above which it is short.
const STALLED_PER_MILLE: u64 = 50;
/// Share of the limit (in 1/100) in use above which memory is short.
const FULL_PERCENT: u64 = 92;
/// Memory is short when less than this share (in 1/100) of the machine's memory is left.
const LEFT_PERCENT: u64 = 3;

static LAST_STALL_US: AtomicU64 = AtomicU64::new(u64::MAX);
static LAST_LOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Whether memory is short now, compared with the previous call.
pub fn is_short() -> bool {
    let look = || {
        let mut buffer = [0u8; 2048];
        let stalled = stalls(read_file(c"/proc/pressure/memory", &mut buffer));
        stalled || cgroup::is_full(FULL_PERCENT) || little_is_left(read_file(c"/proc/meminfo", &mut buffer))
    };
    open::apart(look).unwrap_or(false)
}

/// Bytes that this process has in memory.
pub fn resident() -> Option<usize> {
    let mut buffer = [0u8; 128];
    let number = |text: &[u8]| {
        let at = text.iter().position(|b| *b == b' ')? + 1;
        leading_number(&text[at..]).filter(|&pages| pages > 0)
    };
    // Nothing is said of a thread that has ended.
    let found = number(STATM.read(&mut buffer)).or_else(|| number(STATM.read_anew(&mut buffer)));
    Some(found? as usize * PAGE)
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
