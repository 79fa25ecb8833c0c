//! The directories in which `run` has the library leave its pages: made, found, read, removed.
//!
//! Each is in the first of `places` that takes it. Its name has the number of the process that made it, when that was
//! started, and the PID namespace of both. So a directory is removed only by a process that can tell that its maker
//! is gone.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{DirBuilder, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use faultless_base::sys::page_file;
use faultless_page::layout::Page;

use super::folded::{Folder, number_aside};
use super::owner::Owner;
use super::process::{self, Nested, Process};
use super::{Counters, Folded, Source, variable};

/// The longest name of a page: a slash, a process, a dot, and a namespace.
const PAGE_NAME: usize = 1 + 10 + 1 + 20;
/// The file that a process touches that has its page elsewhere.
const LOST: &str = "lost";
/// What the name of a directory ends with that is being removed: no reader finds it.
const GONE: &str = "-gone";

/// A directory for counters pages, removed when dropped, or later if a process still counts in it.
pub struct Dir {
    path: PathBuf,
    folder: RefCell<Folder>,
}

/// Where a command with these variables makes one: in memory if there is such a place, the user's own or one for all
/// users; else among temporary files.
fn places(variable: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = PathBuf> {
    let named = |name| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let temporary = named("TMPDIR").unwrap_or("/tmp".into());
    named("XDG_RUNTIME_DIR").into_iter().chain(["/dev/shm".into(), temporary])
}

fn own(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The process that made a directory of this name, if it was made in the PID namespace `here`.
fn maker(name: &str, here: u64) -> Option<Process> {
    let fields: Vec<u64> =
        name.strip_prefix("faultless-")?.split('-').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [pid, started, namespace, _] = fields[..] else { return None };
    (namespace == here).then_some(Process { pid: pid.try_into().ok()?, started })
}

/// The directories that can be found, with their makers.
pub fn all() -> Vec<(Process, PathBuf)> {
    all_with("")
}

/// Those whose names end with this.
fn all_with(ending: &str) -> Vec<(Process, PathBuf)> {
    // Others than the caller may have another place of their own.
    let others = std::fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path());
    made_in(places(own).chain(others).collect(), ending)
}

/// That of the command `maker`, wherever its own environment has it make one.
pub fn of(maker: u32) -> Option<PathBuf> {
    let maker = Process::read(maker)?;
    let theirs = places(|name| variable(maker.pid, name).ok()?).collect();
    let user = process::user(maker.pid);
    let is_its = |(process, dir): &(Process, PathBuf)| *process == maker && user.is_some() && user_of(dir) == user;
    all().into_iter().chain(made_in(theirs, "")).find(is_its).map(|(_, dir)| dir)
}

/// The owner of a directory. `None`: it is none, or a link to one.
pub fn user_of(dir: &Path) -> Option<u32> {
    dir.symlink_metadata().ok().filter(Metadata::is_dir).map(|about| about.uid())
}

fn made_in(mut places: Vec<PathBuf>, ending: &str) -> Vec<(Process, PathBuf)> {
    let Some(here) = process::namespace() else { return Vec::new() };
    places.sort();
    places.dedup();
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    // Not what a link leads to.
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let made =
        |entry: DirEntry| Some((maker(entry.file_name().to_str()?.strip_suffix(ending)?, here)?, entry.path()));
    dirs.filter_map(made).collect()
}

/// The pages in a directory with their owners, in their order.
pub fn owned(dir: &Path) -> io::Result<Vec<(Owner, PathBuf)>> {
    let named = |path: PathBuf| Some((Owner::parse(path.file_name()?.to_str()?)?, path));
    let mut pages: Vec<_> = std::fs::read_dir(dir)?.flatten().filter_map(|entry| named(entry.path())).collect();
    pages.sort();
    Ok(pages)
}

/// The processes among which the owners of these pages are.
pub fn nested_for(pages: &[(Owner, PathBuf)]) -> Vec<Nested> {
    pages.iter().find(|(owner, _)| owner.is_elsewhere()).map(|(owner, _)| owner.nested()).unwrap_or_default()
}

/// The pages in a directory, with the processes that they are named after, in their order; 0 for one of another PID
/// namespace than the directory's.
pub fn pages(dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut pages: Vec<_> = owned(dir)?.into_iter().map(|(owner, path)| (owner.here(), path)).collect();
    pages.sort();
    Ok(pages)
}

/// A page in a directory that may change meanwhile.
pub struct Listed {
    /// As of [`pages`]; 0 where the name does not tell.
    pub pid: u32,
    /// Where it is.
    pub path: PathBuf,
    /// Its file.
    pub file: Id,
    /// It is about to be folded, with this number.
    pub aside: Option<u64>,
}

/// What tells a page from others, and from itself before another process went on counting on it. A file system gives
/// the number of a file that was removed to the next one. Each process that begins on a page sizes it, and so changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The number of its file.
    pub inode: u64,
    pid: u32,
    changed: (i64, i64),
}

/// All of them, those last that are about to be folded. An error "not found": one went meanwhile.
pub fn listed(dir: &Path) -> io::Result<Vec<Listed>> {
    let page = |entry: DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (pid, aside) = match Owner::parse(&name) {
            Some(owner) => (owner.here(), None),
            None => (0, Some(number_aside(&name)?)),
        };
        let id = |about: Metadata| Id { inode: about.ino(), pid, changed: (about.ctime(), about.ctime_nsec()) };
        Some(entry.metadata().map(|about| Listed { pid, path: entry.path(), file: id(about), aside }))
    };
    let mut pages: Vec<_> = std::fs::read_dir(dir)?.flatten().filter_map(page).collect::<Result<_, _>>()?;
    pages.sort_by_key(|page| page.aside);
    Ok(pages)
}

/// Removes a directory. Under another name: who reads it would see a part of it as the whole.
fn remove(dir: &Path) {
    let mut gone = dir.as_os_str().to_owned();
    gone.push(GONE);
    let dir = Some(PathBuf::from(gone))
        .filter(|gone| std::fs::rename(dir, gone).is_ok())
        .unwrap_or_else(|| dir.to_owned());
    let _ = std::fs::remove_dir_all(dir);
}

/// Whether a process goes on that counts in this directory.
fn is_in_use(dir: &Path) -> io::Result<bool> {
    let pages = owned(dir)?;
    let nested = nested_for(&pages);
    Ok(pages.iter().any(|(owner, path)| owner.may_have(path, &nested)))
}

/// Removes this user's directories of makers that have ended, as soon as none of their processes is left. What other
/// users put there is not looked into. A page whose process goes on elsewhere is memory until that ends.
fn sweep() {
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    let is_left = |(maker, dir): &(Process, PathBuf)| !maker.runs() && user_of(dir) == Some(user);
    for (_, dir) in all().into_iter().filter(is_left) {
        if is_in_use(&dir).is_ok_and(|is| !is) {
            remove(&dir);
        }
    }
    // A process that began to remove these may have been ended meanwhile.
    for (_, dir) in all_with(GONE).into_iter().filter(is_left) {
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Whether this process may make no file of a page's size; to try that would end it.
fn is_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    known && limit.rlim_cur < size_of::<Page>() as u64
}

impl Dir {
    /// Makes one.
    pub fn create() -> io::Result<Self> {
        sweep();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in places(own) {
            match Self::create_in(&place).and_then(Self::tried) {
                Ok(dir) => return Ok(dir),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        let this = Process::this();
        let namespace = process::namespace().unwrap_or(0);
        let mut number = 0;
        loop {
            // It may have made others.
            let dir = place.join(format!("faultless-{}-{}-{namespace}-{number}", this.pid, this.started));
            // The library could not name its file there.
            if dir.as_os_str().len() + PAGE_NAME >= page_file::PATH {
                return Err(io::Error::other("the path is too long"));
            }
            // Others may go through it, to what they have by name and are let at.
            match DirBuilder::new().mode(0o711).create(&dir) {
                Ok(()) => {
                    std::fs::set_permissions(&dir, Permissions::from_mode(0o711))?;
                    return Ok(Self { path: dir, folder: RefCell::default() });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The directory, if there is room for a page in it, with the file that a process touches that cannot leave its
    /// page.
    fn tried(self) -> io::Result<Self> {
        // Where files are limited, a place that can tell at least that something was lost.
        if !is_limited() {
            self.room()?;
        }
        let lost = File::create_new(self.path.join(LOST))?;
        lost.set_permissions(Permissions::from_mode(0o666))?;
        lost.set_modified(SystemTime::UNIX_EPOCH)?;
        Ok(self)
    }

    /// Whether a process counted that could not leave its page here: of another user, or where nothing could be
    /// written.
    pub fn has_lost(&self) -> bool {
        let touched = self.path.join(LOST).metadata().and_then(|about| about.modified());
        touched.is_ok_and(|time| time != SystemTime::UNIX_EPOCH)
    }

    /// Whether a page can be made in it now.
    pub fn room(&self) -> io::Result<()> {
        if is_limited() {
            return Err(io::Error::other("the size of files is limited (ulimit -f)"));
        }
        let path = self.path.join("room");
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        // SAFETY: a file of this function's.
        let made = match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size_of::<Page>() as libc::off_t) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        std::fs::remove_file(path)?;
        made
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has pages of ended processes make room for others, if there are many.
    pub fn fold(&self) {
        self.folder.borrow_mut().take(&self.path);
    }

    /// What was on the pages that made room.
    pub fn folded(&self) -> Folded {
        self.folder.borrow().folded().clone()
    }

    /// Reads every page: those understood, in order of process, and what is wrong with the others.
    pub fn read(&self) -> io::Result<(Vec<Counters>, Vec<String>)> {
        let (mut counters, mut wrong) = (Vec::new(), Vec::new());
        for (_, path) in pages(&self.path)? {
            match Source::file(&path).and_then(|source| source.read()) {
                Ok(page) => counters.push(page),
                Err(error) => wrong.push(format!("{}: {error}", path.display())),
            }
        }
        Ok((counters, wrong))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A process that outlives the command can still be watched: a later command's `sweep` removes its page.
        if !is_in_use(&self.path).unwrap_or(false) {
            remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn a_directory_is_private_read_and_removed() {
        let dir = Dir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o711);
        assert!(!dir.has_lost());
        assert_ne!(Dir::create().unwrap().path(), path);
        assert!(all().contains(&(Process::this(), path.clone())));
        assert_eq!(
            of(std::process::id()).and_then(|dir| dir.parent().map(Path::to_owned)).as_deref(),
            path.parent()
        );
        std::fs::write(path.join("4000000042"), page()).unwrap();
        std::fs::write(path.join("4000000043"), b"something else").unwrap();
        let (pages, wrong) = dir.read().unwrap();
        assert_eq!(pages, [Counters::parse(&page()).unwrap()]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("/4000000043: is not a counters page"), "{wrong:?}");
        File::open(path.join(LOST)).unwrap().set_modified(SystemTime::now()).unwrap();
        assert!(dir.has_lost());
        drop(dir);
        assert!(!path.exists());
    }

    /// It can be watched further, and the next command looks whether it has ended.
    #[test]
    fn a_directory_stays_while_a_process_counts_in_it() {
        let dir = Dir::create().unwrap();
        let path = dir.path().to_owned();
        let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut bytes = page();
        bytes[40..48].copy_from_slice(&faultless_base::sys::raw::boot_ns().to_ne_bytes());
        std::fs::write(path.join(process.id().to_string()), bytes).unwrap();
        drop(dir);
        let stayed = path.exists();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(stayed && !is_in_use(&path).unwrap());
        std::fs::remove_dir_all(path).unwrap();
    }

    /// What was left of it when its remover was ended is removed by the next command.
    #[test]
    fn a_directory_that_is_being_removed_is_nobodys() {
        let (this, here) = (std::process::id(), process::namespace().unwrap());
        let other = Dir::create().unwrap();
        let place = other.path().parent().unwrap();
        let dir = place.join(format!("faultless-{this}-1-{here}-0{GONE}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("4000000042"), page()).unwrap();
        let found = |ending| made_in(vec![place.to_owned()], ending).into_iter().any(|(_, found)| found == dir);
        // Other tests may look for such directories, too, and remove it.
        assert!(!found("") && (found(GONE) || !dir.exists()));
        sweep();
        assert!(!dir.exists());
    }

    #[test]
    fn a_link_is_no_directory_of_a_command() {
        let place = tempfile::tempdir().unwrap();
        let (here, to) = (process::namespace().unwrap(), tempfile::tempdir().unwrap());
        let name = |number| place.path().join(format!("faultless-12-345-{here}-{number}"));
        std::fs::create_dir(name(0)).unwrap();
        std::os::unix::fs::symlink(to.path(), name(1)).unwrap();
        let found: Vec<_> = made_in(vec![place.path().to_owned()], "").into_iter().map(|(_, dir)| dir).collect();
        assert_eq!((found, user_of(&name(1))), (vec![name(0)], None));
        assert!(user_of(&name(0)).is_some());
    }

    /// A number that is taken again, and one of another namespace, are other processes.
    #[test]
    fn only_directories_of_ours_are_found() {
        let found = Process { pid: 12, started: 345 };
        assert_eq!(maker("faultless-12-345-67-0", 67), Some(found));
        assert_eq!(maker("faultless-12-345-67-0", 68), None);
        for name in [
            "faultless-12",
            "faultless-12-0",
            "faultless-x-345-67-0",
            "other-12-345-67-0",
            "faultless-12-345-67-x",
            "faultless-12-345-67-0-gone",
        ] {
            assert_eq!(maker(name, 67), None, "{name}");
        }
        assert!(
            !Process { started: Process::this().started + 1, ..Process::this() }.runs() && Process::this().runs()
        );
    }

    #[test]
    fn pages_of_other_namespaces_are_nobodys_here() {
        let dir = Dir::create().unwrap();
        for name in ["7", "7.4026531836", "x", "7.x", "room"] {
            std::fs::write(dir.path().join(name), page()).unwrap();
        }
        let pages: Vec<u32> = pages(dir.path()).unwrap().into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(pages, [0, 7]);
    }

    proptest! {
        #![proptest_config(cases())]

        /// Others may put files of any name there.
        #[test]
        fn any_name_is_borne(name in garbled(&["faultless-12-345-67-0", "4711", "7.4026531836"])) {
            let name = String::from_utf8_lossy(&name);
            if let Some(found) = maker(&name, 67) {
                let rest = name.strip_prefix("faultless-").unwrap().split('-').map(|n| n.parse::<u64>().unwrap());
                let rest: Vec<u64> = rest.collect();
                prop_assert_eq!((&rest[..3], rest.len()), (&[found.pid.into(), found.started, 67][..], 4));
            }
            let digits = |text: &str| text.strip_prefix('+').unwrap_or(text).bytes().all(|b| b.is_ascii_digit());
            prop_assert!(Owner::parse(&name).is_none() || name.split('.').all(digits));
        }
    }
}
