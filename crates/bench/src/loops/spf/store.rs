//! Threads that load a store each: a hash table of a library's, which grows, and its keys, all in memory of a region or
//! of the kernel. Tables are mapped and unmapped while other threads fault.
//!
//! The data are those of this machine: paths of files and their lengths.

use std::cell::{Cell, RefCell};
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::field::{PART, Part};
use super::{Reached, Spf, faults};
use crate::loops::memory::PAGE;

/// Where the data are, and how many keys a store has at most: what fits into a thread's part, tables of all sizes
/// included.
const ROOT: &str = "/usr";
const MOST: usize = 60_000;
/// Bytes of a piece that keys are put into, one after the other.
const TEXTS: usize = 512 << 10;

/// Memory of a part, a mapping for each piece. Addresses come again only in the next round.
struct Pieces<'a> {
    part: &'a Part<'a>,
    next: Cell<usize>,
    /// Offset, address and bytes of what is mapped.
    mapped: RefCell<Vec<(usize, usize, usize)>>,
    failed: Cell<Option<io::Error>>,
}

impl<'a> Pieces<'a> {
    fn new(part: &'a Part<'a>) -> Self {
        Self { part, next: Cell::new(0), mapped: RefCell::default(), failed: Cell::new(None) }
    }

    fn map(&self, bytes: usize) -> io::Result<usize> {
        let (from, bytes) = (self.next.get(), bytes.next_multiple_of(PAGE));
        if from + bytes > PART {
            return Err(io::Error::other(format!("a store needs more than {PART} bytes")));
        }
        let at = self.part.map(from, bytes)?;
        self.next.set(from + bytes);
        self.mapped.borrow_mut().push((from, at, bytes));
        Ok(at)
    }

    fn unmap(&self, at: usize) -> io::Result<()> {
        let mut mapped = self.mapped.borrow_mut();
        let place = mapped.iter().position(|piece| piece.1 == at);
        let (from, at, bytes) = mapped.swap_remove(place.ok_or_else(|| io::Error::other("no such piece"))?);
        self.part.unmap(from, at, bytes)
    }

    /// Why memory was not to be had, or given back.
    fn error(&self) -> io::Error {
        self.failed.take().unwrap_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }
}

// SAFETY: each block is a mapping of its own, which stays until it is given back; pages are aligned enough for a table.
unsafe impl Allocator for &Pieces<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let mapped =
            if layout.align() > PAGE { Err(io::ErrorKind::InvalidInput.into()) } else { self.map(layout.size()) };
        let at = mapped.map_err(|error| {
            self.failed.set(Some(error));
            AllocError
        })?;
        let start = NonNull::new(at as *mut u8).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, _layout: Layout) {
        if let Err(error) = self.unmap(at.as_ptr() as usize) {
            self.failed.set(Some(error));
        }
    }
}

/// A key in memory of the store's, and its value.
struct Entry {
    key: &'static [u8],
    value: u64,
}

/// Runs it.
pub fn run(what: &Spf) -> io::Result<Reached> {
    let data = data(ROOT)?;
    faults::beside(what, |part, _, _| load(part, &data))
}

/// Loads a store, looks for all of it, and drops it: how many keys it had.
fn load(part: &Part<'_>, data: &[(Vec<u8>, u64)]) -> io::Result<u64> {
    let pieces = Pieces::new(part);
    let hasher = DefaultHashBuilder::default();
    let hash = |key: &[u8]| hasher.hash_one(key);
    let mut texts = Vec::new();
    let mut used = TEXTS;
    let mut table: HashTable<Entry, &Pieces<'_>> = HashTable::new_in(&pieces);
    for (key, value) in data {
        if used + key.len() > TEXTS {
            texts.push(pieces.map(TEXTS)?);
            used = 0;
        }
        let at = texts[texts.len() - 1] + used;
        used += key.len();
        // SAFETY: inside a piece that stays until the table is dropped, and written once, before anything refers to it.
        let key = unsafe {
            (at as *mut u8).copy_from_nonoverlapping(key.as_ptr(), key.len());
            std::slice::from_raw_parts(at as *const u8, key.len())
        };
        table.try_reserve(1, |entry| hash(entry.key)).map_err(|_| pieces.error())?;
        table.insert_unique(hash(key), Entry { key, value: *value }, |entry| hash(entry.key));
    }
    for (key, value) in data {
        let found = table.find(hash(key), |entry| entry.key == key).map(|entry| entry.value);
        if found != Some(*value) {
            return Err(io::Error::other(format!("{}: {found:?} instead of {value}", key.escape_ascii())));
        }
    }
    drop(table);
    texts.into_iter().try_for_each(|at| pieces.unmap(at))?;
    pieces.failed.take().map_or(Ok(data.len() as u64), Err)
}

/// The paths of files below a directory and their lengths, each once: as many as a store may have, in order.
fn data(root: &str) -> io::Result<Vec<(Vec<u8>, u64)>> {
    let mut directories = vec![std::path::PathBuf::from(root)];
    let mut all = Vec::new();
    while let Some(directory) = directories.pop()
        && all.len() < MOST
    {
        // One that may not be read has nothing for us.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let mut entries = entries.filter_map(Result::ok).collect::<Vec<_>>();
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let Ok(found) = entry.metadata() else { continue };
            match found.is_dir() {
                true => directories.push(entry.path()),
                false => all.push((entry.path().into_os_string().into_encoded_bytes(), found.len())),
            }
        }
    }
    all.truncate(MOST);
    if all.is_empty() { Err(io::Error::other(format!("no file below {root}"))) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::super::{Beside, By, Way, Work};
    use super::*;

    #[test]
    fn a_store_has_what_was_loaded_and_leaves_nothing() {
        let what = Spf {
            way: Way::Kernel,
            work: Work::Store,
            beside: Beside::Nobody,
            by: By::Signal,
            threads: 1,
            seconds: 0.0,
            window: 1,
            timed: false,
        };
        let field = super::super::field::Field::new(&what, 1).unwrap();
        let part = field.part(0);
        let data: Vec<_> = (0..5000u64).map(|i| (format!("key {i}").into_bytes(), i)).collect();
        for _ in 0..3 {
            assert_eq!(load(&part, &data).unwrap(), 5000);
        }
        // A store that does not fit is an error, and not an abort.
        let large: Vec<_> = (0..200u64).map(|i| (vec![i as u8; 400 << 10], i)).collect();
        assert!(load(&part, &large).unwrap_err().to_string().contains("needs more than"));
    }
}
