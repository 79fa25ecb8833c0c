//! The text of `/proc/PID/maps`.

use crate::wire::Mapping;

/// A line: range, rights, offset, device, inode, name.
pub fn line(pid: u32, line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let text = rest.trim_start_matches(' ');
        let (word, after) = text.split_once(' ').unwrap_or((text, ""));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let (range, rights, offset, _device, inode) = (word()?, word()?, word()?, word()?, word()?);
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let has = |at: usize, letter| rights.as_bytes().get(at) == Some(&letter);
    let access = u32::from(has(0, b'r')) | u32::from(has(1, b'w')) << 1 | u32::from(has(2, b'x')) << 2;
    let flags = if has(3, b's') { libc::MAP_SHARED } else { libc::MAP_PRIVATE } as u32;
    let name = rest.trim_start_matches(' ').trim_end_matches(" (deleted)");
    Some(Mapping {
        pid,
        start,
        bytes: end.checked_sub(start)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        access,
        flags,
        name: if name.is_empty() { "//anon".into() } else { name.into() },
    })
}
