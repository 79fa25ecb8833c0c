//! What is noted of one program, and which program that is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Of the fields below. Profiles of another version are left alone.
pub const VERSION: u32 = 1;
/// After that many runs without the library, one is covered again.
const RECHECK: u32 = 16;
/// A run without the library that takes this much more memory than before says that the program has changed.
const MORE: u64 = 1 << 20;
/// Words that may name files which the program reads.
const WORDS: usize = 64;

/// A program: its file, its words, the files that they name, the directory that it starts in, and settings that decide
/// what is a large request.
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

/// FNV-1a: the same in each build.
struct Sum(u64);

impl Sum {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// With the length, so that words do not run into each other.
    fn add(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Key {
    /// Of the program in this file, with these words and settings, started in `here`; `None` where that cannot be told.
    pub fn new(file: &Path, words: &[OsString], settings: &[OsString], here: &Path) -> Option<Self> {
        let path = file.canonicalize().ok()?;
        let about = path.metadata().ok()?;
        let mut rest = Sum::new();
        rest.add(here.as_os_str().as_bytes());
        settings.iter().for_each(|setting| rest.add(setting.as_bytes()));
        words.iter().for_each(|word| rest.add(word.as_bytes()));
        // A script that was edited is another program, and so is one with other input.
        for word in words.iter().skip(1).take(WORDS) {
            if let Ok(file) = here.join(word).metadata().as_ref()
                && file.is_file()
            {
                rest.add(&file.len().to_le_bytes());
                rest.add(&file.mtime().to_le_bytes());
            }
        }
        Some(Self { size: about.len(), changed: about.mtime(), path, rest: rest.0 })
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        let mut all = Sum::new();
        all.add(self.path.as_os_str().as_bytes());
        [self.size, self.changed as u64, self.rest].iter().for_each(|number| all.add(&number.to_le_bytes()));
        format!("{:016x}", all.0)
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
    /// Whether it or a program that it started made a large request in its last covered run.
    pub is_large: bool,
    /// Most memory that one of its processes had, in that run.
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
        let covered = before.as_ref().map_or(0, |before| before.covered).saturating_add(1);
        let now = Self { version: VERSION, key, is_large, peak: seen.peak, covered, plain: 0 };
        // For a program that is covered each time, counting its runs is not worth a write.
        let is_same = before.is_some_and(|b| b.is_large && is_large && b.peak.abs_diff(now.peak) * 8 <= now.peak);
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
        assert!(after(Some(entry), SMALL).unwrap().is_plain());
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
