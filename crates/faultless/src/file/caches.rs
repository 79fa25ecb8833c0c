//! The caches of this process: one for each file, however often it is opened, so that all see the same bytes.
//!
//! The list is locked while a file is put there or taken away, and while handles come and go. The last handle of a file
//! writes it back first, and the file stays in the list meanwhile. So who opens a file again finds either its cache, or
//! all of its bytes in the file. Reclaim tries the lock, and does without.
//!
//! A backing of the program's own may open and end other files. So it is neither called nor dropped with the lock held.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use faultless_base::sys::file_memory::UserMemory;
use faultless_base::{Errno, SLOT, Span};
use faultless_mm::cache::evict::To;
use faultless_mm::cache::{Cache, Process, Use};
use faultless_mm::frame::store::{Reclaim, Store};

use crate::background::owner;
use crate::file::backing::Custom;
use crate::file::group::CacheGroup;
use crate::file::local::{self, LocalFile};
use crate::file::paged::Paged;
use crate::file::private::Private;
use crate::file::shared::{Comes, Shared};
use crate::file::source::{Kind, Source};
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

/// All files that are open, and perhaps some that are not any more.
pub(super) fn all() -> Vec<Weak<Shared>> {
    caches().iter().map(|entry| Weak::clone(&entry.shared)).collect()
}

/// Calls `f` with a file that is still open, if no other thread does so with this file. Its last handle waits for the
/// end of this, and drops it then.
pub(super) fn in_turn<T>(file: &Weak<Shared>, f: impl FnOnce(&Shared) -> T) -> Option<T> {
    loop {
        let caches = caches();
        let entry = caches.iter().find(|entry| Weak::ptr_eq(&entry.shared, file))?;
        let shared = entry.shared.upgrade()?;
        let turn = Arc::clone(&shared.turn);
        if let Some(has_turn) = try_turn(&turn) {
            drop(caches);
            let done = f(&shared);
            drop(shared);
            drop(has_turn);
            return Some(done);
        }
        drop(shared);
        // The holder of the cache may need the list.
        drop(caches);
        wait_for_turn(&turn);
    }
}

fn try_turn(turn: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match turn.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn wait_for_turn(turn: &Mutex<()>) {
    drop(turn.lock().unwrap_or_else(PoisonError::into_inner));
}

fn caches() -> MutexGuard<'static, Vec<Entry>> {
    CACHES.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cache of an open file.
pub(super) fn of_file(file: &File, is_huge: bool, group: Option<&CacheGroup>) -> io::Result<Handle> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "only regular files have a cache"));
    }
    let id = (about.dev(), about.ino());
    let mut caches = caches();
    let known = caches.iter().find(|entry| entry.id == Some(id)).and_then(|entry| entry.shared.upgrade());
    if let Some(shared) = known {
        let handle = Handle::new(shared);
        let source = handle.get().engine.backing();
        let is_same = group.is_none_or(|group| source.in_group().is_some_and(|other| group.is(other)));
        let allowed = match is_same {
            true => source.local().map_or(Ok(()), |local| local.allow_writes(file)),
            false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        };
        // Its end takes the lock.
        drop(caches);
        allowed?;
        handle.get().here()?.notice_changes(file)?;
        return Ok(handle);
    }
    let local = LocalFile::new(file, is_huge)?;
    let shared = make(Source::new(Kind::Local(local), group), about.len(), local::is_writable(file))?;
    Ok(add(&mut caches, Some(id), shared))
}

/// Whether a file has a cache.
pub(super) fn is_cached(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    let id = Some((about.dev(), about.ino()));
    let caches = CACHES.known().map(|caches| caches.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(caches.is_some_and(|caches| caches.iter().any(|entry| entry.id == id && entry.shared.strong_count() > 0)))
}

/// The cache of a backing of the program's own.
pub(super) fn of_backing(custom: Custom, length: u64, group: Option<&CacheGroup>) -> io::Result<Handle> {
    let shared = make(Source::new(Kind::Custom(custom), group), length, true)?;
    Ok(add(&mut caches(), None, shared))
}

/// The cache of a private mapping.
pub(super) fn of_private(private: Private, bytes: usize) -> io::Result<Handle> {
    let shared = make(Source::new(Kind::Private(private), None), bytes as u64, false)?;
    Ok(add(&mut caches(), None, shared))
}

fn add(caches: &mut Vec<Entry>, id: Option<Id>, shared: Arc<Shared>) -> Handle {
    caches.push(Entry { id, shared: Arc::downgrade(&shared) });
    Handle::new(shared)
}

fn make(source: Source, length: u64, grows: bool) -> io::Result<Arc<Shared>> {
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
    if let Some(group) = engine.backing().in_group() {
        group.add(&engine);
    }
    Ok(Arc::new(Shared::new(engine)))
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

impl Handle {
    /// One more. The caller has one, or the list, and the file is there.
    fn new(shared: Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Relaxed);
        shared.came.fetch_add(1, Relaxed);
        Self(Some(shared))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(self.0.as_ref().expect("it is there until it is dropped")))
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
        let (mut result, mut written_with) = (Ok(()), None);
        loop {
            let mut caches = caches();
            if shared.handles.load(Relaxed) > 1 {
                shared.handles.fetch_sub(1, Relaxed);
                // Not the last reference.
                drop(shared);
                return;
            }
            let has_turn = try_turn(&shared.turn).is_some();
            let came = Some(shared.came.load(Relaxed));
            // What a sync leaves dirty that had the file for itself is not there to be written.
            if has_turn && (result.is_err() || written_with == came || !shared.engine.is_dirty()) {
                caches.retain(|entry| entry.shared.as_ptr() != Arc::as_ptr(&shared));
                break;
            }
            // Backings may need the list. A thread that opens the file meanwhile has this cache.
            drop(caches);
            match has_turn {
                true => {
                    written_with = came;
                    result = shared.sync(0, shared.engine.length());
                }
                false => wait_for_turn(&shared.turn),
            }
        }
        if let Err(error) = result {
            message::file_is_not_written(error);
        }
        // The last reference: no thread has a turn, or finds it in the list.
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
    let sync = |shared: &Shared| {
        let is_written = shared.mapped().iter().any(|part| part.used == Use::Write);
        if is_written || shared.engine.is_dirty() { shared.sync(0, shared.engine.length()) } else { Ok(()) }
    };
    let files = if CACHES.known().is_some() { all() } else { Vec::new() };
    // A file that has ended by now was written by its last handle.
    let results = files.iter().filter_map(|file| in_turn(file, sync));
    // All of them, also behind one that fails.
    let mut result = Ok(());
    results.for_each(|synced| result = result.and(synced));
    result.map_err(|error| io::Error::from_raw_os_error(error.number()))
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
