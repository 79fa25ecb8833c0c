//! Pages of processes that have ended, added up by program, so that a long run of many processes leaves few files.
//!
//! The sums are in the file DIR/folded, for every command that reads the pages. A reader counts each process once,
//! whenever it looks:
//!
//! 1. A page that is to be added gets the name `folding-N`; N grows from page to page.
//! 2. The file of sums takes the place of the one before, by a rename. It says up to which N its pages go.
//! 3. Pages up to that N are removed.
//!
//! So a page `folding-N` counts for itself until the file says that it has it. `tree.rs` is the reader.

use std::io::{self, Read};
use std::mem::discriminant;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use faultless_page::layout::TABLES;
use faultless_page::stats::COUNT;
use serde::{Deserialize, Serialize};

use super::open::Looked;
use super::{Counters, PageError, Source, dir, shown};

/// Pages of ended processes that stay as they are.
const KEPT: usize = 1000;
/// The file of sums, and what takes its place next.
const SUMS: &str = "folded";
const NEXT: &str = "folded.next";
/// What the names of pages begin with that are about to be added.
const ASIDE: &str = "folding-";
/// No file of sums is longer: it has a line of numbers for each name of a program.
const LONGEST: u64 = 256 << 20;

/// What all folded processes of one name have counted.
#[derive(Clone, Debug)]
pub struct Sum {
    /// All of it, under the name of the program.
    pub counters: Counters,
    /// Processes with anything served, and those without.
    pub served: usize,
    /// See there.
    pub plain: usize,
}

/// All that was folded.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// By program.
    pub programs: Vec<Sum>,
    /// Up to this number of a page.
    pub through: u64,
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct File {
    tables: u64,
    through: u64,
    programs: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    name: String,
    served: usize,
    plain: usize,
    why: u32,
    counters: Vec<u64>,
}

/// The number in the name of a page that is about to be added.
pub fn number_aside(name: &str) -> Option<u64> {
    name.strip_prefix(ASIDE)?.parse().ok()
}

/// The file of sums of a directory, as it was at a moment. It is held, so no later file has its number. And what is in
/// it never changes: another file takes its place.
#[derive(Debug, Default)]
pub enum Sums {
    /// There was none.
    #[default]
    Missing,
    /// There was something else.
    Foreign,
    /// There was this one.
    There(Box<Looked>),
}

impl Sums {
    /// The one that is there now.
    pub fn of(dir: &Path) -> io::Result<Self> {
        match Looked::at(&dir.join(SUMS)) {
            Ok(looked) => Ok(looked.map_or(Self::Foreign, |looked| Self::There(Box::new(looked)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(error),
        }
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::There(one), Self::There(other)) => {
                (one.about.dev(), one.about.ino()) == (other.about.dev(), other.about.ino())
            }
            _ => discriminant(self) == discriminant(other),
        }
    }

    /// What it says, if it belongs to `user`.
    pub fn read(&self, user: u32) -> Result<Folded, PageError> {
        let looked = match self {
            Self::Missing => return Ok(Folded::default()),
            Self::Foreign => return Err(PageError::Foreign),
            Self::There(looked) if looked.about.uid() != user => return Err(PageError::NotIts),
            Self::There(looked) => looked,
        };
        let mut bytes = Vec::new();
        let file = looked.open_to_read().map_err(PageError::Read)?;
        file.take(LONGEST).read_to_end(&mut bytes).map_err(PageError::Read)?;
        Folded::parse(&bytes)
    }
}

impl Folded {
    fn add(&mut self, page: &Counters) {
        let at = self.programs.iter().position(|sum| sum.counters.name == page.name).unwrap_or_else(|| {
            let counters = Counters { name: page.name.clone(), ..Counters::zero() };
            self.programs.push(Sum { counters, served: 0, plain: 0 });
            self.programs.len() - 1
        });
        let sum = &mut self.programs[at];
        sum.served += page.is_served() as usize;
        sum.plain += !page.is_served() as usize;
        sum.counters.add(&page.clone().without_memory());
    }

    /// How many processes.
    pub fn processes(&self) -> usize {
        self.programs.iter().map(|sum| sum.served + sum.plain).sum()
    }

    /// How many of them were served.
    pub fn served(&self) -> usize {
        self.programs.iter().map(|sum| sum.served).sum()
    }

    /// What they and the processes of these pages have counted.
    pub fn with(&self, pages: &[Counters]) -> Counters {
        let mut all = Counters::sum(pages);
        self.programs.iter().for_each(|sum| all.add(&sum.counters));
        all
    }

    fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let file: File = serde_json::from_slice(bytes).map_err(|_| PageError::Foreign)?;
        if file.tables != TABLES || file.programs.iter().any(|line| line.counters.len() != COUNT) {
            return Err(PageError::Tables);
        }
        let sum = |line: Line| {
            let mut counters = Counters { name: shown(&line.name), plain: line.why, ..Counters::zero() };
            counters.values.copy_from_slice(&line.counters);
            Sum { counters, served: line.served, plain: line.plain }
        };
        Ok(Self { programs: file.programs.into_iter().map(sum).collect(), through: file.through })
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let line = |sum: &Sum| Line {
            name: sum.counters.name.clone(),
            served: sum.served,
            plain: sum.plain,
            why: sum.counters.plain,
            counters: sum.counters.values.to_vec(),
        };
        let programs = self.programs.iter().map(line).collect();
        Ok(serde_json::to_vec(&File { tables: TABLES, through: self.through, programs })?)
    }
}

/// Folds the pages of one directory.
#[derive(Debug, Default)]
pub struct Folder {
    folded: Folded,
    /// The last number that a page got.
    number: u64,
    /// Pages that are in the sums here, and perhaps not in the file.
    aside: Vec<PathBuf>,
}

impl Folder {
    /// All that was folded.
    pub fn folded(&self) -> &Folded {
        &self.folded
    }

    /// Takes up the pages of ended processes in `dir` beyond those that stay, and removes them.
    pub fn take(&mut self, dir: &Path) {
        self.take_beyond(dir, KEPT);
    }

    pub(super) fn take_beyond(&mut self, dir: &Path, kept: usize) {
        let mut ended = dir::owned(dir).unwrap_or_default();
        if ended.len() > kept {
            let nested = dir::nested_for(&ended);
            ended.retain(|(owner, _)| !owner.is_alive(&nested));
            let more = ended.len().saturating_sub(kept);
            for (owner, path) in ended.into_iter().take(more) {
                self.take_page(dir, owner, &path);
            }
        }
        // Also those of which the file could not be written before: the disk was full.
        if !self.aside.is_empty() {
            self.folded.through = self.number;
            if self.publish(dir).is_ok() {
                self.aside.drain(..).for_each(|page| drop(std::fs::remove_file(page)));
            }
        }
    }

    fn take_page(&mut self, dir: &Path, owner: super::owner::Owner, path: &Path) {
        // A new process of the same number makes a file of its own from now on.
        let aside = dir.join(format!("{ASIDE}{}", self.number + 1));
        if std::fs::rename(path, &aside).is_err() {
            return;
        }
        self.number += 1;
        // It began just before that, and has the page.
        let is_its = || owner.is_alive(&owner.nested());
        let page = Source::file(&aside).and_then(|source| source.read()).ok().filter(|_| !is_its());
        match page {
            Some(page) => self.folded.add(&page),
            // What is wrong with it is told at the end.
            None if std::fs::hard_link(&aside, path).is_ok() => {
                let _ = std::fs::remove_file(&aside);
                return;
            }
            // Another page has the name by now.
            None => match Source::file(&aside).and_then(|source| source.read()) {
                Ok(page) => self.folded.add(&page),
                Err(_) => drop(std::fs::remove_file(&aside)),
            },
        }
        self.aside.push(aside);
    }

    fn publish(&self, dir: &Path) -> io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let next = dir.join(NEXT);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(&self.folded.bytes()?)?;
        std::fs::rename(next, dir.join(SUMS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn pages_of_ended_processes_are_added_up_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let user = dir::user_of(dir.path()).unwrap();
        // No process has such a number; this one runs; one is of a namespace that has ended; one is none.
        let own = std::process::id().to_string();
        for name in ["4000000001", "4000000002", "4000000003", own.as_str(), "4000000002.7"] {
            std::fs::write(file(name), page()).unwrap();
        }
        std::fs::write(file("4000000000"), "something else").unwrap();
        let mut folder = Folder::default();
        folder.take_beyond(dir.path(), 1);
        let one = Counters::parse(&page()).unwrap();
        let read = Sums::of(dir.path()).unwrap().read(user).unwrap();
        for folded in [folder.folded(), &read] {
            let [sum] = &folded.programs[..] else { panic!("{folded:?}") };
            assert_eq!((folded.processes(), folded.served(), sum.counters.name.as_str()), (3, 3, "prog?"));
            assert_eq!(sum.counters.values().map(|n| n / 3), *one.values());
            assert_eq!(sum.counters.plain(), one.plain());
        }
        assert_eq!(read.through, folder.folded().through);
        let left = ["4000000000", "4000000003", own.as_str(), SUMS];
        assert!(left.iter().all(|name| file(name).exists()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), left.len());
        folder.take_beyond(dir.path(), 10);
        assert_eq!(folder.folded().processes(), 3);
        assert!(matches!(Sums::of(dir.path()).unwrap().read(user + 1), Err(PageError::NotIts)));
    }

    /// Until there is room for the file of sums, each page counts for itself.
    #[test]
    fn nothing_is_removed_before_the_sums_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir::user_of(dir.path()).unwrap();
        std::fs::write(dir.path().join("4000000001"), page()).unwrap();
        std::fs::create_dir(dir.path().join(NEXT)).unwrap();
        let mut folder = Folder::default();
        folder.take_beyond(dir.path(), 0);
        assert!(dir.path().join("folding-1").exists());
        let before = Sums::of(dir.path()).unwrap();
        assert_eq!(before.read(user).unwrap().through, 0);
        std::fs::remove_dir(dir.path().join(NEXT)).unwrap();
        folder.take_beyond(dir.path(), 0);
        assert!(!dir.path().join("folding-1").exists());
        let after = Sums::of(dir.path()).unwrap();
        assert!(!after.is(&before) && after.is(&Sums::of(dir.path()).unwrap()));
        let read = after.read(user).unwrap();
        assert_eq!((read.through, read.processes()), (1, 1));
    }

    proptest! {
        #![proptest_config(cases())]

        /// Another user's file may hold anything.
        #[test]
        fn any_file_of_sums_is_borne(bytes in garbled(samples())) {
            if let Ok(folded) = Folded::parse(&bytes) {
                let all = folded.with(&[]);
                prop_assert!(folded.programs.iter().all(|sum| sum.counters.values().len() == COUNT));
                prop_assert!(folded.programs.iter().all(|sum| !sum.counters.name.chars().any(char::is_control)));
                prop_assert!(folded.programs.is_empty() || all.values().len() == COUNT);
            }
        }
    }

    fn samples() -> &'static [&'static str] {
        let mut folded = Folded { through: 7, ..Folded::default() };
        folded.add(&Counters::parse(&page()).unwrap());
        let text = String::from_utf8(folded.bytes().unwrap()).unwrap();
        Box::leak(Box::new([&*text.leak(), r#"{"tables":1,"through":2,"programs":[]}"#]))
    }
}
