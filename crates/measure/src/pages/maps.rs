//! What a process has mapped: the lines of `/proc/PID/maps`.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The lines of a process, unless this user may not look at them.
pub fn of(pid: u32) -> Option<String> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    Some(String::from_utf8_lossy(&maps).into_owned())
}

/// The lines without what the kernel says of files that are gone.
fn areas(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines().map(|line| line.strip_suffix(" (deleted)").unwrap_or(line))
}

/// The device and the number of the file of a line.
fn file(line: &str) -> Option<(libc::dev_t, u64)> {
    // address rights offset device number name
    let mut fields = line.split_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let part = |text| u32::from_str_radix(text, 16).ok();
    Some((libc::makedev(part(major)?, part(minor)?), fields.next()?.parse().ok()?))
}

/// Whether this segment of shared memory is among the areas.
pub fn has_segment(maps: &str, id: i32) -> bool {
    let is = |line: &str| line.ends_with("/SYSV00000000") && file(line).is_some_and(|(_, n)| n == id as u64);
    areas(maps).any(is)
}

/// Whether this very file is.
pub fn has_file(maps: &str, about: &Metadata) -> bool {
    has_number(maps, (about.dev(), about.ino()))
}

fn has_number(maps: &str, number: (libc::dev_t, u64)) -> bool {
    areas(maps).any(|line| file(line) == Some(number))
}

/// The same where the file system tells another device than the areas do: there the name counts, and that of the
/// directory, since the process may have another root directory.
pub fn has_page(maps: &str, about: &Metadata, path: &Path) -> bool {
    has_number(maps, (about.dev(), about.ino())) || has_name(maps, about.dev(), path)
}

fn has_name(maps: &str, device: libc::dev_t, path: &Path) -> bool {
    let mut parts = path.iter().rev().map(|part| part.to_string_lossy());
    let (Some(name), Some(dir)) = (parts.next(), parts.next()) else { return false };
    let end = format!("/{dir}/{name}");
    let is_elsewhere = |line: &str| file(line).is_some_and(|(other, _)| other != device);
    areas(maps).any(|line| line.ends_with(&end) && is_elsewhere(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn areas_tell_who_has_a_page() {
        assert_eq!([32769, 3276, 0].map(|id| has_segment(MAPS, id)), [true, false, false]);
        let device = libc::makedev(0, 0x19);
        assert_eq!(
            [(device, 17), (device, 18), (device + 1, 17)].map(|n| has_number(MAPS, n)),
            [true, false, false]
        );
        // On the same device the number tells, and a name alone does not.
        let has = |device, path: &str| has_name(MAPS, device, Path::new(path));
        assert!(has(device + 1, "/faultless-7-8-9-0/4711") && !has(device, "/faultless-7-8-9-0/4711"));
        assert!(!has(device + 1, "/faultless-7-8-9-0/47") && !has(device + 1, "4711"));
    }

    const MAPS: &str = "7f00-7f10 rw-s 00000000 00:01 32769                      /SYSV00000000 (deleted)\n\
                        7f20-7f30 rw-s 00000000 00:19 17      /dev/shm/faultless-7-8-9-0/4711\n";

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn what_is_among_the_areas_stands_there(maps in garbled(&[MAPS])) {
            let maps = String::from_utf8_lossy(&maps);
            prop_assert!(!has_segment(&maps, 32769) || maps.contains("/SYSV00000000") && maps.contains("32769"));
            prop_assert!(!has_number(&maps, (libc::makedev(0, 0x19), 17)) || maps.contains(":") && maps.contains("17"));
            let is_there = has_name(&maps, 1, Path::new("/x/shm/faultless-7-8-9-0/4711"));
            prop_assert!(!is_there || maps.contains("/faultless-7-8-9-0/4711"));
        }
    }
}
