//! Parts of a file that stay in memory, at addresses of their own.

use std::io;

use faultless_base::sys::file_memory;
use faultless_mm::cache::Use;

use crate::file::caches::{Handle, Mapped};
use crate::file::{error_of, inside};

/// A part of a file in memory. All of it is there: an access to it takes no page fault but the first that maps each
/// 2 MiB, and cannot fail. All mappings of a file are the same memory.
///
/// It stays in memory until this is dropped. A forked child does not have it: there an access is a SIGSEGV.
pub struct Mapping {
    handle: Handle,
    part: Mapped,
}

impl Mapping {
    pub(super) fn new(handle: Handle, offset: u64, bytes: usize, used: Use) -> io::Result<Self> {
        let shared = handle.get().here()?;
        let using = shared.using();
        let part = Mapped { offset: inside(shared.engine.length(), offset, bytes)?, bytes, used };
        shared.map(part).map_err(error_of)?;
        drop(using);
        Ok(Self { handle, part })
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
        self.handle.get().here()?;
        let at = inside(self.part.bytes, at as u64, buffer.len())?;
        // SAFETY: inside this mapping, which is in memory; as many bytes of the caller's.
        unsafe { file_memory::copy(self.as_ptr() as usize + at, buffer.as_mut_ptr() as usize, buffer.len()) };
        Ok(())
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
        self.0.handle.get().here()?;
        let at = inside(self.0.part.bytes, at as u64, bytes.len())?;
        // SAFETY: inside this mapping, which is in memory; as many bytes of the caller's. Others may read and write.
        unsafe { file_memory::copy(bytes.as_ptr() as usize, self.0.as_ptr() as usize + at, bytes.len()) };
        Ok(())
    }

    /// Its bytes.
    ///
    /// # Safety
    /// While the slice is used no thread reads or writes this part of the file by other ways.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: in memory for as long as this value, and by contract the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.0.part.bytes) }
    }

    /// Writes it to the file, and waits until it is durable. All of it: which pages have changed is not known.
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
