//! The directories in which `run` has the library leave its pages: made, found, read, removed.
//!
//! Each is named after the process that made it, in the first of [`places`] that takes it.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{Counters, Source, is_alive, variable};

/// A directory for counters pages, removed when dropped.
pub struct Dir(PathBuf);

/// Where a command with these variables makes one: in memory if there is such a place, the user's own or everybody's;
/// else among temporary files.
fn places(variable: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = PathBuf> {
    let named = |name| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let temporary = named("TMPDIR").unwrap_or("/tmp".into());
    named("XDG_RUNTIME_DIR").into_iter().chain(["/dev/shm".into(), temporary])
}

fn own(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Who made a directory of this name.
fn maker(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix("faultless-")?.split_once('-')?;
    number.parse::<u32>().ok().and(pid.parse().ok())
}

/// The directories that can be found, with their makers.
pub fn all() -> Vec<(u32, PathBuf)> {
    // Others than the caller may have another place of their own.
    let others = std::fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path());
    made_in(places(own).chain(others).collect())
}

/// That of the command `maker`, wherever its own environment has it make one.
pub fn of(maker: u32) -> Option<PathBuf> {
    let theirs = places(|name| variable(maker, name).ok()?).collect();
    all().into_iter().chain(made_in(theirs)).find(|(pid, _)| *pid == maker).map(|(_, dir)| dir)
}

fn made_in(mut places: Vec<PathBuf>) -> Vec<(u32, PathBuf)> {
    places.sort();
    places.dedup();
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    entries.filter_map(|entry| Some((maker(entry.file_name().to_str()?)?, entry.path()))).collect()
}

/// The pages in a directory, with the processes that they are named after, in their order.
pub fn pages(dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let named = |path: PathBuf| Some((path.file_name()?.to_str()?.parse().ok()?, path));
    let mut pages: Vec<_> = std::fs::read_dir(dir)?.flatten().filter_map(|entry| named(entry.path())).collect();
    pages.sort();
    Ok(pages)
}

/// Removes what makers that were killed left behind, as soon as nobody of theirs is left.
fn sweep() {
    for (maker, dir) in all().into_iter().filter(|(maker, _)| !is_alive(*maker)) {
        if pages(&dir).is_ok_and(|pages| pages.iter().all(|(pid, _)| !is_alive(*pid) && *pid != maker)) {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

impl Dir {
    /// Makes one.
    pub fn create() -> io::Result<Self> {
        sweep();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in places(own) {
            match Self::create_in(&place) {
                Ok(dir) => return Ok(dir),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            // One left behind by a process that was killed may have the name.
            let dir = place.join(format!("faultless-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads every page: those understood, in order of process, and what is wrong with the others.
    pub fn read(&self) -> io::Result<(Vec<Counters>, Vec<String>)> {
        let (mut counters, mut wrong) = (Vec::new(), Vec::new());
        for (_, path) in pages(&self.0)? {
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
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;

    #[test]
    fn a_directory_is_private_read_and_removed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Dir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_ne!(Dir::create().unwrap().path(), path);
        assert!(all().contains(&(std::process::id(), path.clone())));
        std::fs::write(path.join("42"), page()).unwrap();
        std::fs::write(path.join("43"), b"something else").unwrap();
        let (pages, wrong) = dir.read().unwrap();
        assert_eq!(pages, [Counters::parse(&page()).unwrap()]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("/43: is not a counters page"), "{wrong:?}");
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn only_directories_of_ours_are_found() {
        assert_eq!(maker("faultless-12-0"), Some(12));
        for name in ["faultless-12", "faultless-x-0", "faultless-12-x", "other-12-0", "faultless-program-12-env"] {
            assert_eq!(maker(name), None, "{name}");
        }
    }
}
