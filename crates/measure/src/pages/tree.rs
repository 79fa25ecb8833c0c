//! The processes of one command, by the pages in its directory and by the sums of those that were folded.
//!
//! Pages come, go and are folded while they are read. What was read counts if nothing was folded meanwhile; else all is
//! read again. So each process counts once, and no total goes backward. A page that is missing was folded only if
//! the sums have grown: a directory that is removed takes all of them, and what was read last stays.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::dir::Id;
use super::find::{All, Covered, Unread};
use super::folded::Sums;
use super::{Folded, PageError, dir};

/// How often a directory is read that changes meanwhile, and the pause before the next time.
const TIMES: usize = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// What was read of a command so far.
#[derive(Debug, Default)]
pub struct Tree {
    /// Processes with a page, in the order of their numbers.
    pub processes: Vec<Covered>,
    /// What others counted, which have none any more.
    pub folded: Folded,
    /// Where that was read. It may be long, and changes seldom.
    sums: Sums,
}

/// What came of one time.
enum Read {
    Done(All),
    /// Something was folded meanwhile.
    Changed,
}

impl Tree {
    /// These processes, which are on their own.
    pub fn of(processes: Vec<Covered>) -> Self {
        Self { processes, ..Self::default() }
    }

    /// Looks for processes that came up, and for pages that were folded; what is wrong with any.
    pub fn look(&mut self, dir: &Path) -> All {
        for _ in 0..TIMES {
            match self.read(dir) {
                Read::Done(all) => return all,
                Read::Changed => std::thread::sleep(PAUSE),
            }
        }
        let wrong = "processes come and go faster than their counts can be read: those of the last look are shown";
        All { wrong: vec![wrong.into()], ..All::default() }
    }

    fn read(&mut self, dir: &Path) -> Read {
        let (mut all, mut unread) = (All::default(), Unread::default());
        // It was removed. What it had is known.
        let Some(user) = dir::user_of(dir) else { return Read::Done(all) };
        let (sums, folded) = match self.sums(dir, user) {
            Ok((sums, Some(Err(wrong)))) => {
                all.wrong.push(format!("the file of counts of processes that have ended {wrong}"));
                (sums, Some(Folded::default()))
            }
            Ok((sums, read)) => (sums, read.and_then(Result::ok)),
            // For want of descriptors. What was read last stays.
            Err(error) => {
                unread.note(error);
                return Read::Done(all.finish(unread));
            }
        };
        let through = folded.as_ref().unwrap_or(&self.folded).through;
        let pages = match dir::listed(dir) {
            Ok(pages) => pages,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Read::Changed,
            Err(error) => {
                unread.note(error);
                return Read::Done(all.finish(unread));
            }
        };
        let known: HashSet<Id> = self.processes.iter().filter_map(|covered| covered.file).collect();
        let (mut there, mut inodes) = (HashSet::new(), HashSet::new());
        for page in pages.into_iter().filter(|page| page.aside.is_none_or(|number| number > through)) {
            // For a moment it may have both names.
            if !inodes.insert(page.file.inode) || !there.insert(page.file) || known.contains(&page.file) {
                continue;
            }
            match Covered::in_file(page.pid, page.path, user) {
                Err(PageError::Read(error)) if error.kind() == io::ErrorKind::NotFound => return Read::Changed,
                mut found => {
                    found.iter_mut().for_each(|covered| covered.file = Some(page.file));
                    all.take(page.pid, found, &mut unread);
                }
            }
        }
        if !Sums::of(dir).is_ok_and(|now| now.is(&sums)) {
            return Read::Changed;
        }
        // What was read may be a part of it.
        if dir::user_of(dir) != Some(user) {
            return Read::Changed;
        }
        let was_folded = through > self.folded.through;
        let anew: HashSet<u64> = all.found.iter().filter_map(|covered| Some(covered.file?.inode)).collect();
        // What was read anew takes the place of what was read before.
        let is_gone = |file: Id| !there.contains(&file) && (was_folded || anew.contains(&file.inode));
        self.processes.retain(|covered| !covered.file.is_some_and(is_gone));
        if let Some(folded) = folded {
            self.folded = folded;
        }
        self.sums = sums;
        self.processes.append(&mut all.found);
        self.processes.sort_by_key(|covered| covered.pid);
        Read::Done(all.finish(unread))
    }

    /// The file of sums; what it says, or what is wrong with it, if it is not the one that was read last. An error: it
    /// cannot be read now.
    fn sums(&self, dir: &Path, user: u32) -> io::Result<(Sums, Option<Result<Folded, PageError>>)> {
        let sums = Sums::of(dir)?;
        if sums.is(&self.sums) {
            return Ok((sums, None));
        }
        match sums.read(user) {
            Err(PageError::Read(error)) => Err(error),
            read => Ok((sums, Some(read))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counters;
    use super::super::folded::Folder;
    use super::super::tests::page;
    use super::*;
    use faultless_page::layout::Page;
    use std::mem::offset_of;

    /// What a reader has of all processes.
    fn total(tree: &mut Tree, dir: &Path) -> (usize, u64) {
        assert!(tree.look(dir).wrong.is_empty());
        let pages: Vec<_> = tree.processes.iter_mut().map(|covered| covered.counters().clone()).collect();
        let processes = pages.len() + tree.folded.processes();
        (processes, tree.folded.with(&pages).values()[0])
    }

    #[test]
    fn each_process_counts_once_whenever_one_looks() {
        let dir = tempfile::tempdir().unwrap();
        let one = Counters::parse(&page()).unwrap().values()[0];
        let mut folder = Folder::default();
        let mut watching = Tree::default();
        for number in 0..8u64 {
            // Two with each name: the second has the number of the first, whose page was folded.
            std::fs::write(dir.path().join(format!("400000000{}", number / 2)), page()).unwrap();
            let expected = (number as usize + 1, one * (number + 1));
            assert_eq!(total(&mut watching, dir.path()), expected);
            folder.take_beyond(dir.path(), 0);
            assert_eq!(total(&mut watching, dir.path()), expected);
            assert_eq!(total(&mut Tree::default(), dir.path()), expected);
            assert!(watching.processes.is_empty());
        }
        // The directory goes, and what is known stays.
        std::fs::write(dir.path().join("4000000009"), page()).unwrap();
        let all = total(&mut watching, dir.path());
        std::fs::remove_file(dir.path().join("4000000009")).unwrap();
        assert_eq!(total(&mut watching, dir.path()), all);
        drop(dir.close());
        assert_eq!(all, (9, one * 9));
    }

    /// Only the file of sums that was read last tells that its sums are known.
    #[test]
    fn sums_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let one = Counters::parse(&page()).unwrap().values()[0];
        let (mut folder, mut watching) = (Folder::default(), Tree::default());
        for number in 1..5 {
            std::fs::write(dir.path().join("4000000001"), page()).unwrap();
            folder.take_beyond(dir.path(), 0);
            assert_eq!(total(&mut watching, dir.path()), (number as usize, one * number));
            // It does not read what it has.
            watching.folded.programs.iter_mut().for_each(|sum| sum.plain += 1);
            assert_eq!(total(&mut watching, dir.path()), (number as usize + 1, one * number));
        }
        // What is wrong is told once, and stays wrong.
        std::fs::write(dir.path().join("new"), "nonsense").unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("folded")).unwrap();
        assert_eq!([(); 3].map(|()| watching.look(dir.path()).wrong.len()), [1, 0, 0]);
        assert_eq!(watching.folded.processes(), 0);
    }

    /// Two processes of one number, of which the second has the page of the first. And one whose page has the number of a
    /// file that was folded.
    #[test]
    fn a_page_is_read_again_when_another_process_counts_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, mut bytes) = (dir.path().join("4000000001"), page());
        let one = Counters::parse(&bytes).unwrap().values()[0];
        std::fs::write(&file, &bytes).unwrap();
        let mut watching = Tree::default();
        assert_eq!(total(&mut watching, dir.path()), (1, one));
        assert_eq!(total(&mut watching, dir.path()), (1, one));
        let id = watching.processes[0].file.unwrap();
        bytes[offset_of!(Page, block)] += 7;
        // The clock of files has steps.
        while dir::listed(dir.path()).unwrap()[0].file == id {
            std::fs::write(&file, &bytes).unwrap();
        }
        assert_eq!(total(&mut watching, dir.path()), (1, one + 7));
        let mut folder = Folder::default();
        folder.take_beyond(dir.path(), 0);
        // The watch has not seen that, and finds it with a file of the same number.
        std::fs::write(dir.path().join("4000000002"), page()).unwrap();
        let inode = dir::listed(dir.path()).unwrap()[0].file.inode;
        watching.processes[0].file.as_mut().unwrap().inode = inode;
        assert_eq!(total(&mut watching, dir.path()), (2, 2 * one + 7));
        assert_eq!(watching.processes.len(), 1);
    }

    /// While another thread folds.
    #[test]
    fn totals_are_exact_while_pages_are_folded() {
        const PAGES: usize = 60;
        let dir = tempfile::tempdir().unwrap();
        for number in 0..PAGES {
            std::fs::write(dir.path().join((4_000_000_000 + number).to_string()), page()).unwrap();
        }
        let mut watching = Tree::default();
        let all = total(&mut watching, dir.path());
        assert_eq!(all.0, PAGES);
        std::thread::scope(|scope| {
            let folding = scope.spawn(|| {
                let mut folder = Folder::default();
                (0..PAGES).rev().step_by(5).for_each(|kept| folder.take_beyond(dir.path(), kept));
            });
            while !folding.is_finished() {
                assert_eq!(total(&mut watching, dir.path()), all);
                assert_eq!(total(&mut Tree::default(), dir.path()), all);
            }
        });
        assert_eq!(total(&mut watching, dir.path()), all);
        assert!(watching.folded.processes() > PAGES / 2);
    }
}
