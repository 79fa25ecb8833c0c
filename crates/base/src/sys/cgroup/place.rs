//! Where a control group is in the file system.
//!
//! The kernel names a group by its path from the root of the process's namespace of groups. What is mounted may begin
//! elsewhere: at the root of all groups, at that of the namespace, or at any group, as in a container.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::add_names;
use super::groups::Files;
use crate::sys::raw::{File, syscall};

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// Below this mount point, by this name.
    At(&'static CStr, &'a [u8]),
    /// It is the root of all groups, which has no limit, and nothing of it is mounted.
    Root,
    /// It is not to be seen.
    Hidden,
}

/// The number of the first namespace of groups.
const FIRST: u64 = 0xEFFF_FFFB;
/// The number of the root of all groups in the file system.
const ROOT: u64 = 1;

/// The last group that was found by the list of mounts. That is a number made of its name, the mount and the
/// namespace, and how many bytes of its name are above the mount.
static LAST: (AtomicU64, AtomicUsize) = (AtomicU64::new(0), AtomicUsize::new(0));
/// For that many bytes: it is not below the mount.
const NOT_BELOW: usize = usize::MAX;

/// Where the group `name` is. Opens files.
pub(super) fn of<'a>(files: &'static Files, name: &'a [u8]) -> Place<'a> {
    let namespace = status(c"/proc/thread-self/ns/cgroup").map_or(FIRST, |status| status.st_ino);
    let Some(mount) = files.mounts.iter().copied().find(|mount| is_mounted(mount, files.magic)) else {
        return if name == b"/" && namespace == FIRST { Place::Root } else { Place::Hidden };
    };
    let Some(root) = status(mount) else { return Place::Hidden };
    let above = match (namespace, root.st_ino) {
        (FIRST, ROOT) => above(b"/", name),
        _ => {
            let numbers = [namespace, root.st_dev, root.st_ino].map(u64::to_ne_bytes);
            listed(mount, name, add_names(add_names(super::NO_NAMES, name), numbers.as_flattened()) | 1)
        }
    };
    above.and_then(|n| name.get(n..)).map_or(Place::Hidden, |name| Place::At(mount, name))
}

/// How many bytes of `name` are above `mount`, by the list of mounts, or as it was found for the same `key` before.
fn listed(mount: &CStr, name: &[u8], key: u64) -> Option<usize> {
    let is_known = || LAST.0.load(Ordering::Acquire) == key;
    // Two looks may mix: what is read in between is another one's.
    if is_known() {
        let known = LAST.1.load(Ordering::Acquire);
        if is_known() {
            return Some(known).filter(|n| *n != NOT_BELOW);
        }
    }
    let mut file = File::open(c"/proc/thread-self/mountinfo")?;
    let found = find(|chunk| file.read(chunk), mount.to_bytes(), name);
    LAST.0.store(0, Ordering::SeqCst);
    LAST.1.store(found.unwrap_or(NOT_BELOW), Ordering::Release);
    LAST.0.store(key, Ordering::Release);
    found
}

/// How many bytes of a group's name are above a mount that begins at `root`. `None`: the group is not below it.
fn above(root: &[u8], name: &[u8]) -> Option<usize> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let below = name.strip_prefix(root)?;
    let is_outside = below == b"/.." || below.starts_with(b"/../");
    ((below.is_empty() || below.starts_with(b"/")) && !is_outside).then_some(root.len())
}

/// The same of what is mounted at `mount` by a list of mounts; the last of several is on top.
#[inline(never)]
fn find(mut read: impl FnMut(&mut [u8]) -> usize, mount: &[u8], name: &[u8]) -> Option<usize> {
    let (mut chunk, mut line, mut n, mut found) = ([0u8; 512], [0u8; 2 * libc::PATH_MAX as usize], 0, None);
    loop {
        let got = read(&mut chunk);
        if got == 0 {
            return found;
        }
        for &byte in &chunk[..got] {
            if byte != b'\n' {
                // What comes behind is options.
                line.get_mut(n).into_iter().for_each(|to| *to = byte);
                n += 1;
                continue;
            }
            // number, parent, device, root, mount point …
            let length = n.min(line.len());
            let mut fields = line[..length].split_mut(|byte| *byte == b' ').skip(3);
            if let (Some(root), Some(at)) = (fields.next(), fields.next())
                && plain(at) == mount
            {
                found = above(plain(root), name);
            }
            n = 0;
        }
    }
}

/// A field of the list with its characters as they are: the kernel writes some as a backslash and three octal digits.
fn plain(field: &mut [u8]) -> &[u8] {
    let (mut from, mut to) = (0, 0);
    while from < field.len() {
        let digit =
            |at: usize| field.get(from + at).filter(|b| (b'0'..b'8').contains(b)).map(|b| u32::from(b - b'0'));
        let octal = || Some(digit(1)? * 64 + digit(2)? * 8 + digit(3)?);
        let (byte, length) = match octal().filter(|_| field[from] == b'\\') {
            Some(byte) => (byte as u8, 4),
            None => (field[from], 1),
        };
        field[to] = byte;
        (from, to) = (from + length, to + 1);
    }
    &field[..to]
}

/// What the kernel says of a file, behind links.
pub(super) fn status(path: &CStr) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: a path that ends with zero; the structure is writable, and filled where the call succeeds.
    unsafe {
        syscall(libc::SYS_newfstatat, args).ok()?;
        Some(stat.assume_init())
    }
}

fn is_mounted(path: &CStr, magic: u32) -> bool {
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: as above.
    unsafe {
        syscall(libc::SYS_statfs, [path.as_ptr() as usize, about.as_mut_ptr() as usize, 0, 0, 0, 0]).is_ok()
            && about.assume_init().f_type as u32 == magic
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled, in_parts};
    use proptest::prelude::*;

    #[test]
    fn a_group_is_where_the_list_of_mounts_says() {
        let of = |list: &str, name: &str| {
            let mut rest = list.as_bytes();
            // Bit by bit: no line comes whole.
            let read = |chunk: &mut [u8]| {
                let n = rest.len().min(7);
                chunk[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                n
            };
            find(read, b"/sys/fs/cgroup", name.as_bytes()).map(|n| name[n..].to_string())
        };
        let mount = |root: &str| {
            format!(
                "1 0 0:1 / / rw - ext4 /dev/x rw\n35 31 0:32 {root} /sys/fs/cgroup rw - cgroup2 x rw\n9 1 0:2 / /sys/fs/cgroup/x rw - x x\n"
            )
        };
        for (root, name, below) in [
            ("/", "/", Some("/")),
            ("/", "/a/b", Some("/a/b")),
            ("/a", "/a/b", Some("/b")),
            ("/a", "/a", Some("")),
            ("/a\\040b", "/a b/c", Some("/c")),
            // Not below it.
            ("/a", "/ab", None),
            ("/a", "/", None),
            // Of another namespace.
            ("/", "/..", None),
            ("/", "/../x", None),
            ("/..", "/", None),
            ("/..", "/../x", Some("/x")),
            ("/..", "/../../x", None),
        ] {
            assert_eq!(of(&mount(root), name).as_deref(), below, "{root} {name}");
        }
        assert_eq!(of(&(mount("/") + &mount("/z")), "/a"), None, "the last one is on top");
        assert_eq!(of("1 0 0:1 / / rw\n", "/"), None);
        assert_eq!(of(&mount(&"/y".repeat(9000)), "/a"), None);
    }

    #[test]
    fn the_root_has_the_numbers_that_are_expected() {
        let own = status(c"/proc/thread-self/ns/cgroup");
        assert!(own.is_none_or(|own| own.st_ino >= 0xE000_0000), "a number of a namespace");
        assert!(status(c"/proc/self/nothing").is_none());
        assert!(!is_mounted(c"/proc", 0x27_E0EB) && is_mounted(c"/proc", 0x9FA0));
    }

    const MOUNTS: &str = "1 0 0:1 / / rw - ext4 /dev/x rw\n35 31 0:32 / /sys/fs/cgroup rw,nosuid - cgroup2 x rw\n\
                          36 31 0:32 /a\\040b /sys/fs/cgroup rw - cgroup2 x rw\n9 1 0:2 / /sys/fs/cgroup/x rw - x x\n";

    /// The field with its characters as they are, character by character.
    fn unescaped(mut field: &[u8]) -> Vec<u8> {
        let is_octal = |b: &u8| (b'0'..b'8').contains(b);
        let mut all = Vec::new();
        loop {
            field = match field {
                [] => return all,
                [b'\\', a, b, c, rest @ ..] if [a, b, c].into_iter().all(is_octal) => {
                    let value = [a, b, c].iter().fold(0u32, |sum, digit| sum * 8 + u32::from(**digit - b'0'));
                    all.push(value as u8);
                    rest
                }
                [first, rest @ ..] => {
                    all.push(*first);
                    rest
                }
            };
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_list_of_mounts_is_read_as_line_by_line(
            list in garbled(&[MOUNTS]),
            name in garbled(&["/", "/a b/c", "/user.slice/x", "/../y"]),
            part in 1usize..600,
        ) {
            let mut lines: Vec<_> = list.split(|b| *b == b'\n').collect();
            lines.pop();
            let mut expected = None;
            for line in lines {
                let line = &line[..line.len().min(2 * libc::PATH_MAX as usize)];
                let fields: Vec<_> = line.split(|b| *b == b' ').collect();
                if fields.len() > 4 && unescaped(fields[4]) == b"/sys/fs/cgroup" {
                    expected = above(&unescaped(fields[3]), &name);
                }
            }
            let found = find(in_parts(&list, part), b"/sys/fs/cgroup", &name);
            prop_assert_eq!(found, expected);
            prop_assert!(found.is_none_or(|n| n <= name.len()));
        }
    }
}
