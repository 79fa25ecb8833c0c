//! What the kernel says of the program's own mappings: flags of each page's area, and memory that is locked.

use std::fmt::Write;

use crate::world::World;

/// Huge-page advice and registration for write protection come and go with the library. Whether a page ever was
/// dirty is of no account. The last two depend on where the kernel joins areas, and on what was ever used of them.
const NOT_THE_PROGRAMS: [&str; 6] = ["hg", "nh", "uw", "sd", "gu", "ac"];

/// An area of the kernel's: where it begins and ends, and its flags.
type Area = (usize, usize, String);

fn areas() -> Vec<Area> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps can be read");
    let mut areas: Vec<Area> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let kept: Vec<_> = flags.split_whitespace().filter(|f| !NOT_THE_PROGRAMS.contains(f)).collect();
            areas.last_mut().expect("flags follow an area").2 = kept.join(" ");
        } else if let Some((from, to)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')) {
            let address = |text| usize::from_str_radix(text, 16).ok();
            areas.extend(address(from).zip(address(to)).map(|(from, to)| (from, to, String::new())));
        }
    }
    areas
}

fn locked() -> String {
    let text = std::fs::read_to_string("/proc/self/status").expect("the status can be read");
    let line = text.lines().find(|line| line.starts_with("VmLck:"));
    line.expect("a line about locked memory").split_whitespace().collect::<Vec<_>>().join(" ")
}

impl World {
    /// Writes what the kernel says of every region.
    pub fn say_attributes(&mut self) {
        let areas = areas();
        for r in 0..self.regions.len() {
            let region = &self.regions[r];
            let mut line = format!("attributes r{}:", region.id);
            let flags = |i: usize| {
                region.pages[i]?;
                let at = region.at(i);
                let before = areas.partition_point(|(from, ..)| *from <= at).checked_sub(1)?;
                let (_, to, flags) = &areas[before];
                Some(if at < *to { flags.as_str() } else { "no area" })
            };
            let mut from = 0;
            while from < region.pages.len() {
                let these = flags(from);
                let to = (from..region.pages.len()).find(|&i| flags(i) != these).unwrap_or(region.pages.len());
                if let Some(these) = these {
                    let _ = write!(line, " {from}..{to} [{these}]");
                }
                from = to;
            }
            self.say(format_args!("{line}"));
        }
        if self.solo {
            self.say(format_args!("{}", locked()));
        }
    }
}
