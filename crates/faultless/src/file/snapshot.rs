//! Snapshots of files: what a part of one held at a moment, while it goes on changing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use faultless_base::SLOT;

use crate::background::Background;
use crate::error::Error;
use crate::file::caches::Handle;
use crate::file::mapping::{Mapping, Under};
use crate::file::{File, error_of, inside};
use crate::process::bell::Bell;
use crate::process::masked::Masked;
use crate::region::{Moment, Room, Save};

/// What a file, or a part of it, held when the snapshot was taken: also where that was not in memory.
///
/// Any thread may read it, at any time. It keeps its file open here. Dropping it, and all clones of it, frees what no
/// other snapshot needs. A forked child cannot read it.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// # std::fs::write(&path, vec![7; 50_000])?;
/// let file = faultless::file::File::open_writable(&path)?;
/// let snapshot = file.snapshot()?;
/// file.write_at(b"new", 40_000)?;
/// let mut bytes = [0; 3];
/// snapshot.read_at(40_000, &mut bytes)?;
/// assert_eq!(bytes, [7; 3]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot(Arc<Taken>);

struct Taken {
    handle: Handle,
    id: usize,
    /// Its first byte in the file.
    start: usize,
    length: usize,
    bell: Arc<Bell>,
    /// What a private mapping copies.
    _under: Under,
}

impl File {
    /// Has writes to lazy mappings of this file wait until snapshots have their pages, so that snapshots may be taken
    /// while there are such mappings. Before the first lazy mapping. The first write to a page takes a message to a
    /// thread then; and again after each sync, and after each snapshot. Holes of the file take memory when they are
    /// read through a mapping for writing.
    ///
    /// [`Error::NoSnapshots`], as an [`io::Error`]: a lazy mapping came before, or the kernel does not deliver its own
    /// faults.
    pub fn allow_snapshots(&self) -> io::Result<()> {
        self.shared()?.allow_snapshots()
    }

    /// Takes a snapshot of all of it. It takes no time for any page, but for those that lazy mappings for writing have:
    /// the kernel protects these.
    ///
    /// With such mappings it needs [`File::allow_snapshots`]. There must be no mapping by [`File::map_mut`]: its writes
    /// are not known. One that is made later copies what it maps first. It waits for calls on the file that other
    /// threads are in. Buffers that are registered with io_uring are refused: a device may write there unnoticed.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        Snapshot::take(&self.handle, 0, self.len() as usize, None)
    }
}

impl Mapping {
    /// Takes a snapshot of what it maps, as [`File::snapshot`] does. That of a private mapping has its own changes, which
    /// needs [`File::allow_snapshots`] before it is mapped. Pages that are not in memory of a private mapping come from
    /// the file as it is when they are read, as in the mapping itself.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        Snapshot::take(self.handle(), self.offset(), self.len(), self.under())
    }
}

impl Snapshot {
    fn take(handle: &Handle, start: usize, length: usize, under: Under) -> io::Result<Self> {
        let id = handle.get().here()?.snapshot(start, length)?;
        let (handle, bell) = (handle.clone(), Arc::default());
        Ok(Self(Arc::new(Taken { handle, id, start, length, bell, _under: under })))
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Always false: a snapshot has at least one byte. (Clippy asks for it beside `len`.)
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// How many bytes of copies it has: what was written to since, as far as no newer snapshot has it.
    pub fn held(&self) -> usize {
        self.0.handle.get().engine.snapshot_held(self.0.id)
    }

    /// Reads bytes from `offset` on, into all of `buffer`. An error where they are not all inside, or cannot be read.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        inside(self.len(), offset as u64, buffer.len())?;
        // The bytes go to memory of our own first, because the buffer may be memory of the file.
        let mut room = Room::new(buffer.len().clamp(1, SLOT))?;
        let mut at = offset;
        for piece in buffer.chunks_mut(SLOT) {
            let part = &mut room.bytes()[..piece.len()];
            self.read_apart(at, part)?;
            piece.copy_from_slice(part);
            at += piece.len();
        }
        Ok(())
    }

    /// The same into memory that is no file's.
    fn read_apart(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let shared = self.0.handle.get().here()?;
        let _using = shared.using();
        shared.engine.read_snapshot(self.0.id, self.0.start + offset, buffer).map_err(error_of)
    }

    /// Writes it to a file in the background, as [`Save::start`] does with snapshots of regions.
    pub fn save(&self, save: &Save, path: &Path) -> Result<Background, Error> {
        save.start_of(Arc::new(self.clone()), path)
    }
}

impl Moment for Snapshot {
    fn bytes(&self) -> usize {
        self.len()
    }
    fn check(&self) -> Result<(), Error> {
        match self.0.handle.get().here() {
            Ok(_) => Ok(()),
            Err(_) if self.0.handle.get().engine.is_here() => Err(Error::Closed),
            Err(_) => Err(Error::Forked),
        }
    }
    fn bell(&self) -> Result<Arc<Bell>, Error> {
        self.check().map(|()| self.0.bell.clone())
    }
    fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error> {
        self.check()?;
        self.read_apart(offset, buffer).map_err(|error| Error::Kernel(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let engine = &self.handle.get().engine;
        if engine.is_here() {
            let _masked = Masked::new();
            engine.drop_snapshot(self.id);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} bytes of a file, from {})", self.0.length, self.0.start)
    }
}
