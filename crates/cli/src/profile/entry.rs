//! What is noted of one program, and which program that is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::shape::{self, Sum};

/// Of the fields below. Profiles of another version are left alone.
pub const VERSION: u32 = 2;
/// After that many runs without the library, one is covered again.
const RECHECK: u32 = 16;
/// A run without the library that takes this much more memory than before says that the program has changed.
const MORE: u64 = 1 << 20;
/// Covered runs without a large request, one after the other, after which a program counts as one that makes none: runs
/// of one shape may differ.
const SETTLED: u32 = 4;

/// A program: its file, the shape of its words, and settings that decide what is a large request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The file that is started.
    pub path: PathBuf,
    /// Its size, and when it was changed.
    pub size: u64,
    /// In seconds.
    pub changed: i64,
    /// A number made of the rest.
    pub rest: u64,
}

impl Key {
    /// Of the program in this file, with these words and settings, started in `here`; `None` where that cannot be told.
    pub fn new(file: &Path, words: &[OsString], settings: &[OsString], here: &Path) -> Option<Self> {
        let path = file.canonicalize().ok()?;
        let about = path.metadata().ok()?;
        let mut rest = Sum::new();
        settings.iter().for_each(|setting| rest.add(setting.as_bytes()));
        shape::add(&mut rest, &path, words, here);
        Some(Self { size: about.len(), changed: about.mtime(), path, rest: rest.get() })
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        let mut all = Sum::new();
        all.add(self.path.as_os_str().as_bytes());
        [self.size, self.changed as u64, self.rest].iter().for_each(|number| all.add(&number.to_le_bytes()));
        format!("{:016x}", all.get())
    }
}

/// What was seen of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it or a program that it started made a large request; `None`: it ran without the library.
    pub is_large: Option<bool>,
    /// Most memory that one of its processes had.
    pub peak: u64,
    /// Whether it ended with status 0.
    pub is_success: bool,
}

/// What is noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// [`VERSION`].
    pub version: u32,
    /// The program.
    pub key: Key,
    /// Whether it or a program that it started made a large request, lately.
    pub is_large: bool,
    /// Covered runs without one since then.
    pub small: u32,
    /// Most memory that one of its processes had, in its last covered run.
    pub peak: u64,
    /// Covered runs, and those without the library since the last of them.
    pub covered: u32,
    /// See above.
    pub plain: u32,
}

impl Entry {
    /// Whether the next run goes without the library.
    pub fn is_plain(&self) -> bool {
        self.version == VERSION && !self.is_large && self.covered > 0 && self.plain < RECHECK
    }

    /// What is to be noted after a run, if anything changes.
    pub fn after(before: Option<Self>, key: Key, seen: Seen) -> Option<Self> {
        let Some(is_large) = seen.is_large else {
            let before = before?;
            let is_other = seen.peak > before.peak.saturating_add(MORE);
            let plain = if is_other { RECHECK } else { before.plain.saturating_add(1) };
            return Some(Self { plain, ..before });
        };
        // A run that failed may have ended before it began its work.
        if !is_large && !seen.is_success {
            return None;
        }
        let was = |of: fn(&Self) -> u32| before.as_ref().map_or(0, of);
        let covered = was(|before| before.covered).saturating_add(1);
        let small = if is_large { 0 } else { was(|before| before.small).saturating_add(1) };
        let was_large = before.as_ref().is_some_and(|before| before.is_large);
        let stays_large = is_large || was_large && small < SETTLED;
        let peak = seen.peak;
        let now = Self { version: VERSION, key, is_large: stays_large, small, peak, covered, plain: 0 };
        // For a program that is covered each time, counting its runs is not worth a write.
        let is_as_before = |b: Self| b.is_large && b.small == 0 && b.peak.abs_diff(peak) <= peak / 8;
        let is_same = is_large && before.is_some_and(is_as_before);
        (!is_same).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Seen = Seen { is_large: Some(false), peak: 2 << 20, is_success: true };
    const PLAIN: Seen = Seen { is_large: None, ..SMALL };

    fn key() -> Key {
        Key { path: "/bin/a".into(), size: 1, changed: 2, rest: 3 }
    }

    fn after(before: Option<Entry>, seen: Seen) -> Option<Entry> {
        Entry::after(before, key(), seen)
    }

    #[test]
    fn a_program_without_large_requests_runs_plain_and_is_looked_at_again() {
        assert_eq!(after(None, PLAIN), None);
        assert_eq!(after(None, Seen { is_success: false, ..SMALL }), None, "it may have failed before its work");
        let mut entry = after(None, SMALL).unwrap();
        for _ in 0..RECHECK {
            assert!(entry.is_plain());
            entry = after(Some(entry), PLAIN).unwrap();
        }
        assert!(!entry.is_plain());
        assert!(after(Some(entry), SMALL).unwrap().is_plain());
    }

    #[test]
    fn a_run_that_takes_more_memory_is_the_last_one_without_the_library() {
        let entry = after(None, SMALL).unwrap();
        let same = after(Some(entry.clone()), Seen { peak: SMALL.peak + MORE, ..PLAIN }).unwrap();
        assert!(same.is_plain());
        assert!(!after(Some(entry), Seen { peak: SMALL.peak + MORE + 1, ..PLAIN }).unwrap().is_plain());
    }

    #[test]
    fn a_large_program_is_covered_each_time_and_seldom_noted() {
        let large = Seen { is_large: Some(true), peak: 1 << 30, is_success: false };
        let entry = after(None, large).unwrap();
        assert!(!entry.is_plain());
        assert_eq!(after(Some(entry.clone()), Seen { peak: (1 << 30) + 5, ..large }), None);
        assert_eq!(after(Some(entry.clone()), Seen { peak: 2 << 30, ..large }).unwrap().peak, 2 << 30);
        // Runs of one shape may differ.
        let mut entry = entry;
        for run in 1..=SETTLED {
            entry = after(Some(entry), SMALL).unwrap();
            assert_eq!(entry.is_plain(), run == SETTLED);
        }
        let again = after(Some(entry), large).unwrap();
        assert!(!again.is_plain() && !after(Some(again), SMALL).unwrap().is_plain());
    }

    #[test]
    fn what_the_words_say_and_name_makes_another_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("input");
        std::fs::write(&file, "1").unwrap();
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let exe = std::env::current_exe().unwrap();
        let key =
            |text: &str, setting: &str, here: &Path| Key::new(&exe, &words(text), &words(setting), here).unwrap();
        let first = key("a input", "", dir.path());
        assert_eq!(first, key("a input", "", dir.path()));
        assert_eq!(first.name().len(), 16);
        for other in
            [key("a inpu t", "", dir.path()), key("a input", "x", dir.path()), key("a input", "", "/".as_ref())]
        {
            assert!(first != other && first.name() != other.name());
        }
        std::fs::write(&file, "22").unwrap();
        assert_ne!(first, key("a input", "", dir.path()));
        assert_eq!(Key::new(Path::new("/nothing"), &[], &[], Path::new("/")), None);
    }
}
