//! Whether memory is short: by the kernel's pressure stall information, by the control group's limit, and by what
//! the machine has left.

use core::sync::atomic::{AtomicU64, Ordering};

use super::proc_file::STATM;
use super::raw::{leading_number, now_ns, read_file};
use super::{Headroom, cgroup, open};
use crate::units::PAGE;

/// Share of time (in 1/1000) that some task waited for memory, above which it is short.
const STALLED_PER_MILLE: u64 = 50;
/// Share of the limit (in 1/100) in use above which memory is short.
const FULL_PERCENT: u64 = 92;
/// Memory is short when less than this share (in 1/100) of the machine's memory is left.
const LEFT_PERCENT: u64 = 3;

static LAST_STALL_US: AtomicU64 = AtomicU64::new(u64::MAX);
static LAST_LOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Microseconds that some task has waited for memory since the machine began; `None`: the kernel does not say.
pub fn stalled() -> Option<u64> {
    stalled_in(read_file(c"/proc/pressure/memory", &mut [0; 2048]))
}

/// The same in the text of `/proc/pressure/memory`.
fn stalled_in(text: &[u8]) -> Option<u64> {
    let some = text.split(|b| *b == b'\n').find(|line| line.starts_with(b"some "))?;
    number_after(some, b" total=")
}

/// Whether memory is short now, compared with the previous call.
pub fn is_short() -> bool {
    let look = || stalls_since(stalled(), &LAST_STALL_US, &LAST_LOOK_NS) || is_nearly_full();
    open::apart(look).unwrap_or(false)
}

/// Whether little is left of the machine's memory, or of what the control group may have.
pub fn is_full() -> bool {
    open::apart(is_nearly_full).unwrap_or(false)
}

fn is_nearly_full() -> bool {
    cgroup::is_full(FULL_PERCENT) || little_is_left(read_file(c"/proc/meminfo", &mut [0; 2048]))
}

/// Whether tasks waited for memory since the previous call of this function.
pub fn has_stalled() -> bool {
    static STALL_US: AtomicU64 = AtomicU64::new(u64::MAX);
    static LOOK_NS: AtomicU64 = AtomicU64::new(0);
    stalls_since(stalled(), &STALL_US, &LOOK_NS)
}

/// Bytes that may come into memory before something has to go: what the machine has available, or what the control
/// group has left. 0 where that is not known.
pub fn available() -> usize {
    let mut buffer = [0u8; 2048];
    let kib = number_after(read_file(c"/proc/meminfo", &mut buffer), b"MemAvailable:").unwrap_or(0);
    let machine = usize::try_from(kib.saturating_mul(1024)).unwrap_or(usize::MAX);
    match cgroup::headroom() {
        Headroom::Unlimited => machine,
        Headroom::Left { left, .. } => left.min(machine),
        Headroom::Unknown => 0,
    }
}

/// Bytes that this process has in memory.
pub fn resident() -> Option<usize> {
    let mut buffer = [0u8; 128];
    // Nothing is said of a thread that has ended.
    resident_in(STATM.read(&mut buffer)).or_else(|| resident_in(STATM.read_anew(&mut buffer)))
}

/// The same in the text of `statm`: its second number, in pages.
fn resident_in(text: &[u8]) -> Option<usize> {
    let at = text.iter().position(|b| *b == b' ')? + 1;
    let pages = leading_number(&text[at..]).filter(|&pages| pages > 0)?;
    usize::try_from(pages).ok()?.checked_mul(PAGE)
}

/// Whether tasks waited for long since the last look: what it saw, and when.
fn stalls_since(stalled: Option<u64>, stall_us: &AtomicU64, look_ns: &AtomicU64) -> bool {
    let Some(total) = stalled else { return false };
    let now = now_ns();
    let before = stall_us.swap(total, Ordering::Relaxed);
    let elapsed_us = now.saturating_sub(look_ns.swap(now, Ordering::Relaxed)) / 1000;
    before != u64::MAX && is_share_above(total.saturating_sub(before), elapsed_us, STALLED_PER_MILLE, 1000)
}

fn little_is_left(text: &[u8]) -> bool {
    match (number_after(text, b"MemTotal:"), number_after(text, b"MemAvailable:")) {
        (Some(total), Some(left)) => is_share_above(total, left, 100, LEFT_PERCENT),
        _ => false,
    }
}

/// Whether `part` is more than `share` of `of` wholes of `whole`. The numbers are the kernel's, and may have any size.
fn is_share_above(part: u64, whole: u64, share: u64, of: u64) -> bool {
    u128::from(part) * u128::from(of) > u128::from(whole) * u128::from(share)
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = text.windows(key.len()).position(|w| w == key)? + key.len();
    leading_number(text[at..].trim_ascii_start())
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::format;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn numbers_are_found_behind_their_names() {
        let psi = b"some avg10=0.00 avg60=0.12 avg300=0.00 total=12345\nfull avg10=0.00 total=7\n";
        assert_eq!(stalled_in(psi), Some(12345));
        for text in ["", "full total=7\n", "some avg10=0.00\n", "some total=\n", "some total=-1\n"] {
            assert_eq!(stalled_in(text.as_bytes()), None, "{text}");
        }
        let meminfo = b"MemTotal:       24683520 kB\nMemFree:  1 kB\nMemAvailable:     500000 kB\n";
        assert_eq!(number_after(meminfo, b"MemAvailable:"), Some(500_000));
        assert!(little_is_left(meminfo));
        assert_eq!(leading_number(b"max\n"), None);
        assert_eq!(number_after(b"", b"total="), None);
    }

    #[test]
    fn the_largest_numbers_are_compared() {
        let most = u64::MAX;
        let left =
            |left: u64| little_is_left(format!("MemTotal: {most} kB\nMemAvailable: {left} kB\n").as_bytes());
        assert_eq!([most, most / 2, most / 100].map(left), [false, false, true]);
        let stalled = stalled_in(format!("some total={most}\n").as_bytes());
        assert!(stalls_since(stalled, &AtomicU64::new(0), &AtomicU64::new(0)));
        assert_eq!(resident_in(format!("1 {most} 1").as_bytes()), None);
    }

    #[test]
    fn a_rise_of_the_stall_time_is_pressure() {
        let (stall_us, look_ns) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let stalls = |stalled| stalls_since(Some(stalled), &stall_us, &look_ns);
        assert!(!stalls(0), "the first look has nothing to compare with");
        assert!(stalls(999_999_999_999));
        assert!(!stalls(999_999_999_999));
    }

    const MEMINFO: &str = "MemTotal:       24683520 kB\nMemFree:  1 kB\nMemAvailable:     500000 kB\n";
    const PRESSURE: &str = "some avg10=0.00 avg60=0.12 avg300=0.00 total=12345\nfull avg10=0.00 total=7\n";
    const STATM: &str = "25621 1340 1110 7 0 371 0\n";

    proptest! {
        #![proptest_config(cases())]

        /// What the kernel says may hold any number, and may be cut anywhere.
        #[test]
        fn any_text_is_borne(text in garbled(&[MEMINFO, PRESSURE, STATM])) {
            for key in [&b"total="[..], b"MemTotal:", b"MemAvailable:"] {
                let naive = || {
                    let at = (0..text.len()).find(|at| text[*at..].starts_with(key))? + key.len();
                    leading_number(text[at..].trim_ascii_start())
                };
                prop_assert_eq!(number_after(&text, key), naive());
            }
            let numbers = [&b"MemTotal:"[..], b"MemAvailable:"].map(|key| number_after(&text, key));
            let little = match numbers {
                [Some(total), Some(left)] => left as f64 / (total as f64) < 0.03 + 1e-9,
                _ => false,
            };
            prop_assert!(little || !little_is_left(&text));
            prop_assert!(resident_in(&text).is_none_or(|bytes| bytes > 0 && bytes % PAGE == 0));
            // It keeps what the last look saw; whatever that was.
            let stalled = stalled_in(&text);
            let _ = stalls_since(stalled, &AtomicU64::new(u64::MAX), &AtomicU64::new(0));
            let _ = stalls_since(stalled, &AtomicU64::new(0), &AtomicU64::new(u64::MAX));
        }
    }
}
