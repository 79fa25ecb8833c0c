//! Memory in parts, one a thread: mappings of the kernel's, or parts of one region.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use faultless::region::{Advice, Backing, FileBacking, Region, Rights};

use super::{Beside, By, Spf, Way, Work};
use crate::loops::memory::PAGE;

/// Bytes of a part.
pub const PART: usize = 16 << 20;
/// The gap between parts, which is no part of the region, so that the kernel's areas differ too.
const GAP: usize = 2 << 20;

/// The memory of all threads.
pub struct Field {
    region: Option<Region>,
    /// Bytes from part to part.
    step: usize,
    file: Option<File>,
    /// How a file is mapped: the kernel does that itself, for a region it is read and written.
    sharing: libc::c_int,
}

/// What the file has in a page: something else than zero, and than what is written.
fn byte_of(page: usize) -> u8 {
    (page % 100) as u8 + 100
}

impl Field {
    /// Memory for `parts` threads.
    pub fn new(what: &Spf, parts: usize) -> io::Result<Self> {
        let step = if what.beside == Beside::Near { PART } else { PART + GAP };
        let length = parts * step;
        let (has_file, sharing) = match what.work {
            Work::Private => (true, libc::MAP_PRIVATE),
            Work::Shared => (true, libc::MAP_SHARED),
            _ => (false, libc::MAP_PRIVATE),
        };
        let file = if has_file { Some(make_file(length)?) } else { None };
        if what.way == Way::Kernel {
            // A fault is one page, whatever the system's setting.
            // SAFETY: takes no pointer; it is this process's own affair.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
            return Ok(Self { region: None, step, file, sharing });
        }
        // By signal each part has a descriptor; threads are as many as CPUs could use.
        let handlers = if what.by == By::Signal { parts } else { 2 };
        let mut builder = Region::builder(length).delivery(what.delivery()).handlers(handlers).mapped(false);
        if what.way != Way::Windows {
            builder = builder.windows(what.window * PAGE, what.window * PAGE);
        }
        match (&file, what.way) {
            (Some(file), _) => builder = builder.backing(FileBacking::new(file.try_clone()?)),
            (None, Way::OneLock | Way::Backed) => builder = builder.backing(Zeroes(what.way)),
            _ => {}
        }
        Ok(Self { region: Some(builder.build()?), step, file, sharing })
    }

    /// The part of a thread.
    pub fn part(&self, index: usize) -> Part<'_> {
        Part { field: self, offset: index * self.step }
    }
}

/// A backing of zeroes. Where it may not be read during changes, a fault waits for all of them.
struct Zeroes(Way);

impl Backing for Zeroes {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(0);
        Ok(())
    }

    fn is_read_at_any_time(&self) -> bool {
        self.0 != Way::OneLock
    }
}

/// A file of which the kernel has all pages.
fn make_file(length: usize) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    for page in 0..length / PAGE {
        file.write_all(&[byte_of(page); PAGE])?;
    }
    Ok(file)
}

/// The memory of one thread.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    field: &'a Field,
    offset: usize,
}

impl Part<'_> {
    /// Maps `bytes` from `from` on, of the part's own; where that is.
    pub fn map(&self, from: usize, bytes: usize) -> io::Result<usize> {
        let offset = self.offset + from;
        if let Some(region) = &self.field.region {
            region.map(offset..offset + bytes, Rights::Write)?;
            return Ok(region.as_ptr() as usize + offset);
        }
        let (fd, flags) = match &self.field.file {
            Some(file) => (file.as_raw_fd(), self.field.sharing),
            None => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let offset = if fd < 0 { 0 } else { offset as libc::off_t };
        // SAFETY: a new mapping wherever there is room.
        let at = unsafe { libc::mmap(null_mut(), bytes, prot, flags, fd, offset) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
    }

    /// Unmaps what [`Part::map`] mapped. What a region has of a shared file is written to it first.
    pub fn unmap(&self, from: usize, at: usize, bytes: usize) -> io::Result<()> {
        let Some(region) = &self.field.region else {
            // SAFETY: a mapping of this part's, which is not used any more.
            let done = unsafe { libc::munmap(at as *mut _, bytes) };
            return if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        };
        let offset = self.offset + from;
        if let (Some(file), libc::MAP_SHARED) = (&self.field.file, self.field.sharing) {
            // SAFETY: mapped for reading, and every page of it was touched.
            let content = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
            file.write_all_at(content, offset as u64)?;
        }
        Ok(region.unmap(offset..offset + bytes)?)
    }

    /// Drops the pages of all of the part, which is mapped.
    pub fn drop_pages(&self, at: usize) -> io::Result<()> {
        if let Some(region) = &self.field.region {
            return Ok(region.advise(self.offset..self.offset + PART, Advice::DontNeed)?);
        }
        // SAFETY: a mapping of this part's, whose content is not needed.
        let done = unsafe { libc::madvise(at as *mut _, PART, libc::MADV_DONTNEED) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Brings all pages of what is mapped.
    pub fn populate(&self, from: usize, at: usize, bytes: usize) -> io::Result<()> {
        if let Some(region) = &self.field.region {
            let offset = self.offset + from;
            return Ok(region.populate(offset..offset + bytes)?);
        }
        // SAFETY: a mapping of this part's.
        let done = unsafe { libc::madvise(at as *mut _, bytes, libc::MADV_POPULATE_WRITE) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes a byte of the page at `at + offset` and looks at another, which was not written.
    pub fn touch(&self, at: usize, offset: usize) -> io::Result<()> {
        // SAFETY: mapped for writing, and this thread's alone.
        let found = unsafe {
            ((at + offset) as *mut u8).write_volatile(1);
            ((at + offset + 8) as *const u8).read_volatile()
        };
        let expected = if self.field.file.is_some() { byte_of((self.offset + offset) / PAGE) } else { 0 };
        if found == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("{found} where {expected} is expected, at {offset:#x}")))
    }
}
