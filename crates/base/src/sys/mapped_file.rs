//! Files that the program has mapped: reading ahead of it, by the kernel's page cache.
//!
//! All of this is for the background thread, which has descriptors of its own. Nothing here touches the program's
//! memory: `MADV_WILLNEED` begins to read, and leaves page tables as they are. Where another mapping has come in the
//! place of a file, the call does nothing, or swaps in.

use super::raw::{self, leading_number, read_file, syscall};
use super::{linux, pressure, thread};
use crate::units::Span;

/// File systems of a local disk. For others to read ahead may mean to wait for another machine or program, or nothing.
const LOCAL: [&[u8]; 12] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"bcachefs",
    b"overlay",
    b"erofs",
    b"squashfs",
    b"vfat",
    b"exfat",
];
/// The kernel cuts a request off behind the larger of the device's read-ahead and its largest transfer. It is at least
/// this unless it was set to less.
const LEAST_PIECE: usize = 128 << 10;
const MOST_PIECE: usize = 2 << 20;
/// Reading ahead stops below this much memory that is available, and takes at most this share of it.
const LEAST_AVAILABLE: usize = 256 << 20;
const SHARE: usize = 16;

/// Begins to read.
pub fn ask(span: Span) {
    // Others may wait for pages that this has begun to read: neither their reading nor this thread may come last.
    thread::hurry();
    static CLASS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
    let this = raw::thread_number();
    if CLASS.swap(this, core::sync::atomic::Ordering::Relaxed) != this {
        /// `IOPRIO_WHO_PROCESS`, and `IOPRIO_CLASS_BE` with level 4.
        const WHO: usize = 1;
        const BEST_EFFORT: usize = 2 << 13 | 4;
        // SAFETY: this thread's own priority.
        let _ = unsafe { syscall(libc::SYS_ioprio_set, [WHO, 0, BEST_EFFORT, 0, 0, 0]) };
    }
    linux::madvise(span, libc::MADV_WILLNEED);
}

/// As `Sys::read_ahead_room`.
pub fn room() -> usize {
    let available = pressure::available();
    if available < LEAST_AVAILABLE || pressure::has_stalled() { 0 } else { available / SHARE }
}

/// As `Sys::read_ahead_bytes`.
pub fn piece((major, minor): (u32, u32)) -> usize {
    if !is_local(major, minor) {
        return 0;
    }
    let largest =
        ["queue/max_sectors_kb", "queue/read_ahead_kb", "../queue/max_sectors_kb", "../queue/read_ahead_kb"]
            .into_iter()
            .filter_map(|name| setting(major, minor, name))
            .max()
            .unwrap_or(0);
    let bytes = largest.saturating_mul(1024).clamp(LEAST_PIECE, MOST_PIECE);
    1 << bytes.ilog2()
}

/// What the kernel says of a device below `/sys/dev/block`, or of the disk that it is a part of.
fn setting(major: u32, minor: u32, name: &str) -> Option<usize> {
    let mut path = Path::new(b"/sys/dev/block/");
    path.number(major);
    path.text(b":");
    path.number(minor);
    path.text(b"/");
    path.text(name.as_bytes());
    leading_number(read_file(path.as_c()?, &mut [0; 32])).and_then(|number| usize::try_from(number).ok())
}

/// A short path.
struct Path {
    bytes: [u8; 80],
    n: usize,
}

impl Path {
    fn new(start: &[u8]) -> Self {
        let mut path = Self { bytes: [0; 80], n: 0 };
        path.text(start);
        path
    }

    fn text(&mut self, text: &[u8]) {
        for &byte in text.iter().take(self.bytes.len() - 1 - self.n) {
            self.bytes[self.n] = byte;
            self.n += 1;
        }
    }

    fn number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let mut left = number;
        let first = (0..digits.len()).rev().find(|&i| {
            digits[i] = b'0' + (left % 10) as u8;
            left /= 10;
            left == 0
        });
        self.text(&digits[first.unwrap_or(0)..]);
    }

    fn as_c(&self) -> Option<&core::ffi::CStr> {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// Whether a file system of a local disk is mounted from this device. This reads a file of `/proc`: to ask a network's
/// file system may mean to wait for it.
fn is_local(major: u32, minor: u32) -> bool {
    let Some(mut file) = raw::File::open(c"/proc/thread-self/mountinfo") else { return false };
    let (mut buffer, mut n) = ([0u8; 4096], 0);
    loop {
        let got = file.read(&mut buffer[n..]);
        n += got;
        let mut rest = &buffer[..n];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if is_local_mount(&rest[..end], major, minor) {
                return true;
            }
            rest = &rest[end + 1..];
        }
        // A line that does not fit is none of ours to judge: it is cut.
        let left = if rest.len() == buffer.len() { 0 } else { rest.len() };
        let from = n - left;
        buffer.copy_within(from..n, 0);
        n = left;
        if got == 0 {
            return false;
        }
    }
}

/// The same of one line.
fn is_local_mount(line: &[u8], major: u32, minor: u32) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let Some(device) = words.nth(2) else { return false };
    let Some(colon) = device.iter().position(|byte| *byte == b':') else { return false };
    let is_this =
        leading_number(device) == Some(major.into()) && leading_number(&device[colon + 1..]) == Some(minor.into());
    // The fields behind the options vary; their end is marked.
    is_this && words.find(|word| *word == b"-").is_some() && words.next().is_some_and(|kind| LOCAL.contains(&kind))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    const MOUNT: &str = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n";

    #[test]
    fn a_disk_is_told_from_other_file_systems() {
        let line = |text: &str| is_local_mount(text.trim_end().as_bytes(), 98, 0);
        assert!(line(MOUNT) && line("36 35 98:0 / / rw - overlay overlay rw"));
        assert!(!line("36 35 98:1 / / rw - ext4 a rw") && !line("36 35 98:0 / / rw - nfs4 a rw"));
        assert!(!line("36 35 98:0 / / rw - fuse.ext4 a rw") && !line("36 35 98:0 /-ext4 / rw - tmpfs a rw"));
    }

    #[test]
    fn paths_are_those_of_the_kernel() {
        let mut path = Path::new(b"/sys/");
        path.number(0);
        path.text(b":");
        path.number(u32::MAX);
        assert_eq!(path.as_c(), Some(c"/sys/0:4294967295"));
        (0..20).for_each(|_| path.number(u32::MAX));
        assert_eq!(path.as_c().map(|path| path.count_bytes()), Some(79));
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_line_is_borne(text in garbled(&[MOUNT])) {
            let _ = is_local_mount(&text, 98, 0);
        }
    }
}
