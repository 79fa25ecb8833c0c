//! The caches of this process: one for each file, however often it is opened, so that all see the same bytes.
//!
//! The list is locked while a file is opened, and while its last handle ends. So who opens a file again finds either
//! its cache, or all of its bytes in the file. Reclaim tries the lock, and does without.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faultless_base::sys::file_memory::UserMemory;
use faultless_base::{Errno, SLOT, Span};
use faultless_mm::cache::evict::To;
use faultless_mm::cache::{Cache, Process, Use};
use faultless_mm::frame::store::{Reclaim, Store};

use crate::background::owner;
use crate::file::backing::Custom;
use crate::file::local::{self, LocalFile};
use crate::file::paged::Paged;
use crate::file::private::Private;
use crate::file::shared::{Comes, Shared};
use crate::file::source::Source;
use crate::page::{self, page};
use crate::process::message;
use crate::process::owner::OfProcess;

/// Addresses for a file that is opened for writing, where there are as many.
const GROWS_TO: usize = 64 << 30;
/// The same behind the end of a file that is opened for reading: a writer may come later.
const GROWS_BY: usize = 1 << 30;

/// Which file it is: device and inode.
type Id = (u64, u64);

struct Entry {
    id: Option<Id>,
    shared: Weak<Shared>,
}

static CACHES: OfProcess<Mutex<Vec<Entry>>> = OfProcess::new();

/// The list of all files that are open.
pub(super) struct Files(MutexGuard<'static, Vec<Entry>>);

/// No thread opens a file or ends its last handle while this is there.
pub(super) fn lock() -> Files {
    Files(caches())
}

/// All files that are open, and perhaps some that are not any more.
pub(super) fn all() -> Vec<Weak<Shared>> {
    let Files(caches) = lock();
    caches.iter().map(|entry| Weak::clone(&entry.shared)).collect()
}

fn caches() -> MutexGuard<'static, Vec<Entry>> {
    CACHES.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cache of an open file.
pub(super) fn of_file(file: &File, is_huge: bool) -> io::Result<Handle> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "only regular files have a cache"));
    }
    let id = (about.dev(), about.ino());
    let mut caches = caches();
    let known = caches.iter().find(|entry| entry.id == Some(id)).and_then(|entry| entry.shared.upgrade());
    if let Some(shared) = known {
        let handle = Handle(Some(shared));
        let allowed = match handle.get().engine.backing() {
            Source::Local(local) => local.allow_writes(file),
            Source::Custom(_) | Source::Private(_) => Ok(()),
        };
        // Its end takes the lock.
        drop(caches);
        allowed?;
        handle.get().here()?.notice_changes(file)?;
        return Ok(handle);
    }
    let local = LocalFile::new(file, is_huge)?;
    add(&mut caches, Some(id), Source::Local(local), about.len(), local::is_writable(file))
}

/// Whether a file has a cache.
pub(super) fn is_cached(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    let id = Some((about.dev(), about.ino()));
    let caches = CACHES.known().map(|caches| caches.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(caches.is_some_and(|caches| caches.iter().any(|entry| entry.id == id && entry.shared.strong_count() > 0)))
}

/// The cache of a backing of the program's own.
pub(super) fn of_backing(custom: Custom, length: u64) -> io::Result<Handle> {
    add(&mut caches(), None, Source::Custom(custom), length, true)
}

/// The cache of a private mapping.
pub(super) fn of_private(private: Private, bytes: usize) -> io::Result<Handle> {
    add(&mut caches(), None, Source::Private(private), bytes as u64, false)
}

fn add(caches: &mut Vec<Entry>, id: Option<Id>, source: Source, length: u64, grows: bool) -> io::Result<Handle> {
    let kernel = |error: Errno| io::Error::from_raw_os_error(error.number());
    let length = usize::try_from(length).map_err(|_| kernel(Errno::EFBIG))?;
    let frames = owner::frames().ok_or_else(|| kernel(Errno::ENOMEM))?;
    frames.reclaim_from(&Caches);
    owner::start();
    let most = most(length, grows);
    let store: &'static dyn Store = frames;
    let (counters, knobs, gauges) = (owner::counters(), &page().knobs, page::gauges());
    let process = Process { store, counters, knobs, gauges };
    let cache = Cache::new(UserMemory::new(), source, length, most, process).map_err(kernel)?;
    let engine = Arc::new(Paged::new(cache).ok_or_else(|| kernel(Errno::ENOMEM))?);
    let shared = Arc::new(Shared::new(engine));
    caches.retain(|entry| entry.shared.strong_count() > 0);
    caches.push(Entry { id, shared: Arc::downgrade(&shared) });
    Ok(Handle(Some(shared)))
}

/// How long a file may become: a part of the addresses, where these are limited.
fn most(length: usize, grows: bool) -> usize {
    let most = if grows { length.max(GROWS_TO) } else { length + GROWS_BY };
    match crate::process::limits::memory() {
        None => most,
        Some(limit) => length.max(most.min(limit / 8)),
    }
}

/// A reference to a cache. The last one writes back what is dirty.
pub(super) struct Handle(Option<Arc<Shared>>);

impl Handle {
    pub(super) fn get(&self) -> &Shared {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        if !shared.engine.is_here() {
            // Its addresses may be something else's in a forked child.
            std::mem::forget(shared);
            return;
        }
        // No other thread finds it in the list meanwhile.
        let _caches = caches();
        if Arc::strong_count(&shared) == 2 {
            // The other one may be the background's: it takes no more while the list is locked.
            drop(shared.flushing.lock().unwrap_or_else(PoisonError::into_inner));
        }
        if Arc::strong_count(&shared) == 1
            && shared.engine.is_dirty()
            && let Err(error) = shared.sync(0, shared.engine.length())
        {
            message::file_is_not_written(error);
        }
        drop(shared);
    }
}

/// Memory of a file, whose addresses stay the file's for as long as this value.
pub(super) struct InFile {
    _engine: Arc<Paged>,
    pub(super) spans: Vec<Span>,
}

/// The memory of all that is mapped, in whole slots.
pub(super) fn mapped() -> Vec<InFile> {
    let Some(caches) = CACHES.known() else { return Vec::new() };
    let caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
    let mut files = Vec::new();
    for entry in caches.iter() {
        let Some(shared) = entry.shared.upgrade() else { continue };
        // Of a slot that is watched a child would have zeroes where pages are missing.
        let has_all = |slot: &usize| !shared.engine.is_watched(slot * SLOT);
        let mut slots: Vec<usize> = Vec::new();
        for part in shared.mapped().iter().filter(|part| part.bytes > 0 && part.comes == Comes::Now) {
            slots.extend((part.offset / SLOT..(part.offset + part.bytes).div_ceil(SLOT)).filter(has_all));
        }
        slots.sort_unstable();
        slots.dedup();
        let spans = slots.iter().map(|slot| Span::new(shared.engine.address(slot * SLOT), SLOT)).collect();
        files.push(InFile { _engine: Arc::clone(&shared.engine), spans });
    }
    files
}

/// Writes back what is dirty in all files of this process, or may be; the first error.
pub(super) fn sync_all() -> io::Result<()> {
    let Some(caches) = CACHES.known() else { return Ok(()) };
    // The last handle of a file waits for this, so what is upgraded here is not the last reference.
    let caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = Ok(());
    for shared in caches.iter().filter_map(|entry| entry.shared.upgrade()) {
        let is_written = shared.mapped().iter().any(|part| part.used == Use::Write);
        if is_written || shared.engine.is_dirty() {
            let synced = shared.sync(0, shared.engine.length());
            result = result.and(synced.map_err(|error| io::Error::from_raw_os_error(error.number())));
        }
    }
    result
}

/// Memory of files, for the background thread.
struct Caches;

impl Reclaim for Caches {
    fn reclaim(&self, slots: usize) -> usize {
        let Some(caches) = CACHES.known().and_then(|caches| caches.try_lock().ok()) else { return 0 };
        let mut gone = 0;
        for shared in caches.iter().filter_map(|entry| entry.shared.upgrade()) {
            gone += shared.engine.evict(slots - gone, To::Kernel);
        }
        gone
    }
}
