//! The files of control groups.

use core::ffi::CStr;

use super::place::{self, Place};
use crate::Errno;
use crate::sys::raw::{File, leading_number};

/// The names of what a version of the interface says of a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// Where the groups usually are; the first of these that is mounted.
    pub(super) mounts: &'static [&'static CStr],
    /// The number that the kernel gives such a file system.
    pub(super) magic: u32,
    used: &'static [u8],
    /// What is reclaimed for above the second of them before the first is reached.
    limits: &'static [&'static [u8]],
    stat: &'static [u8],
}

pub(super) static VERSION_1: Files = Files {
    mounts: &[c"/sys/fs/cgroup/memory"],
    magic: 0x27_E0EB,
    used: b"/memory.usage_in_bytes",
    limits: &[b"/memory.limit_in_bytes"],
    stat: b"/memory.stat",
};
pub(super) static VERSION_2: Files = Files {
    // The second where other controllers are of version 1.
    mounts: &[c"/sys/fs/cgroup", c"/sys/fs/cgroup/unified"],
    magic: 0x6367_7270,
    used: b"/memory.current",
    limits: &[b"/memory.max", b"/memory.high"],
    stat: b"/memory.stat",
};
/// In its statistics, the pages of files.
const CACHED: [[&[u8]; 2]; 2] =
    [[b"inactive_file", b"active_file"], [b"total_inactive_file", b"total_active_file"]];
/// In those of version 1, the least limit of the group and all that it is part of, also of those that cannot be seen.
const LEAST: &[u8] = b"hierarchical_memory_limit";
/// Version 1 says so where there is no limit, or a little less.
const NO_LIMIT: u64 = 1 << 62;

/// How far is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// At the groups that can be seen.
    Seen,
    /// Also whether one above them has a lower limit, as far as the kernel says.
    Above,
}

/// What a look at all groups of a process came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The kernel names no group.
    Nothing,
    /// All of them.
    All,
    /// One is there that cannot be seen.
    Hidden,
}

/// A group with a limit.
pub(super) struct Group<'a> {
    folder: Folder<'a>,
    used: u64,
    pub(super) limit: u64,
}

impl Group<'_> {
    /// The memory that it uses, without the part that the kernel can reclaim.
    pub(super) fn used(&self) -> u64 {
        let cached = || {
            let mut file = self.folder.open(self.folder.files.stat).ok()?;
            let mut sums = [0u64; 2];
            each_line(|chunk| file.read(chunk), |line| add_cached(&mut sums, line));
            // Version 1 says both, of the group alone and of all below it.
            Some(sums[0].max(sums[1]))
        };
        let cached = if self.used > self.limit / 2 { cached().unwrap_or(0) } else { 0 };
        self.used.saturating_sub(cached)
    }
}

/// The groups that a text names, of the controller of memory: the files, and the name. `None`: that is in no group.
pub(super) fn of_memory(text: &[u8]) -> Option<(&'static Files, &[u8])> {
    let line = |line: &'_ [u8]| -> Option<(&'static Files, usize)> {
        let mut fields = line.splitn(3, |b| *b == b':');
        let (id, kinds, group) = (fields.next()?, fields.next()?, fields.next()?);
        let files = match () {
            () if kinds.split(|b| *b == b',').any(|kind| kind == b"memory") => &VERSION_1,
            () if id == b"0" && kinds.is_empty() => &VERSION_2,
            () => return None,
        };
        Some((files, line.len() - group.len()))
    };
    let of = |version: &'static Files| {
        let mut lines = text.split(|b| *b == b'\n');
        lines.find_map(|all| {
            line(all).filter(|(files, _)| *files == version).map(|(files, at)| (files, &all[at..]))
        })
    };
    // A controller that version 1 has, version 2 has not.
    of(&VERSION_1).or_else(|| of(&VERSION_2))
}

/// Calls `f` for each group of this process, and each that it is part of, if they have a limit. Opens files.
pub(super) fn each_group(text: &[u8], depth: Depth, f: &mut impl FnMut(&Group)) -> Seen {
    let Some((files, name)) = of_memory(text) else { return Seen::All };
    let (mount, name) = match place::of(files, name) {
        Place::At(mount, name) => (mount, name),
        Place::Root => return Seen::All,
        Place::Hidden => return Seen::Hidden,
    };
    let own = Folder { files, mount, name: name.strip_suffix(b"/").unwrap_or(name) };
    let mut folder = own;
    let mut least = NO_LIMIT;
    loop {
        let Ok(group) = folder.group() else { return Seen::Hidden };
        if let Some(group) = group {
            least = least.min(group.limit);
            f(&group);
        }
        let Some(end) = folder.name.iter().rposition(|b| *b == b'/') else { break };
        folder.name = &folder.name[..end];
    }
    match depth {
        Depth::Above if own.least().is_some_and(|above| above < least) => Seen::Hidden,
        _ => Seen::All,
    }
}

/// The folder of a group.
#[derive(Clone, Copy)]
struct Folder<'a> {
    files: &'static Files,
    mount: &'static CStr,
    name: &'a [u8],
}

impl<'a> Folder<'a> {
    /// The group, if it has a limit. An error: that cannot be told.
    fn group(self) -> Result<Option<Group<'a>>, Errno> {
        let mut least = NO_LIMIT;
        for file in self.files.limits {
            least = least.min(self.number(file)?.unwrap_or(NO_LIMIT));
        }
        if least >= NO_LIMIT {
            return Ok(None);
        }
        let used = self.number(self.files.used)?.unwrap_or(0);
        Ok(Some(Group { folder: self, used, limit: least }))
    }

    /// The number in a file of the group; `None` where it says that there is none, or where there is no such file: the
    /// root has none, nor has a group without this controller.
    fn number(self, file: &[u8]) -> Result<Option<u64>, Errno> {
        let mut digits = [0u8; 32];
        let n = match self.open(file) {
            Ok(mut file) => file.read(&mut digits),
            Err(Errno::ENOENT) if self.is_there() => return Ok(None),
            Err(error) => return Err(error),
        };
        if n == 0 { Err(Errno::EIO) } else { Ok(leading_number(&digits[..n])) }
    }

    /// The least limit of this group and all that it is part of, where the kernel says it.
    fn least(self) -> Option<u64> {
        let mut least = None;
        if self.files == &VERSION_1
            && let Ok(mut file) = self.open(self.files.stat)
        {
            each_line(|chunk| file.read(chunk), |line| least = least.or_else(|| number_of(line, LEAST)));
        }
        least
    }

    fn is_there(self) -> bool {
        self.with_path(b"", |path| place::status(path).is_some()).unwrap_or(false)
    }

    fn open(self, file: &[u8]) -> Result<File, Errno> {
        self.with_path(file, File::try_open).unwrap_or(Err(Errno::ENAMETOOLONG))
    }

    /// Calls `f` with the path of a file of the group. `None`: the kernel takes none as long as this.
    #[inline(never)]
    fn with_path<R>(self, file: &[u8], f: impl FnOnce(&CStr) -> R) -> Option<R> {
        let mut path = [0u8; libc::PATH_MAX as usize];
        let mut end = 0;
        for part in [self.mount.to_bytes(), self.name, file, b"\0"] {
            path.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(f(CStr::from_bytes_until_nul(&path).ok()?))
    }
}

/// Calls `f` with each line that `read` gives, as far as its first 63 bytes.
#[inline(never)]
fn each_line(mut read: impl FnMut(&mut [u8]) -> usize, mut f: impl FnMut(&[u8])) {
    let (mut chunk, mut line, mut n) = ([0u8; 256], [0u8; 64], 0);
    loop {
        let got = read(&mut chunk);
        if got == 0 {
            return;
        }
        for &byte in &chunk[..got] {
            if byte != b'\n' {
                line[n.min(63)] = byte;
                n += 1;
                continue;
            }
            f(&line[..n.min(63)]);
            n = 0;
        }
    }
}

fn number_of(line: &[u8], key: &[u8]) -> Option<u64> {
    leading_number(line.strip_prefix(key)?.strip_prefix(b" ")?)
}

/// Adds the bytes of a group's that are pages of files, by a line of its statistics: the kernel drops them before it
/// kills a process.
fn add_cached(sums: &mut [u64; 2], line: &[u8]) {
    for (keys, sum) in CACHED.iter().zip(sums) {
        *sum = sum.saturating_add(keys.iter().find_map(|key| number_of(line, key)).unwrap_or(0));
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::vec::Vec;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled, in_parts};
    use proptest::prelude::*;

    #[test]
    fn pages_of_files_are_counted_once() {
        let mut texts = [
            &b"cache 5\ninactive_file 30\nactive_file 1\ntotal_inactive_f"[..],
            b"ile 300\ntotal_active_file 7\n",
        ]
        .into_iter();
        let read = |chunk: &mut [u8]| {
            let text = texts.next().unwrap_or(b"");
            chunk[..text.len()].copy_from_slice(text);
            text.len()
        };
        let mut sums = [0; 2];
        each_line(read, |line| add_cached(&mut sums, line));
        assert_eq!(sums, [31, 307]);
        add_cached(&mut sums, b"inactive_file 18446744073709551615");
        assert_eq!(sums, [u64::MAX, 307]);
    }

    #[test]
    fn the_group_of_memory_is_that_of_the_version_that_has_it() {
        let of = |text: &'static str| of_memory(text.as_bytes()).map(|(files, name)| (files.magic, name));
        let (one, two) = (VERSION_1.magic, VERSION_2.magic);
        assert_eq!(of("4:cpu,memory:/a:b\n0::/c\n"), Some((one, &b"/a:b"[..])));
        assert_eq!(of("0::/c\n4:memory:/a"), Some((one, &b"/a"[..])));
        assert_eq!(of("4:cpu:/a\n0::/c d\n"), Some((two, &b"/c d"[..])));
        for none in ["", "4:cpu:/a\n", "::::", "4:memory", "0:", "\n\n"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_hidden_and_a_path_that_is_too_long_too() {
        let folder = |name| Folder { files: &VERSION_2, mount: c"/proc/self", name };
        assert!(matches!(folder(b"/task").group(), Ok(None)), "it has no files of a group's");
        assert_eq!(folder(b"/nothing").group().err(), Some(Errno::ENOENT));
        assert_eq!(folder(&[b'x'; 5000]).group().err(), Some(Errno::ENAMETOOLONG));
    }

    const STAT: &str = "cache 5\ninactive_file 30\nactive_file 1\nhierarchical_memory_limit 9223372036854771712\n\
                        total_inactive_file 300\ntotal_active_file 7\n";
    const NAMES: &str = "12:cpu,memory:/a:b\n1:name=systemd:/user.slice\n0::/c d\n";

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn lines_come_as_they_are_whatever_the_parts(text in garbled(&[STAT]), part in 1usize..300) {
            let (mut lines, mut sums) = (Vec::new(), [0; 2]);
            each_line(in_parts(&text, part), |line| {
                lines.push(line.to_vec());
                add_cached(&mut sums, line);
            });
            let mut expected: Vec<_> = text.split(|b| *b == b'\n').map(|line| &line[..line.len().min(63)]).collect();
            expected.pop();
            prop_assert_eq!(&lines, &expected);
            let sum = |keys: [&[u8]; 2]| {
                let number = |line: &[u8]| keys.iter().find_map(|key| number_of(line, key)).unwrap_or(0);
                expected.iter().fold(0u128, |sum, line| sum + u128::from(number(line))).min(u64::MAX.into()) as u64
            };
            prop_assert_eq!(sums, CACHED.map(sum));
        }

        /// The name is the end of a line that names memory, and no more.
        #[test]
        fn a_name_is_the_end_of_a_line(text in garbled(&[NAMES, "0::/\n"])) {
            if let Some((files, name)) = of_memory(&text) {
                let lines = || text.split(|b| *b == b'\n');
                prop_assert!(lines().any(|line| line.ends_with(name) && line.iter().filter(|b| **b == b':').count() > 1));
                prop_assert!(files == &VERSION_1 || lines().any(|line| line.starts_with(b"0::")));
            }
        }
    }
}
