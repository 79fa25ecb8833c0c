//! Who takes part, and how a program is started under each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use faultless_page::knobs::Knob;

use super::before;
use super::contender::Contender;
use super::huge::Huge;
use super::measure::{Sample, measure};
use super::plan::{Launch, Row, Start};
use super::undo::Undo;
use faultless_measure::library;
use faultless_measure::pages::{Counters, Dir};

/// What each contender needs.
pub struct Contenders {
    exe: PathBuf,
    libraries: BTreeMap<Contender, PathBuf>,
    huge: Option<Huge>,
    wanted: Vec<Contender>,
    /// Those that cannot take part, with the reason.
    pub missing: Vec<(Contender, String)>,
}

impl Contenders {
    /// Looks for the contenders that are `wanted`; what has to be built goes to `dir`.
    pub fn find(exe: &Path, dir: &Path, wanted: &[Contender]) -> Result<Contenders, String> {
        let mut found = Contenders {
            exe: exe.to_owned(),
            libraries: BTreeMap::new(),
            huge: None,
            wanted: wanted.to_vec(),
            missing: Vec::new(),
        };
        for contender in wanted {
            match contender {
                Contender::Plain => {}
                Contender::Faultless | Contender::Mapped => {
                    let library =
                        library::of(exe).map_err(|error| format!("{error}: build the whole workspace"))?;
                    found.libraries.insert(*contender, library);
                }
                Contender::Huge => match Huge::new() {
                    Ok(huge) => found.huge = Some(huge),
                    Err(reason) => found.missing.push((Contender::Huge, reason)),
                },
                // It has none until `take_before`.
                Contender::Before => {}
                Contender::Empty => found.library(Contender::Empty, empty_library(dir)),
                other => found.library(*other, find_library(other.library().expect("the allocators have one"))),
            }
        }
        Ok(found)
    }

    fn library(&mut self, contender: Contender, library: Result<PathBuf, String>) {
        match library {
            Ok(path) => drop(self.libraries.insert(contender, path)),
            Err(reason) => self.missing.push((contender, reason)),
        }
    }

    /// Has the library at `path` take part beside faultless; what has to be made for that goes to `dir`.
    pub fn take_before(&mut self, path: &Path, dir: &Path) -> Result<(), String> {
        if !self.has(Contender::Faultless) {
            return Err("--before compares with faultless, which does not take part".into());
        }
        self.libraries.insert(Contender::Before, before::loadable(path, dir)?);
        self.wanted.push(Contender::Before);
        Ok(())
    }

    /// Those who run a row, in the order of the first round. The library before runs beside faultless, but not where
    /// the command starts the program: the command loads its own library.
    pub fn of(&self, row: &Row) -> Vec<Contender> {
        let mut all: Vec<Contender> = row.field.contenders().into_iter().filter(|c| self.has(*c)).collect();
        let place = all.iter().position(|contender| *contender == Contender::Faultless);
        if let Some(place) = place.filter(|_| self.has(Contender::Before) && row.start != Start::Run) {
            all.insert(place, Contender::Before);
        }
        all
    }

    /// Whether it takes part.
    pub fn has(&self, contender: Contender) -> bool {
        self.wanted.contains(&contender) && self.missing.iter().all(|(missing, _)| *missing != contender)
    }

    /// Runs a row's program once under this contender.
    pub fn run(&self, row: &Row, launch: &Launch, contender: Contender) -> Result<Sample, String> {
        let mut command = self.command(row, launch, contender);
        let _always = match (&self.huge, contender) {
            (Some(huge), Contender::Huge) => Some(huge.always().map_err(|error| error.to_string())?),
            _ => None,
        };
        if !row.is_counted || !contender.is_own() {
            return measure(&mut command, row.limit);
        }
        let dir = Dir::create().map_err(|error| format!("no place for counters: {error}"))?;
        let _undo = Undo::folder(dir.path());
        let sample = measure(command.env("FAULTLESS_STATS", dir.path()), row.limit)?;
        let (pages, wrong) = dir.read().map_err(|error| error.to_string())?;
        if let Some(wrong) = wrong.first() {
            return Err(wrong.clone());
        }
        Ok(Sample { counters: Some(Counters::sum(&pages)), ..sample })
    }

    /// What it runs for that.
    pub fn command(&self, row: &Row, launch: &Launch, contender: Contender) -> Command {
        let wrapped = contender.is_own() && row.start == Start::Run;
        let mut words: Vec<OsString> = Vec::new();
        if wrapped {
            words.extend([self.exe.clone().into(), "run".into(), "--".into()]);
        }
        words.push(launch.program.clone().into());
        words.extend(launch.args.iter().cloned());
        if let Some(input) = &launch.input {
            words.push(format!("/proc/{}/fd/{}", std::process::id(), input.as_raw_fd()).into());
        }
        let mut command = Command::new(&words[0]);
        // Each run is as the first one.
        command.env("FAULTLESS_PROFILE", "0");
        command.args(&words[1..]).env_remove("LD_PRELOAD").env("LC_ALL", "C");
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        if let Some(library) = self.libraries.get(&contender).filter(|_| !wrapped) {
            command.env("LD_PRELOAD", library);
        }
        if contender.is_own() {
            command.envs(row.env.iter().copied());
        }
        if contender == Contender::Mapped {
            command.env(Knob::Mapped.declared().variable, "1");
        }
        command
    }
}

/// The usual places, Debian's multiarch folders first.
fn find_library(name: &str) -> Result<PathBuf, String> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/lib", "/usr/lib64", "/lib", "/usr/local/lib"]
        .iter()
        .flat_map(|base| [Path::new(base).join(&multiarch), PathBuf::from(base)])
        .map(|folder| folder.join(name))
        .find(|path| fs::exists(path).unwrap_or(false))
        .ok_or_else(|| format!("{name} is not installed"))
}

/// A library with the one dependency that ours has, the C library, and nothing in it.
fn empty_library(dir: &Path) -> Result<PathBuf, String> {
    let (source, library) = (dir.join("empty.c"), dir.join("libempty.so"));
    fs::write(&source, "typedef int nothing;\n").map_err(|error| error.to_string())?;
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wl,-z,now", "-Wl,--no-as-needed", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    match status {
        Ok(status) if status.success() => Ok(library),
        Ok(status) => Err(format!("cc: {status}")),
        Err(_) => Err("no C compiler to make one".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Field, Section};

    fn two(wanted: &[Contender]) -> Contenders {
        let (exe, libraries) = ("faultless".into(), BTreeMap::new());
        Contenders { exe, libraries, huge: None, wanted: wanted.to_vec(), missing: Vec::new() }
    }

    #[test]
    fn the_library_before_runs_what_faultless_runs() {
        use Contender::*;
        let row = |field| Row::new("a", Section::Loops, "").field(field);
        assert_eq!(two(&[Plain, Faultless]).of(&row(Field::Kernel)), [Plain, Faultless]);
        let three = two(&[Plain, Faultless, Before]);
        assert_eq!(three.of(&row(Field::Kernel)), [Plain, Before, Faultless]);
        assert_eq!(three.of(&row(Field::Own)), [Before, Faultless]);
        assert_eq!(three.of(&row(Field::Pair).starting(Start::Run)), [Plain, Faultless]);
    }

    #[test]
    fn the_library_before_takes_nothing_but_faultless_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = two(&[Contender::Plain]).take_before(Path::new("/none"), dir.path()).unwrap_err();
        assert!(error.contains("does not take part"), "{error}");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        assert_eq!(find_library("libnosuch.so.9").unwrap_err(), "libnosuch.so.9 is not installed");
    }
}
