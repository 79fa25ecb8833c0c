//! Private mappings: what is changed there stays in memory, and no other mapping sees it.
//!
//! Such a mapping has a cache of its own, of which the backing is the cache of the file. A page comes when it is touched,
//! by a copy of what the file's cache has then. A page that was not changed may go, and is copied again. One that was
//! changed stays until the mapping ends, as memory of the program's own.
//!
//! A fault of it uses the file's cache, whatever the program's thread is about. So it takes no lock that a call on the file
//! holds while it copies, and such calls hold signals back (`Shared::copy_in_faults`).

use std::io;
use std::sync::Arc;

use faultless_base::sys::file_memory;
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::cache::Use;
use faultless_mm::cache::backing::Backing;

use crate::file::caches::{self, Handle};
use crate::file::mapping::{Mapping, MappingMut};
use crate::file::paged::Paged;
use crate::file::shared::Comes;

/// A part of another file's cache as a backing.
pub(super) struct Private {
    of: Arc<Paged>,
    /// Where it begins there.
    base: usize,
}

impl Backing for Private {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        let from = self.base + offset as usize;
        let bytes = self.of.length().saturating_sub(from).min(to.bytes());
        let (mut at, mut done) = (to.start, 0);
        while done < bytes {
            done += self.of.with(from + done, bytes - done, Use::Read, |part| {
                // SAFETY: bytes of the file, in memory for now; together they are no more than the caller's.
                unsafe { file_memory::copy(part.start, at, part.bytes()) };
                at += part.bytes();
            })?;
        }
        Ok(done)
    }

    fn write(&self, _offset: u64, _from: Span) -> Result<(), Errno> {
        Err(Errno::EBADF)
    }

    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn grow(&self, _length: u64) -> Result<u64, Errno> {
        Err(Errno::EBADF)
    }

    fn truncate(&self, _length: u64) -> Result<(), Errno> {
        Err(Errno::EBADF)
    }

    fn is_huge(&self) -> bool {
        false
    }

    fn is_written_back(&self) -> bool {
        false
    }
}

/// Maps a part of a file so.
pub(super) fn map(handle: &Handle, offset: u64, bytes: usize) -> io::Result<MappingMut> {
    handle.get().copy_in_faults();
    // The file keeps the part, and is there for as long as its copy.
    let under = Mapping::new(handle.clone(), offset, bytes, Use::Read, Comes::Copied)?;
    let start = offset as usize;
    let base = start / PAGE * PAGE;
    let private = Private { of: handle.get().engine.clone(), base };
    let copy = caches::of_private(private, start - base + bytes)?;
    if handle.get().allows_snapshots() {
        copy.get().allow_snapshots()?;
    }
    let mapping = Mapping::new(copy, (start - base) as u64, bytes, Use::Write, Comes::Lazily)?;
    Ok(MappingMut::new(mapping.over(under)))
}
