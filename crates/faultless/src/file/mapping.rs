//! Parts of a file that stay in memory, at addresses of their own.

use std::io;
use std::sync::Arc;

use faultless_base::sys::file_memory;
use faultless_base::{Errno, Span};
use faultless_mm::cache::Use;

use crate::file::caches::Handle;
use crate::file::flush;
use crate::file::shared::{Comes, Mapped, Shared};
use crate::file::{error_of, inside};

/// A part of a file in memory. All mappings of a file are the same memory. A forked child does not have it: there an
/// access is a SIGSEGV.
///
/// - By [`super::File::map`] all of it is there until this is dropped. An access to it takes no page fault but the
///   first that maps each 2 MiB. It cannot fail.
/// - By [`super::File::map_lazy`] pages come when they are touched, and may go at any time. A page that cannot be read
///   is a SIGBUS, or an error of [`Mapping::read`].
pub struct Mapping {
    handle: Handle,
    part: Mapped,
    /// Of a private mapping the part that it copies, which ends after it.
    under: Under,
}

/// The part of a file that a private mapping copies.
pub(super) type Under = Option<Arc<Mapping>>;

impl Mapping {
    pub(super) fn new(handle: Handle, offset: u64, bytes: usize, used: Use, comes: Comes) -> io::Result<Self> {
        let shared = handle.get().here()?;
        let using = shared.using();
        let part = Mapped { offset: inside(shared.engine.length(), offset, bytes)?, bytes, used, comes };
        shared.map(part)?;
        drop(using);
        Ok(Self { handle, part, under: None })
    }

    /// The same; it copies `under`.
    pub(super) fn over(mut self, under: Mapping) -> Self {
        self.under = Some(Arc::new(under));
        self
    }

    pub(super) fn under(&self) -> Under {
        self.under.clone()
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Where it begins in the cache.
    pub(super) fn offset(&self) -> usize {
        self.part.offset
    }

    /// Where it is.
    pub fn as_ptr(&self) -> *const u8 {
        self.handle.get().engine.address(self.part.offset) as *const u8
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.part.bytes
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.part.bytes == 0
    }

    /// Copies bytes from `at` on out of it. An error where they are not all inside.
    pub fn read(&self, at: usize, buffer: &mut [u8]) -> io::Result<()> {
        let to = buffer.as_mut_ptr() as usize;
        self.each(at, buffer.len(), |shared, at, bytes, done| match self.part.comes {
            Comes::Now => {
                // SAFETY: bytes of this mapping, in memory until it ends, and as many of the caller's.
                unsafe { file_memory::copy(shared.engine.address(at), to, bytes) };
                Ok(bytes)
            }
            // SAFETY: bytes of the caller's buffer.
            _ => unsafe { shared.copy_out(at, bytes, to + done) },
        })
    }

    /// Calls `copy` with a place in the file, how many bytes are left from there on, and how many are done, until all
    /// bytes of a part of the mapping are.
    fn each(
        &self,
        at: usize,
        bytes: usize,
        copy: impl Fn(&Shared, usize, usize, usize) -> Result<usize, Errno>,
    ) -> io::Result<()> {
        let shared = self.handle.get().here()?;
        let offset = self.part.offset + inside(self.part.bytes, at as u64, bytes)?;
        let _using = self.is_lazy().then(|| shared.using());
        let mut done = 0;
        while done < bytes {
            done += copy(shared, offset + done, bytes - done, done).map_err(error_of)?;
        }
        Ok(())
    }

    /// Where a byte of it is.
    pub(super) fn place(&self, at: usize) -> io::Result<(&Shared, usize)> {
        Ok((self.handle.get().here()?, self.part.offset + at))
    }

    /// Whether pages come when they are touched.
    pub fn is_lazy(&self) -> bool {
        self.part.comes == Comes::Lazily
    }

    /// Whether a system call may be given any memory of it. Not so where pages come when they are touched and the
    /// kernel does not deliver its own faults: there it fails with `EFAULT` on a page that is missing.
    pub fn serves_system_calls(&self) -> bool {
        !self.is_lazy() || self.handle.get().serves_system_calls()
    }

    /// Its bytes.
    ///
    /// # Safety
    /// While the slice is used no thread writes to this part of the file, by [`super::File::write_at`] or another
    /// mapping.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: in memory for as long as this value, and by contract unchanged.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.part.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Ok(shared) = self.handle.get().here() {
            shared.unmap(self.part);
        }
    }
}

/// The same for reading and writing. What is written there is in the file after [`MappingMut::sync`],
/// [`super::File::sync`] or the end of the last handle of the file.
pub struct MappingMut(Mapping);

impl MappingMut {
    pub(super) fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }

    /// Where it is.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }

    /// Copies bytes into it, from `at` on. An error where they do not all go inside.
    pub fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let from = bytes.as_ptr() as usize;
        let written = self.0.each(at, bytes.len(), |shared, at, n, done| {
            if self.0.part.comes == Comes::Now {
                // SAFETY: as in `read`. Others may read and write.
                unsafe { file_memory::copy(from, shared.engine.address(at), n) };
                return Ok(n);
            }
            let write = |at, n, f: &mut dyn FnMut(Span)| shared.engine.with(at, n, Use::Write, f);
            // SAFETY: the caller's bytes.
            unsafe { shared.copy_in(at, n, from + done, write) }
        });
        if self.0.is_lazy() {
            flush::note_write();
        }
        written
    }

    /// Its bytes.
    ///
    /// # Safety
    /// While the slice is used no thread reads or writes this part of the file by other ways.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: in memory for as long as this value, and by contract the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.0.part.bytes) }
    }

    /// Writes it to the file, and waits until it is durable. All of it, because it is not known which pages have
    /// changed; of a lazy mapping what has changed.
    pub fn sync(&self) -> io::Result<()> {
        self.0.handle.get().here()?.sync(self.0.part.offset, self.0.part.bytes).map_err(error_of)
    }
}

impl std::ops::Deref for MappingMut {
    type Target = Mapping;
    fn deref(&self) -> &Mapping {
        &self.0
    }
}
