//! What is noted of one program, and which program that is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::shape::{self, Sum};

/// Of the fields below. Profiles of another version are left alone.
pub const VERSION: u32 = 3;
/// After that many runs without the library, one is covered again.
const RECHECK: u32 = 16;
/// A run without the library that takes this much more memory than before says that the program has changed.
const MORE: u64 = 1 << 20;
/// Covered runs without many large requests, one after the other, after which a program counts as one that makes none:
/// runs of one shape may differ.
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

/// The large requests of a program and of those that it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// None.
    No,
    /// By many processes, and so little memory that the library may have cost more than that spared.
    Few,
    /// Else.
    Many,
}

/// What was seen of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `None`: it ran without the library.
    pub requests: Option<Requests>,
    /// Most memory that one of its processes had.
    pub peak: u64,
    /// Processor time of all of them in µs, but for that of the library's background.
    pub cpu: u64,
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
    /// Whether it had many large requests, lately.
    pub is_large: bool,
    /// Covered runs with few or none since then.
    pub small: u32,
    /// Where its last covered run had a few: the processor time of that, in µs.
    pub cpu: Option<u64>,
    /// The same of the last run without the library.
    pub plain_cpu: Option<u64>,
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
        let is_as_fast = self.cpu.zip(self.plain_cpu).is_none_or(|(covered, plain)| plain <= covered);
        self.version == VERSION && !self.is_large && self.covered > 0 && self.plain < RECHECK && is_as_fast
    }

    /// What is to be noted after a run, if anything changes.
    pub fn after(before: Option<Self>, key: Key, seen: Seen) -> Option<Self> {
        // A run that failed may have ended before it began its work.
        let cpu = seen.is_success.then_some(seen.cpu);
        let Some(requests) = seen.requests else {
            let before = before?;
            let is_other = seen.peak > before.peak.saturating_add(MORE);
            let plain = if is_other { RECHECK } else { before.plain.saturating_add(1) };
            let plain_cpu = before.cpu.and(cpu).or(before.plain_cpu);
            return Some(Self { plain, plain_cpu, ..before });
        };
        let is_large = requests == Requests::Many;
        if !is_large && !seen.is_success {
            return None;
        }
        let was = |of: fn(&Self) -> u32| before.as_ref().map_or(0, of);
        let covered = was(|before| before.covered).saturating_add(1);
        let small = if is_large { 0 } else { was(|before| before.small).saturating_add(1) };
        let was_large = before.as_ref().is_some_and(|before| before.is_large);
        let stays_large = is_large || was_large && small < SETTLED;
        let cpu = cpu.filter(|_| requests == Requests::Few);
        let plain_cpu = cpu.and(before.as_ref().and_then(|before| before.plain_cpu));
        let peak = seen.peak;
        let now =
            Self { version: VERSION, key, is_large: stays_large, small, cpu, plain_cpu, peak, covered, plain: 0 };
        // For a program that is covered each time, counting its runs is not worth a write.
        let is_as_before = |b: Self| b.is_large && b.small == 0 && b.peak.abs_diff(peak) <= peak / 8;
        let is_same = is_large && before.is_some_and(is_as_before);
        (!is_same).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Seen = Seen { requests: Some(Requests::No), peak: 2 << 20, cpu: 1000, is_success: true };
    const PLAIN: Seen = Seen { requests: None, ..SMALL };

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
        let large = Seen { requests: Some(Requests::Many), peak: 1 << 30, cpu: 1000, is_success: false };
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

    /// Whether a few large requests are worth the library is what two runs say.
    #[test]
    fn a_program_with_few_large_requests_runs_as_it_was_faster() {
        let few = |cpu| Seen { requests: Some(Requests::Few), cpu, ..SMALL };
        let plain = |cpu| Seen { cpu, ..PLAIN };
        let first = after(None, few(100)).unwrap();
        assert!(first.is_plain(), "it was not tried without");
        let slower = after(Some(first.clone()), plain(101)).unwrap();
        assert!(!slower.is_plain());
        let slower = after(Some(slower), few(100)).unwrap();
        assert!(!slower.is_plain(), "it is known still");
        assert!(after(Some(slower.clone()), few(102)).unwrap().is_plain(), "times differ from run to run");
        let failed = after(Some(first.clone()), Seen { is_success: false, ..plain(1000) }).unwrap();
        assert_eq!(failed.plain_cpu, None, "it may have failed before its work");
        let mut faster = after(Some(first), plain(99)).unwrap();
        for _ in 1..RECHECK {
            assert!(faster.is_plain());
            faster = after(Some(faster), plain(99)).unwrap();
        }
        assert!(!faster.is_plain());
        // None or many of them, and times do not count any more.
        let none = after(Some(slower.clone()), SMALL).unwrap();
        assert!(none.is_plain() && none.cpu.or(none.plain_cpu).is_none());
        let many = after(Some(slower), Seen { requests: Some(Requests::Many), ..SMALL }).unwrap();
        assert!(!many.is_plain() && !after(Some(many), few(100)).unwrap().is_plain());
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
