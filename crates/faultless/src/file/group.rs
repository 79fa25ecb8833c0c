//! Files that share a hard budget of memory.
//!
//! The engine takes room, and decides what goes (`mm/src/cache/group.rs`). This has the list of the files. Its lock is
//! held while one slot of some file goes, which waits for nothing.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faultless_base::{Errno, SLOT};
use faultless_mm::cache::evict::To;
use faultless_mm::cache::group::{Budget, Group};

use crate::file::backing::{Backing, Custom};
use crate::file::paged::Paged;
use crate::file::{File, caches, local};
use crate::process::owner::Owner;

/// Files whose pages in memory are together never more than a budget, hard.
///
/// A miss that finds no room lets pages of a file of the group go. Changed ones are written first. It waits for those
/// that are in use for a moment. A mapping by [`File::map`] keeps its pages. One that would be more
/// than the budget is refused (`ENOMEM`), and so is a miss where mappings leave no room. The knob `budget` holds beside
/// it, for all files of the process.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// # std::fs::write(&path, vec![7; 3 << 20])?;
/// let group = faultless::file::CacheGroup::new(2 << 20)?;
/// let file = group.open(&path)?;
/// let mut bytes = vec![0; 3 << 20];
/// file.read_at(&mut bytes, 0)?;
/// assert!(group.used() <= 2 << 20);
/// assert!(file.map(0, 3 << 20).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct CacheGroup(Arc<Inner>);

struct Inner {
    budget: Budget,
    files: Mutex<Vec<Weak<Paged>>>,
    /// Which file is next to let pages go.
    hand: AtomicUsize,
    owner: Owner,
}

/// Whether a fault may need the room of pages in some group.
static HAS_FAULTS: AtomicBool = AtomicBool::new(false);

impl CacheGroup {
    /// A group with a budget of that many bytes. EINVAL: it is less than 2 MiB.
    pub fn new(bytes: usize) -> io::Result<Self> {
        if bytes < SLOT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the budget of a group is 2 MiB at least"));
        }
        Ok(Self(Arc::new(Inner {
            budget: Budget::new(bytes),
            files: Mutex::default(),
            hand: AtomicUsize::new(0),
            owner: Owner::here(),
        })))
    }

    /// Its budget, in bytes.
    pub fn budget(&self) -> usize {
        self.0.budget.bytes()
    }

    /// Bytes of it that are in use: pages in memory, and those that are coming.
    pub fn used(&self) -> usize {
        self.0.budget.used()
    }

    /// Bytes of it that mappings by [`File::map`] keep.
    pub fn mapped(&self) -> usize {
        self.0.budget.promised()
    }

    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.file(&std::fs::File::open(path)?)
    }

    /// Opens a file for reading and writing.
    pub fn open_writable(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.file(&std::fs::File::options().read(true).write(true).open(path)?)
    }

    /// The cache of an open file, as by [`File::new`]. `EBUSY`: it is open in this process outside of the group.
    pub fn file(&self, file: &std::fs::File) -> io::Result<File> {
        self.file_with(file, true)
    }

    /// The same by pages of 4 KiB, as by [`File::with_small_pages`].
    pub fn file_with_small_pages(&self, file: &std::fs::File) -> io::Result<File> {
        self.file_with(file, false)
    }

    /// A file whose bytes come from elsewhere, as by [`File::with_backing`].
    pub fn file_with_backing(&self, backing: impl Backing + 'static) -> io::Result<File> {
        let (custom, length) = Custom::new(Box::new(backing))?;
        Ok(File::of(caches::of_backing(custom, length, Some(self.here()?))?, true))
    }

    fn file_with(&self, file: &std::fs::File, is_huge: bool) -> io::Result<File> {
        Ok(File::of(caches::of_file(file, is_huge, Some(self.here()?))?, local::is_writable(file)))
    }

    fn here(&self) -> io::Result<&Self> {
        match self.0.owner.is_here() {
            true => Ok(self),
            false => {
                Err(io::Error::other("the group was made by the parent of this process: make it after the fork"))
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, Vec<Weak<Paged>>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Has a file's pages go when others need room.
    pub(super) fn add(&self, file: &Arc<Paged>) {
        let mut files = self.files();
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(file));
    }

    /// From now on a fault may need the room of pages in a group. So no thread may touch the program's memory while it
    /// keeps such pages from going.
    pub(super) fn note_faults() {
        HAS_FAULTS.store(true, Ordering::Release);
    }

    pub(super) fn has_faults() -> bool {
        HAS_FAULTS.load(Ordering::Acquire)
    }
}

impl Group for CacheGroup {
    fn budget(&self) -> &Budget {
        &self.0.budget
    }

    fn evict(&self) -> bool {
        let files = self.files();
        (0..files.len()).any(|_| {
            let next = self.0.hand.fetch_add(1, Ordering::Relaxed) % files.len();
            files[next].upgrade().is_some_and(|file| file.evict(1, To::Store) > 0)
        })
    }

    fn write_back(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for i in 0.. {
            let Some(file) = self.files().get(i).map(Weak::upgrade) else { break };
            let synced = file.filter(|file| file.is_dirty()).map_or(Ok(()), |file| file.sync(0, file.length()));
            result = result.and(synced);
        }
        result
    }
}
