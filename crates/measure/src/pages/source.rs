//! A page as it is held here while it is watched: a file, or a segment.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use faultless_page::knobs::Knob;
use faultless_page::layout::Whole;
use faultless_page::listing::MOST;

use super::open::Looked;
use super::segment::{Listed, Segment};
use super::{Counters, PageError, knob_at, maps, process};

/// Where a page is read, also after its process has ended.
#[derive(Debug)]
pub enum Source {
    /// In a directory of `run`'s.
    File(File),
    /// In shared memory.
    Segment(Segment),
}

impl Source {
    /// A file that holds a page, in a directory of this user's own.
    pub fn file(path: &Path) -> Result<Self, PageError> {
        Self::looked(path, |_| true)?.open_own().map(Self::File).map_err(PageError::Read)
    }

    /// The same in any directory, if `is_meant` holds of the file: that is asked before it is opened.
    pub fn file_if(path: &Path, is_meant: impl FnOnce(&Metadata) -> bool) -> Result<Self, PageError> {
        Self::looked(path, is_meant)?.open().map(Self::File).map_err(PageError::Read)
    }

    /// What may be a page, not opened yet.
    fn looked(path: &Path, is_meant: impl FnOnce(&Metadata) -> bool) -> Result<Looked, PageError> {
        let looked = Looked::at(path).map_err(PageError::Read)?.ok_or(PageError::Foreign)?;
        match is_meant(&looked.about) {
            false => Err(PageError::NotIts),
            // The library is about to size it. Files of the kernel's have no size either, and are not read.
            true if looked.about.len() == 0 => Err(PageError::Unfinished),
            true => Ok(looked),
        }
    }

    /// A segment that holds a page.
    pub fn segment(listed: &Listed) -> Result<Self, PageError> {
        Segment::attach(listed).map(Self::Segment).map_err(PageError::Read)
    }

    /// A file that may hold the page of the process `pid`.
    pub fn file_of(path: &Path, pid: u32) -> Result<Self, PageError> {
        let user = process::user(pid);
        let dir = path.parent().ok_or(PageError::Foreign)?.metadata().map_err(PageError::Read)?;
        if !process::may_be_of(dir.uid(), user) {
            return Err(PageError::NotIts);
        }
        let is_mapped = |about: &Metadata| maps::of(pid).is_some_and(|maps| maps::has_file(&maps, about));
        Self::file_if(path, |about| process::is_of(about.uid(), user, || is_mapped(about)))
    }

    /// A segment that may hold the page of the process that made it: its number may be another's by now.
    pub fn segment_of(listed: &Listed) -> Result<Self, PageError> {
        let is_mapped = || maps::of(listed.pid).is_some_and(|maps| maps::has_segment(&maps, listed.id));
        match process::is_of(listed.user, process::user(listed.pid), is_mapped) {
            true => Self::segment(listed),
            false => Err(PageError::NotIts),
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
