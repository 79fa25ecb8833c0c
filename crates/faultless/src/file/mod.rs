//! Files, mapped by huge pages of the process's own.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("data");
//! # std::fs::write(&path, vec![7; 5000])?;
//! use faultless::file::File;
//!
//! let file = File::open_writable(&path)?;
//! file.write_at(b"bytes", 4096)?;
//! let mapping = file.map(0, 5000)?;
//! let mut bytes = [0; 5];
//! mapping.read(4096, &mut bytes)?;
//! assert_eq!(&bytes, b"bytes");
//! file.sync()?; // now they are durable
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The page `docs/files.md` says what is lost when a process is killed before a sync, what other processes see, and
//! what is not there yet.

mod advise;
mod backing;
mod begun;
mod caches;
mod changed;
mod copies;
mod flush;
mod fork;
mod group;
mod local;
mod mapping;
mod opened;
mod paged;
mod private;
mod progress;
mod queue;
mod read_ahead;
mod shared;
mod snapshot;
mod source;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::Errno;
use faultless_base::sys::pressure;
use faultless_mm::cache::Use;
use faultless_mm::cache::evict::To;
use faultless_page::gauges::Gauge;

pub use crate::delivery::Delivery;
pub use crate::file::advise::Advice;
pub use crate::file::backing::Backing;
use crate::file::backing::Custom;
use crate::file::caches::Handle;
pub use crate::file::fork::{Fork, before_fork};
pub use crate::file::group::CacheGroup;
use crate::file::local::LocalFile;
pub use crate::file::mapping::{Mapping, MappingMut};
use crate::file::read_ahead::ReadAhead;
use crate::file::shared::{Comes, Shared};
use crate::process::limits;
pub use crate::region::Snapshot;

/// A file whose pages are cached in this process. All handles of a file share one cache, and any number of threads may
/// use a handle.
pub struct File {
    handle: Handle,
    is_writable: bool,
    /// Errors of writing that this handle has told of.
    told: AtomicUsize,
    ahead: ReadAhead,
}

fn error_of(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.number())
}

/// Where a part begins that has to be inside `length`.
fn inside(length: usize, offset: u64, bytes: usize) -> io::Result<usize> {
    let start =
        usize::try_from(offset).ok().filter(|start| start.checked_add(bytes).is_some_and(|end| end <= length));
    start.ok_or_else(not_inside)
}

fn not_inside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the part is not inside the file")
}

/// Writes back what has changed in all files of this process, and waits until it is durable: for the end of a program
/// whose files are not dropped. The first error; the others are written all the same.
pub fn sync_all() -> io::Result<()> {
    caches::sync_all()
}

/// How much memory of that kind this process has now, over all files, in bytes.
pub fn memory(gauge: Gauge) -> u64 {
    crate::page::gauges().get(gauge)
}

/// Whether a mapping of this many bytes takes no more than half of the memory that is available now, and of the
/// addresses that the process may have. A larger one can be made, but may drive out everything else.
pub fn fits(bytes: usize) -> bool {
    let addresses = limits::memory().map_or(usize::MAX, |limit| limit / 8);
    bytes <= (pressure::available() / 2).min(addresses)
}

impl File {
    /// Opens a file for reading.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(&std::fs::File::open(path)?)
    }

    /// Opens a file for reading and writing.
    pub fn open_writable(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(&std::fs::File::options().read(true).write(true).open(path)?)
    }

    /// The cache of an open file, for what that was opened for. A name is not needed.
    pub fn new(file: &std::fs::File) -> io::Result<Self> {
        Ok(Self::of(caches::of_file(file, true, None)?, local::is_writable(file)))
    }

    /// The same by pages of 4 KiB: for files of which a few bytes here and there are read. Where the file has a cache
    /// already it stays as it is.
    pub fn with_small_pages(file: &std::fs::File) -> io::Result<Self> {
        Ok(Self::of(caches::of_file(file, false, None)?, local::is_writable(file)))
    }

    /// A file whose bytes come from elsewhere.
    pub fn with_backing(backing: impl Backing + 'static) -> io::Result<Self> {
        let (custom, length) = Custom::new(Box::new(backing))?;
        Ok(Self::of(caches::of_backing(custom, length, None)?, true))
    }

    /// Whether a file is open here, by any handle or mapping.
    pub fn is_cached(file: &std::fs::File) -> io::Result<bool> {
        caches::is_cached(file)
    }

    fn of(handle: Handle, is_writable: bool) -> Self {
        let told = AtomicUsize::new(handle.get().engine.failures().count);
        Self { handle, is_writable, told, ahead: ReadAhead::default() }
    }

    fn shared(&self) -> io::Result<&Shared> {
        self.handle.get().here()
    }

    fn writable(&self) -> io::Result<&Shared> {
        if !self.is_writable {
            return Err(error_of(Errno::EBADF));
        }
        self.shared()
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Its length in bytes, as this process knows it.
    pub fn len(&self) -> u64 {
        self.handle.get().engine.length() as u64
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of it that are in memory.
    pub fn present(&self) -> usize {
        self.handle.get().here().map_or(0, |shared| shared.engine.present())
    }

    /// An estimate of the memory in which it would find what is used of it: what is in memory, and what had gone from
    /// files meanwhile when its pages came back.
    pub fn working_set(&self) -> usize {
        self.handle.get().here().map_or(0, |shared| shared.engine.working_set())
    }

    /// Whether it is read past the kernel's page cache. Elsewhere its pages are in memory twice, for a time.
    pub fn is_direct(&self) -> bool {
        self.handle.get().engine.backing().local().is_some_and(LocalFile::is_direct)
    }

    /// Reads from `offset` on. How many bytes: fewer than asked for at the end of the file, or before bytes that
    /// cannot be read.
    ///
    /// Reads that follow each other bring what comes next, too, in windows that double up to 32 MiB, as far as the knob
    /// `budget` has room.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let shared = self.shared()?;
        let (_using, engine) = (shared.using(), &shared.engine);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = engine.length().saturating_sub(offset).min(buffer.len());
        let to = buffer.as_mut_ptr() as usize;
        let mut done = 0;
        while done < bytes {
            let at = offset + done;
            let n = self.ahead.before_read(engine, at, bytes - done);
            // SAFETY: bytes of the buffer.
            match unsafe { shared.copy_out(at, n, to + done) } {
                Ok(read) => done += read,
                Err(error) if done == 0 => return Err(error_of(error)),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Brings parts of the file into memory, in their order, with many requests to the device at a time. Each has to
    /// be inside the file. How many bytes of them are in memory then: fewer than asked for where the knob `budget` has
    /// no room for more. Read those, and call it again with the rest. What no mapping holds may go at any time.
    ///
    /// An error if some bytes cannot be read. The others are brought all the same.
    pub fn prefetch(&self, parts: &[Range<u64>]) -> io::Result<usize> {
        let shared = self.shared()?;
        let (_using, engine) = (shared.using(), &shared.engine);
        let within = |part: &Range<u64>| {
            let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
            inside(engine.length(), part.start, bytes).map(|start| (start, bytes))
        };
        let parts = parts.iter().map(within).collect::<io::Result<Vec<_>>>()?;
        engine.prefetch(parts.iter().copied()).map_err(error_of)
    }

    /// Writes at `offset`. The file grows as far as it takes. How many bytes: fewer than asked for only before bytes
    /// that cannot be had.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let shared = self.writable()?;
        let (_using, engine) = (shared.using(), &shared.engine);
        let start = usize::try_from(offset).map_err(|_| error_of(Errno::EFBIG))?;
        let zeroes = engine.grow_for(start, bytes.len()).map_err(error_of)?;
        let write = |at, n, f: &mut dyn FnMut(faultless_base::Span)| engine.write_with(at, n, zeroes, f);
        // SAFETY: the caller's bytes.
        let written = unsafe { shared.copy_in(start, bytes.len(), bytes.as_ptr() as usize, write) };
        flush::note_write();
        written.map_err(error_of)
    }

    /// Makes it at least `length` bytes long, by zeroes; at once, for other processes too.
    pub fn grow(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| error_of(Errno::EFBIG))?;
        let shared = self.writable()?;
        let _using = shared.using();
        shared.engine.grow(length).map_err(error_of)
    }

    /// Makes it `length` bytes long: by zeroes where it becomes longer. At once, for other processes too, and durable
    /// after a sync. It waits for calls on the file that other threads are in. `EBUSY` while a mapping reaches behind
    /// the new end.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| error_of(Errno::EFBIG))?;
        self.writable()?.set_length(length).map_err(error_of)
    }

    /// Has a part, which is inside the file, read as zero. Whole pages of 4 KiB of it take no room in the file any
    /// more, where the file system can do that; at once, and durable after a sync. Mappings of the part have the
    /// zeroes, too. It waits for calls on the file that other threads are in.
    pub fn punch_hole(&self, part: Range<u64>) -> io::Result<()> {
        let shared = self.writable()?;
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let start = usize::try_from(part.start).unwrap_or(usize::MAX);
        match shared.punch(start, bytes).map_err(error_of)? {
            true => Ok(()),
            false => Err(not_inside()),
        }
    }

    /// Brings a part into memory, and keeps it there, for reading. It has to be inside the file.
    pub fn map(&self, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::new(self.handle.clone(), offset, length, Use::Read, Comes::Now)
    }

    /// The same for reading and writing.
    pub fn map_mut(&self, offset: u64, length: usize) -> io::Result<MappingMut> {
        self.writable()?;
        Ok(MappingMut::new(Mapping::new(self.handle.clone(), offset, length, Use::Write, Comes::Now)?))
    }

    /// Maps a part, which is inside the file and may be larger than memory, for reading. Its pages come when they are
    /// touched, and count as kept under the knob `budget`: those that were not used for longest go.
    ///
    /// A page that cannot be read is a SIGBUS, with a message. The error is that no userfaultfd can be had that notes
    /// writes (Linux 6.8), or no thread.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![7; 50_000])?;
    /// let file = faultless::file::File::open_writable(&path)?;
    /// let mut mapping = match file.map_lazy_mut(0, 50_000) {
    ///     Ok(mapping) => mapping,
    ///     Err(_) => file.map_mut(0, 50_000)?, // in a container that has no userfaultfd
    /// };
    /// // SAFETY: no other part of this program uses the file.
    /// let bytes = unsafe { mapping.as_mut_slice() };
    /// bytes[40_000] += 1; // a page comes
    /// file.sync()?; // that page alone is written
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn map_lazy(&self, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::new(self.handle.clone(), offset, length, Use::Read, Comes::Lazily)
    }

    /// The same for reading and writing. A sync writes the pages that have changed, and no others.
    pub fn map_lazy_mut(&self, offset: u64, length: usize) -> io::Result<MappingMut> {
        self.writable()?;
        Ok(MappingMut::new(Mapping::new(self.handle.clone(), offset, length, Use::Write, Comes::Lazily)?))
    }

    /// Maps a part, which is inside the file and may be larger than memory, for reading and for changes that stay in
    /// this mapping. No other one sees them, and no sync writes them. The file need not be open for writing.
    ///
    /// Its pages come when they are touched, by thread, as copies of what the file's cache has then. Which page that is
    /// later changed by others is seen here is not defined. Pages with changes stay in memory, beside the knob
    /// `budget`; others go beyond it. Errors are those of [`File::map_lazy`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![7; 50_000])?;
    /// let file = faultless::file::File::open(&path)?;
    /// if let Ok(mapping) = file.map_private(0, 50_000) {
    ///     mapping.write(40_000, b"mine")?;
    ///     let mut byte = [0];
    ///     file.read_at(&mut byte, 40_000)?;
    ///     assert_eq!(byte, [7]);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn map_private(&self, offset: u64, length: usize) -> io::Result<MappingMut> {
        self.shared()?;
        private::map(&self.handle, offset, length)
    }

    /// How faults of lazy mappings of this file are delivered: by thread, unless this says by signal before the first
    /// of them. By signal each thread that faults brings its page itself. Then no thread may block SIGBUS while it uses
    /// a mapping, and a system call that is given a page that is missing fails with `EFAULT`.
    pub fn deliver(&self, delivery: Delivery) -> io::Result<()> {
        self.shared()?.serve(delivery)
    }

    /// Writes all that has changed, and waits until it is durable. An error that another call met since the last time
    /// is told here, once. What could not be written stays in memory, and the next call tries again.
    pub fn sync(&self) -> io::Result<()> {
        self.sync_range(0..u64::MAX)
    }

    /// The same for a part, or as much of it as is inside the file. What is dirty in the same 2 MiB is written, too.
    pub fn sync_range(&self, part: Range<u64>) -> io::Result<()> {
        let shared = self.writable()?;
        let start = usize::try_from(part.start).unwrap_or(usize::MAX);
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let synced = shared.sync(start, bytes);
        let failures = shared.engine.failures();
        let told = self.told.swap(failures.count, Ordering::Relaxed);
        let missed = failures.last.filter(|_| failures.count != told);
        synced.and_then(|()| missed.map_or(Ok(()), Err)).map_err(error_of)
    }

    /// Gives its memory back, but for what is mapped or not yet written. How many bytes.
    pub fn drop_cache(&self) -> usize {
        self.drop_range(0..u64::MAX)
    }

    /// The same for a part: each 2 MiB that lie inside it, also the last ones of the file.
    pub fn drop_range(&self, part: Range<u64>) -> usize {
        let start = usize::try_from(part.start).unwrap_or(usize::MAX);
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let dropped = |shared: &Shared| {
            let _using = shared.using();
            shared.engine.evict_range(start, bytes, To::Store)
        };
        self.shared().map_or(0, dropped) * faultless_base::SLOT
    }
}
