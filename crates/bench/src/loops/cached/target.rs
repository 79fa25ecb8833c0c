//! A file and its mappings: the kernel's, or the library's.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use clap::ValueEnum;
use faultless::file::{File, Mapping, MappingMut};

use super::{RECORD, Record};

/// Whose cache a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The kernel's page cache.
    Kernel,
    /// The same with its best advice: all is populated by one call, or allocated beforehand.
    Advised,
    /// The kernel's tmpfs, mounted with huge pages always.
    Tmpfs,
    /// The library's, by pages of 4 KiB.
    Small,
    /// The library's, by pages of 2 MiB.
    Huge,
}

impl Way {
    /// In the order of the tables.
    pub const ALL: [Self; 5] = [Self::Kernel, Self::Advised, Self::Tmpfs, Self::Small, Self::Huge];

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Advised => "kernel, best advice",
            Self::Tmpfs => "tmpfs, huge pages",
            Self::Small => "faultless, small pages",
            Self::Huge => "faultless, huge pages",
        }
    }

    /// Whether it is the library's.
    pub fn is_library(self) -> bool {
        matches!(self, Self::Small | Self::Huge)
    }
}

/// What is done to records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A file that is open.
pub(super) enum Target {
    Kernel { file: fs::File, is_advised: bool },
    Library(File),
}

impl Target {
    /// A new file; of `bytes` zeroes, where it is to be mapped.
    pub(super) fn create(way: Way, path: &Path, bytes: usize, is_mapped: bool) -> io::Result<Self> {
        let _ = fs::remove_file(path);
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        if is_mapped {
            file.set_len(bytes as u64)?;
        }
        Ok(match way {
            Way::Small => Self::Library(File::with_small_pages(&file)?),
            Way::Huge => Self::Library(File::new(&file)?),
            _ => {
                let is_advised = way == Way::Advised;
                if is_advised && !is_mapped {
                    // SAFETY: a call on a descriptor. Where the file system cannot, writes allocate.
                    let _ =
                        unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, bytes as i64) };
                }
                Self::Kernel { file, is_advised }
            }
        })
    }

    pub(super) fn map(&self, bytes: usize, access: Access) -> io::Result<View> {
        match self {
            Self::Kernel { file, is_advised } => View::of_kernel(file, bytes, access, *is_advised),
            Self::Library(file) if access == Access::Read => Ok(View::Library(file.map(0, bytes)?)),
            Self::Library(file) => Ok(View::LibraryMut(file.map_mut(0, bytes)?)),
        }
    }

    pub(super) fn read(&self, number: usize, record: &mut Record) -> io::Result<()> {
        let offset = (number * RECORD) as u64;
        let read = match self {
            Self::Kernel { file, .. } => file.read_at(record, offset)?,
            Self::Library(file) => file.read_at(record, offset)?,
        };
        if read == RECORD { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn write(&self, number: usize, record: &Record) -> io::Result<()> {
        let offset = (number * RECORD) as u64;
        let written = match self {
            Self::Kernel { file, .. } => file.write_at(record, offset)?,
            Self::Library(file) => file.write_at(record, offset)?,
        };
        if written == RECORD { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Waits until all is on the device.
    pub(super) fn flush(&self) -> io::Result<()> {
        match self {
            Self::Kernel { file, .. } => file.sync_data(),
            Self::Library(file) => file.sync(),
        }
    }

    /// Ends without writing back what is dirty: the file goes, too.
    pub(super) fn abandon(self) {
        if let Self::Library(file) = self {
            std::mem::forget(file);
        }
    }
}

/// A mapping of a file.
pub(super) enum View {
    Kernel { at: *mut u8, bytes: usize },
    Library(Mapping),
    LibraryMut(MappingMut),
}

impl View {
    fn of_kernel(file: &fs::File, bytes: usize, access: Access, is_advised: bool) -> io::Result<Self> {
        let (rights, advice) = match access {
            Access::Read => (libc::PROT_READ, libc::MADV_POPULATE_READ),
            Access::Write => (libc::PROT_READ | libc::PROT_WRITE, libc::MADV_POPULATE_WRITE),
        };
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let view = Self::Kernel { at: at.cast(), bytes };
        // SAFETY: advice about the mapping just made, which changes no contents.
        if is_advised && unsafe { libc::madvise(at, bytes, advice) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(view)
    }

    fn at(&mut self) -> *mut u8 {
        match self {
            Self::Kernel { at, .. } => *at,
            Self::Library(mapping) => mapping.as_ptr().cast_mut(),
            Self::LibraryMut(mapping) => mapping.as_mut_ptr(),
        }
    }

    /// The place of a record.
    pub(super) fn record(&mut self, number: usize) -> *mut Record {
        // SAFETY: the caller's records are those of the file, all of which is mapped.
        unsafe { self.at().add(number * RECORD).cast() }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Self::Kernel { at, bytes } = self {
            // SAFETY: the mapping, which is not used any more.
            unsafe { libc::munmap((*at).cast(), *bytes) };
        }
    }
}
