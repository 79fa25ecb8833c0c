//! A page as it is held here while it is watched: a file, or a segment.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use faultless_page::knobs::Knob;
use faultless_page::layout::Whole;
use faultless_page::listing::MOST;

use super::segment::{Listed, Segment};
use super::{Counters, PageError, dir, knob_at, process};

/// Where a page is read, also after its process has ended.
#[derive(Debug)]
pub enum Source {
    /// In a directory of `run`'s.
    File(File),
    /// In shared memory.
    Segment(Segment),
}

impl Source {
    /// A file that holds a page.
    pub fn file(path: &Path) -> Result<Self, PageError> {
        // What it names may be anything: no link is followed, and no pipe waited for.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
        // Who may only read it can still watch.
        let file = open(true).or_else(|_| open(false)).map_err(PageError::Read)?;
        match file.metadata() {
            Ok(about) if about.is_file() => Ok(Self::File(file)),
            Ok(_) => Err(PageError::Foreign),
            Err(error) => Err(PageError::Read(error)),
        }
    }

    /// A segment that holds a page.
    pub fn segment(listed: &Listed) -> Result<Self, PageError> {
        Segment::attach(listed).map(Self::Segment).map_err(PageError::Read)
    }

    /// The same in a directory, if both may be of the process `pid`.
    pub fn file_of(path: &Path, pid: u32) -> Result<Self, PageError> {
        let user = process::user(pid);
        if !path.parent().is_some_and(|dir| dir::may_be_of(dir, user)) {
            return Err(PageError::Foreign);
        }
        let source = Self::file(path)?;
        match &source {
            Self::File(file) => match file.metadata() {
                Ok(about) if process::may_be_of(about.uid(), user) => Ok(source),
                Ok(_) => Err(PageError::Foreign),
                Err(error) => Err(PageError::Read(error)),
            },
            Self::Segment(_) => Ok(source),
        }
    }

    /// The same, if it may be of the process that made it: its number may be another's by now.
    pub fn segment_of(listed: &Listed) -> Result<Self, PageError> {
        match process::may_be_of(listed.user, process::user(listed.pid)) {
            true => Self::segment(listed),
            false => Err(PageError::Foreign),
        }
    }

    /// What is on the page now.
    pub fn read(&self) -> Result<Counters, PageError> {
        let bytes = match self {
            Self::File(file) => {
                let mut bytes = vec![0u8; Whole::bytes(MOST)];
                let n = read_at(file, &mut bytes).map_err(PageError::Read)?;
                bytes.truncate(n);
                bytes
            }
            Self::Segment(segment) => segment.bytes(),
        };
        Counters::parse(&bytes)
    }

    /// Turns a knob. The page must have been [`read`](Self::read) before, which tells that it is one.
    pub fn set(&self, knob: Knob, value: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(&value.to_ne_bytes(), knob_at(knob) as u64),
            Self::Segment(segment) => segment.set(knob_at(knob), value).ok_or(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// As many bytes from the start of a file as there are and fit; also of one that is shortened meanwhile.
fn read_at(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < bytes.len() {
        match file.read_at(&mut bytes[n..], n as u64) {
            Ok(0) => break,
            Ok(got) => n += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}
