//! Finding the pages of processes that run.
//!
//! A process is covered when it has a page: a segment of shared memory that it made itself, or the file DIR/PID in
//! the directory that its environment names.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use faultless_base::sys::raw::boot_ns;
use faultless_page::knobs::Knob;

use super::open::Looked;
use super::process::{self, Process, Stat};
use super::{Counters, PageError, Source, dir, is_alive, maps, segment, variable};

/// A covered process.
#[derive(Debug)]
pub struct Covered {
    /// Its number.
    pub pid: u32,
    /// Its name when it was found.
    name: String,
    /// When it was started; tells it from a later one of the same number.
    started: Option<u64>,
    /// `None` once it has ended and was read a last time: a command of many short processes would run out of descriptors.
    source: Option<Source>,
    /// The file, if it is one.
    path: Option<PathBuf>,
    /// What tells it from others in the directory of a command.
    pub(super) file: Option<dir::Id>,
    last: Counters,
}

impl Covered {
    fn new(pid: u32, stat: Option<Stat>, source: Source) -> Result<Self, PageError> {
        let last = source.read()?;
        let (name, started) = stat.map_or_else(|| (name_of(&last), None), |stat| (stat.name, Some(stat.started)));
        Ok(Self { pid, name, started, source: Some(source), path: None, file: None, last })
    }

    /// In a directory of the user `user`: files of others are none of its.
    pub(super) fn in_file(pid: u32, path: PathBuf, user: u32) -> Result<Self, PageError> {
        // Before the file is open: its descriptor may be the last one.
        let stat = Stat::find(pid).map_err(PageError::Read)?;
        let has_ended = pid != 0 && stat.is_none();
        let source = Source::file_if(&path, |about| about.uid() == user)?;
        let mut found = Self { path: Some(path), ..Self::new(pid, stat, source)? };
        if has_ended {
            found.source = None;
        }
        // A later process of this number, which is not covered. The page stays open: it may be about to take it.
        if found.is_younger() && found.listens() != Some(true) {
            (found.name, found.started) = (name_of(&found.last), None);
        }
        // One of another PID namespace has its number as it knows it.
        found.pid = if pid == 0 { found.last.pid } else { pid };
        Ok(found)
    }

    /// In a file that the process `pid` names, or that is named after it.
    fn in_file_of(pid: u32, path: PathBuf, stat: Option<Stat>) -> Result<Self, PageError> {
        let found = Self::new(pid, stat, Source::file_of(&path, pid)?)?;
        // As the process knows it: in a PID namespace of its own it has another number.
        let own = process::inside(pid).map_or(pid, |(_, number)| number);
        match found.last.pid == own {
            true => Ok(Self { path: Some(path), ..found }),
            false => Err(PageError::NotIts),
        }
    }

    fn begins_later(&self) -> bool {
        self.last.start_ns > boot_ns()
    }

    /// Whether the page was begun before the process that has this number now.
    fn is_younger(&self) -> bool {
        let process = self.started.map(|started| Process { pid: self.pid, started });
        process.is_some_and(|process| process.is_younger_than(self.last.start_ns))
    }

    /// Whether the page is that of an earlier process of this number, as far as can be told. One that begins later than now
    /// is of none.
    fn is_stale(&self) -> bool {
        self.begins_later() || self.is_younger() && self.listens() == Some(false)
    }

    /// Whether the program that runs in the process has the page now: not after it was replaced by one without a page of
    /// its own. `None`: that cannot be told.
    pub fn listens(&self) -> Option<bool> {
        let maps = maps::of(self.pid)?;
        match (self.source.as_ref()?, &self.path) {
            (Source::Segment(held), _) => Some(maps::has_segment(&maps, held.id)),
            (Source::File(file), Some(path)) => Some(maps::has_page(&maps, &file.metadata().ok()?, path)),
            (Source::File(_), None) => None,
        }
    }

    /// The process, if it still runs.
    fn stat(&self) -> Option<Stat> {
        Stat::read(self.pid).filter(|stat| Some(stat.started) == self.started)
    }

    /// Whether the process still runs.
    pub fn runs(&self) -> bool {
        self.stat().is_some()
    }

    /// The name of what it runs, or ran when it was found.
    pub fn command(&self) -> String {
        self.stat().map_or_else(|| self.name.clone(), |stat| stat.name)
    }

    /// What it has counted by now. Where the page cannot be read any more, what it had when it could.
    pub fn counters(&mut self) -> &Counters {
        // First: what it counts until its end is on the page that is read then. Of one that cannot be seen, no end is known.
        let Some(source) = &self.source else { return &self.last };
        let is_other = |stat: Option<Stat>| stat.map(|stat| stat.started) != self.started;
        let has_ended = self.started.is_some() && Stat::find(self.pid).is_ok_and(is_other);
        if let Ok(now) = source.read() {
            self.last = now;
        }
        if has_ended {
            self.source = None;
            self.last = self.last.clone().without_memory();
        }
        &self.last
    }

    /// Turns a knob.
    pub fn set(&self, knob: Knob, value: u64) -> io::Result<()> {
        self.source.as_ref().ok_or(io::ErrorKind::NotFound)?.set(knob, value)
    }

    /// For how long it has been counting, in seconds.
    pub fn age(&self) -> f64 {
        boot_ns().saturating_sub(self.last.start_ns) as f64 / 1e9
    }
}

/// The name that a page has of a program.
fn name_of(page: &Counters) -> String {
    if page.name.is_empty() { "?".into() } else { page.name.clone() }
}

/// Why a process has no page to be found.
#[derive(Debug)]
pub enum Missing {
    /// There is no such process.
    Process,
    /// There may be any: the kernel's list of them is not there.
    Unseen,
    /// It belongs to another user, or has other rights: this user may not look.
    Foreign,
    /// This many processes that this user may not look at may be covered; and no others are.
    Closed(usize),
    /// It was started without the library.
    NotCovered,
    /// It has the library, but made no large request, or runs plain.
    Idle,
    /// It has the library, and its page, if it has one, is in a namespace that is not ours.
    Elsewhere,
    /// It has a page that cannot be used.
    Page(PageError),
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("there is no such process, or it has ended"),
            Self::Unseen => f.write_str("processes cannot be seen: /proc is not mounted"),
            Self::Foreign => {
                f.write_str("it belongs to another user, or has other rights: you may not look at it")
            }
            Self::Closed(1) => {
                f.write_str("a process or command of another user may be covered: you may not look at it")
            }
            Self::Closed(n) => {
                write!(f, "{n} processes or commands of other users may be covered: you may not look at them")
            }
            Self::NotCovered => f.write_str("it was not started under faultless"),
            Self::Idle => f.write_str("it made no large request so far, or runs plain"),
            Self::Elsewhere => f.write_str("it is in another IPC namespace (a container): watch it from in there"),
            Self::Page(error) => write!(f, "its page {error}"),
        }
    }
}

/// The file that the environment of a process says its page is.
fn named(pid: u32) -> io::Result<Option<PathBuf>> {
    let Some(dir) = variable(pid, "FAULTLESS_STATS")? else { return Ok(None) };
    // As the process sees it.
    let dir = Path::new(&dir).strip_prefix("/").map(PathBuf::from).unwrap_or_default();
    let dir = Path::new(&format!("/proc/{pid}/root")).join(dir);
    // In a PID namespace of its own it has another number, and says which namespace that is of.
    let name = match process::inside(pid) {
        Some((namespace, number)) if Some(namespace) != process::namespace() => {
            [format!("{number}.{namespace}"), number.to_string()]
        }
        _ => [pid.to_string(), pid.to_string()],
    };
    let [first, second] = name.map(|name| dir.join(name));
    Ok(Some(if first.symlink_metadata().is_ok() { first } else { second }))
}

/// The segment of a process, if it has one: the newest, as a program before it may have left one to its children.
fn in_segment(pid: u32) -> Option<Result<Covered, PageError>> {
    let listed = segment::all().into_iter().filter(|listed| listed.pid == pid);
    let found = listed
        .map(|listed| Source::segment_of(&listed).and_then(|source| Covered::new(pid, Stat::read(pid), source)));
    // A segment of another process is no page of this process.
    let pages =
        found.filter(|page| !matches!(page, Err(PageError::Foreign | PageError::NotIts | PageError::Unfinished)));
    let pages = pages.filter(|page| !page.as_ref().is_ok_and(Covered::is_stale));
    pages.max_by_key(|page| page.as_ref().map_or(0, |covered| covered.last.start_ns))
}

/// Why `/proc` shows no process of this number.
pub fn absent(pid: u32) -> Missing {
    match () {
        () if !is_proc_there() => Missing::Unseen,
        // It is there, and /proc hides those of others (hidepid).
        () if !is_alive(pid) && process::exists(pid) => Missing::Foreign,
        () => Missing::Process,
    }
}

/// The process `pid`.
pub fn process(pid: u32) -> Result<Covered, Missing> {
    if Stat::read(pid).is_none() {
        return Err(absent(pid));
    }
    if let Some(found) = in_segment(pid) {
        return found.map_err(|error| match error {
            PageError::Read(error) if error.kind() == io::ErrorKind::PermissionDenied => Missing::Foreign,
            error => Missing::Page(error),
        });
    }
    let not_readable = |error: io::Error| match error.kind() {
        _ if !is_alive(pid) => Missing::Process,
        io::ErrorKind::PermissionDenied => Missing::Foreign,
        // A thread of the kernel's, or a process that is just ending.
        _ => Missing::NotCovered,
    };
    if let Some(path) = named(pid).map_err(not_readable)? {
        match Covered::in_file_of(pid, path, Stat::read(pid)) {
            Err(PageError::Read(_) | PageError::Unfinished) => {}
            Ok(found) if found.is_stale() => {}
            Ok(found) => return Ok(found),
            Err(error) => return Err(Missing::Page(error)),
        }
    }
    let maps = maps::of(pid).unwrap_or_default();
    let ipc = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/ipc")).ok();
    Err(match has_library(pid, &maps) {
        true if ipc(&pid.to_string()) != ipc("self") => Missing::Elsewhere,
        true => Missing::Idle,
        false => Missing::NotCovered,
    })
}

/// What is in a file that another user names, if it may be a library.
fn bytes_of(file: &Path) -> io::Result<Vec<u8>> {
    /// No library of ours is as long, built in whatever way.
    const MOST: u64 = 256 << 20;
    let mut bytes = Vec::new();
    if let Some(file) = Looked::at(file)?.filter(|file| file.about.len() <= MOST) {
        file.open_to_read()?.take(MOST).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Whether a process has the library: by its name, or as the first file that it was told to load, if that is ours.
fn has_library(pid: u32, maps: &str) -> bool {
    /// The name of a variable that only the library reads.
    const MARK: &[u8] = b"FAULTLESS_STATS";
    let has_mark = |bytes: &[u8]| bytes.windows(MARK.len()).any(|part| part == MARK);
    let has_pages = || variable(pid, "FAULTLESS_STATS").ok().flatten().is_some();
    let is_ours = |file: &Path| has_pages() || bytes_of(file).is_ok_and(|bytes| has_mark(&bytes));
    let preloaded = || {
        let files = variable(pid, "LD_PRELOAD").ok()??.into_string().ok()?;
        let file = PathBuf::from(files.split([' ', ':']).find(|file| !file.is_empty())?);
        // Where the path is a link, the kernel tells of what it leads to; and it says which file is not there any more.
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        let path =
            |line: &str| line.get(line.find('/')?..).map(|path| path.trim_end_matches(" (deleted)").to_owned());
        let is_mapped = maps.lines().filter_map(path).any(|path| file == Path::new(&path));
        Some(is_mapped && is_ours(&file))
    };
    maps.contains("libfaultless_preload.so") || preloaded() == Some(true)
}

/// The page of the program that took the place of the program of `known`, in the same process. A file in a directory
/// of `run`'s is the same for both.
pub fn successor(known: &Covered) -> Option<Covered> {
    let Some(Source::Segment(held)) = &known.source else { return None };
    let is_new = |listed: &segment::Listed| listed.pid == known.pid && listed.id != held.id;
    segment::all()
        .iter()
        .any(is_new)
        .then(|| in_segment(known.pid)?.ok())
        .flatten()
        .filter(|found| found.last.start_ns > known.last.start_ns)
}

/// Where all processes that the `faultless` command `pid` started leave their pages, also those that have ended;
/// `None` if it is no such one.
pub fn tree(pid: u32) -> Result<Option<PathBuf>, Missing> {
    match dir::of(pid).map(|dir| (dir::pages(&dir), dir)) {
        Some((Err(error), _)) if error.kind() == io::ErrorKind::PermissionDenied => Err(Missing::Foreign),
        found => Ok(found.map(|(_, dir)| dir)),
    }
}

/// Whether processes can be seen at all.
pub fn is_proc_there() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// The numbers of all processes that can be seen.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What was found of all covered processes.
#[derive(Default)]
pub struct All {
    /// Those whose pages may be read, in order of their numbers.
    pub found: Vec<Covered>,
    /// What is wrong with other pages.
    pub wrong: Vec<String>,
    /// How many processes and commands this user may not look at, as far as they show.
    pub closed: usize,
}

/// Pages and processes that could not be read though they are there.
#[derive(Default)]
pub(super) struct Unread {
    number: usize,
    why: Option<io::Error>,
}

impl Unread {
    /// Unless it has gone, or is nothing that the library made: a link, a socket.
    pub(super) fn note(&mut self, error: io::Error) {
        let gone = [libc::ENOENT, libc::ESRCH, libc::ELOOP, libc::ENXIO];
        if error.raw_os_error().is_none_or(|number| !gone.contains(&number)) {
            self.number += 1;
            self.why = Some(error);
        }
    }
}

impl All {
    pub(super) fn take(&mut self, pid: u32, found: Result<Covered, PageError>, unread: &mut Unread) {
        match found {
            Ok(covered) => self.found.push(covered),
            Err(PageError::Read(error)) if error.kind() == io::ErrorKind::PermissionDenied => self.closed += 1,
            Err(PageError::Read(error)) => unread.note(error),
            // Something else, another's, or not finished.
            Err(PageError::Foreign | PageError::NotIts | PageError::Unfinished) => {}
            Err(error) => self.wrong.push(format!("process {pid}: its page {error}")),
        }
    }

    pub(super) fn finish(mut self, unread: Unread) -> Self {
        self.wrong.sort();
        self.wrong.dedup();
        if let Some(why) = unread.why {
            self.wrong
                .push(format!("not all could be read, and counts are missing ({} times: {why})", unread.number));
        }
        self
    }
}

/// All covered processes.
pub fn all() -> All {
    let mut all = All::default();
    let mut unread = Unread::default();
    let mut files = Vec::new();
    for (maker, dir) in dir::all() {
        match dir::pages(&dir) {
            Ok(pages) => files.extend(pages),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => all.closed += maker.runs() as usize,
            Err(error) => unread.note(error),
        }
    }
    // In directories that only the processes know that leave their pages there. All of them before a page is open.
    for pid in processes() {
        match named(pid) {
            Ok(path) => files.extend(path.map(|path| (pid, path))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => unread.note(error),
        }
    }
    let segments = segment::all().into_iter().map(|listed| (listed.pid, Place::Segment(listed)));
    let files = files.into_iter().map(|(pid, path)| (pid, Place::File(path)));
    for (pid, place) in segments.chain(files) {
        let stat = match Stat::find(pid) {
            Ok(Some(stat)) => stat,
            Ok(None) => continue,
            Err(error) => {
                unread.note(error);
                continue;
            }
        };
        let found = match place {
            Place::Segment(listed) => {
                Source::segment_of(&listed).and_then(|source| Covered::new(pid, Some(stat), source))
            }
            Place::File(path) => Covered::in_file_of(pid, path, Some(stat)),
        };
        // Of an earlier process with this number.
        if !found.as_ref().is_ok_and(Covered::is_stale) {
            all.take(pid, found, &mut unread);
        }
    }
    all.found.sort_by_key(|covered| (covered.pid, std::cmp::Reverse(covered.last.start_ns)));
    all.found.dedup_by_key(|covered| covered.pid);
    all.finish(unread)
}

/// Where a page may be.
enum Place {
    Segment(segment::Listed),
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is taken again.
    #[test]
    fn a_page_is_not_that_of_a_later_process() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir::user_of(dir.path()).unwrap();
        let mut later = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let path = dir.path().join(later.id().to_string());
        let mut bytes = super::super::tests::page();
        let mut found = |start_ns: u64| {
            bytes[40..48].copy_from_slice(&start_ns.to_ne_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let mut found = Covered::in_file(later.id(), path.clone(), user).unwrap();
            (found.runs(), found.command() == "prog?", found.counters().start_ns)
        };
        let all = [found(99), found(boot_ns())];
        later.kill().unwrap();
        later.wait().unwrap();
        assert!(all[0] == (false, true, 99) && all[1].0, "{all:?}");
    }

    #[test]
    fn a_process_that_is_not_covered_is_told() {
        // Not this one: other tests make regions in it.
        let mut other = std::process::Command::new("sleep").arg("60").env_remove("LD_PRELOAD").spawn().unwrap();
        let missing = process(other.id());
        assert!(Stat::read(other.id()).is_some_and(|stat| stat.started > 0 && !stat.name.is_empty()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(matches!(missing, Err(Missing::NotCovered)));
        // No process has the largest number.
        assert!(matches!(process(u32::MAX), Err(Missing::Process)));
    }
}
