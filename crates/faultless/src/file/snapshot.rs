//! Snapshots of files: what a part of one held at a moment, while it goes on changing.

use std::io;
use std::sync::Arc;

use crate::error::Error;
use crate::file::File;
use crate::file::caches::Handle;
use crate::file::mapping::{Mapping, Under};
use crate::process::bell::Bell;
use crate::process::masked::Masked;
use crate::region::{Moment, Snapshot};

/// A snapshot of a file's cache.
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
    ///
    /// The snapshot keeps the file open here. A forked child cannot read it.
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
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        take(&self.handle, None, None)
    }
}

impl Mapping {
    /// Takes a snapshot of what it maps, as [`File::snapshot`] does. That of a private mapping has its own changes, which
    /// needs [`File::allow_snapshots`] before it is mapped. Pages that are not in memory of a private mapping come from
    /// the file as it is when they are read, as in the mapping itself.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        take(self.handle(), Some((self.offset(), self.len())), self.under())
    }
}

/// Of a part, or of all that the file has at that moment.
fn take(handle: &Handle, part: Option<(usize, usize)>, under: Under) -> io::Result<Snapshot> {
    let (id, start, length) = handle.get().here()?.snapshot(part)?;
    let (handle, bell) = (handle.clone(), Arc::default());
    Ok(Snapshot::new(Taken { handle, id, start, length, bell, _under: under }))
}

impl Moment for Taken {
    fn bytes(&self) -> usize {
        self.length
    }
    fn held(&self) -> usize {
        self.handle.get().engine.snapshot_held(self.id)
    }
    fn check(&self) -> Result<(), Error> {
        let engine = &self.handle.get().engine;
        match (engine.is_here(), engine.has_failed()) {
            (true, false) => Ok(()),
            (true, true) => Err(Error::Closed),
            (false, _) => Err(Error::Forked),
        }
    }
    fn bell(&self) -> Result<Arc<Bell>, Error> {
        self.check().map(|()| self.bell.clone())
    }
    fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error> {
        self.check()?;
        let shared = self.handle.get();
        let _using = shared.using();
        let read = shared.engine.read_snapshot(self.id, self.start + offset, buffer);
        read.map_err(|error| Error::Kernel(error.number()))
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
