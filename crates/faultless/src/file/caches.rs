//! The caches of this process: one for each file, however often it is opened, so that all see the same bytes.
//!
//! The list is locked while a file is opened, and while its last handle ends. So who opens a file again finds either
//! its cache, or all of its bytes in the file. Reclaim tries the lock, and does without.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use faultless_base::sys::file_memory::UserMemory;
use faultless_base::{Errno, SLOT, Span};
use faultless_mm::cache::backing::{Backing, Reads};
use faultless_mm::cache::evict::To;
use faultless_mm::cache::{Cache, Use};
use faultless_mm::frame::store::{Reclaim, Store};

use crate::background::owner;
use crate::delivery::Delivery;
use crate::error::Error;
use crate::file::backing::Custom;
use crate::file::local::{self, LocalFile};
use crate::file::paged::{Paged, Serving};
use crate::file::private::Private;
use crate::page::page;
use crate::process::masked::Masked;
use crate::process::message;
use crate::process::owner::OfProcess;

/// Addresses for a file that is opened for writing, where there are as many.
const GROWS_TO: usize = 64 << 30;
/// The same behind the end of a file that is opened for reading: a writer may come later.
const GROWS_BY: usize = 1 << 30;

/// All kinds of backings.
pub(super) enum Source {
    Local(LocalFile),
    Custom(Custom),
    Private(Private),
}

impl Source {
    fn engine(&self) -> &dyn Backing {
        match self {
            Self::Local(local) => local,
            Self::Custom(custom) => custom,
            Self::Private(private) => private,
        }
    }
}

impl Backing for Source {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        self.engine().read(offset, to)
    }
    fn read_many(&self, reads: &mut dyn Reads) {
        self.engine().read_many(reads);
    }
    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        self.engine().write(offset, from)
    }
    fn sync(&self) -> Result<(), Errno> {
        self.engine().sync()
    }
    fn grow(&self, length: u64) -> Result<u64, Errno> {
        self.engine().grow(length)
    }
    fn truncate(&self, length: u64) -> Result<(), Errno> {
        self.engine().truncate(length)
    }
    fn punch(&self, offset: u64, bytes: usize) -> Result<bool, Errno> {
        self.engine().punch(offset, bytes)
    }
    fn is_hole(&self, offset: u64, bytes: usize) -> bool {
        self.engine().is_hole(offset, bytes)
    }
    fn is_huge(&self) -> bool {
        self.engine().is_huge()
    }
    fn is_written_back(&self) -> bool {
        self.engine().is_written_back()
    }
}

/// What all handles and mappings of a file share.
pub(super) struct Shared {
    pub(super) engine: Arc<Paged>,
    /// Who brings pages of lazy mappings; comes with the first of them.
    serving: Mutex<Option<Serving>>,
    /// Held by calls that use bytes of the file; alone by those that take bytes away.
    users: RwLock<()>,
    /// What is mapped. Changed with `users`, but where a mapping ends.
    mapped: Mutex<Vec<Mapped>>,
    /// Whether faults of private mappings use the cache.
    is_copied: AtomicBool,
}

/// A part of a file that is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) used: Use,
    pub(super) comes: Comes,
}

/// When the pages of a mapping come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comes {
    /// With it.
    Now,
    /// When they are touched.
    Lazily,
    /// Another cache copies them, when it needs them.
    Copied,
}

impl Mapped {
    /// Whether it may change bytes of which no call tells, nor the kernel.
    fn is_soiled(&self) -> bool {
        self.used == Use::Write && self.comes == Comes::Now
    }
}

/// While this lives no bytes of a file go. Where pages come when they are touched, signals are held back: a handler of
/// the program's that touched one would wait for its own thread.
pub(super) struct Using<G> {
    _guard: G,
    _masked: Option<Masked>,
}

/// Which file it is: device and inode.
type Id = (u64, u64);

struct Entry {
    id: Option<Id>,
    shared: Weak<Shared>,
}

static CACHES: OfProcess<Mutex<Vec<Entry>>> = OfProcess::new();

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
    let (counters, knobs) = (owner::counters(), &page().knobs);
    let cache = Cache::new(UserMemory::new(), source, length, most, store, counters, knobs).map_err(kernel)?;
    let engine = Arc::new(Paged::new(cache).ok_or_else(|| kernel(Errno::ENOMEM))?);
    let shared = Arc::new(Shared {
        engine,
        serving: Mutex::default(),
        users: RwLock::default(),
        mapped: Mutex::default(),
        is_copied: AtomicBool::new(false),
    });
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

impl Shared {
    /// Whether it is this process's: a forked child has none of its memory.
    pub(super) fn here(&self) -> io::Result<&Self> {
        match (self.engine.is_here(), self.engine.has_failed()) {
            (true, false) => Ok(self),
            (true, true) => {
                Err(io::Error::other("the file was closed: pages of it could not be brought any more"))
            }
            (false, _) => {
                Err(io::Error::other("the file was opened by the parent of this process: open it after the fork"))
            }
        }
    }

    /// Holds signals back where they could meet a lock of this thread.
    fn masked(&self) -> Option<Masked> {
        let is_touched = self.engine.memory().watched_with().is_some() || self.is_copied.load(Ordering::Acquire);
        is_touched.then(Masked::new)
    }

    /// Until this is dropped no bytes of the file go.
    pub(super) fn using(&self) -> Using<RwLockReadGuard<'_, ()>> {
        let masked = self.masked();
        Using { _guard: self.users.read().unwrap_or_else(PoisonError::into_inner), _masked: masked }
    }

    fn alone(&self) -> Using<RwLockWriteGuard<'_, ()>> {
        let masked = self.masked();
        Using { _guard: self.users.write().unwrap_or_else(PoisonError::into_inner), _masked: masked }
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<Mapped>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a part, all of which is inside the file. The caller uses the file.
    pub(super) fn map(&self, part: Mapped) -> io::Result<()> {
        let kernel = |error: Errno| io::Error::from_raw_os_error(error.number());
        match part.comes {
            Comes::Now => self.engine.hold(part.offset, part.bytes).map_err(kernel)?,
            Comes::Lazily => {
                self.serve(Delivery::Best)?;
                self.engine.watch(part.offset, part.bytes, part.used).map_err(kernel)?;
            }
            Comes::Copied => {}
        }
        self.mapped().push(part);
        Ok(())
    }

    /// From now on faults of private mappings may use the cache. Calls that began before are over.
    pub(super) fn copy_in_faults(&self) {
        self.is_copied.store(true, Ordering::Release);
        drop(self.alone());
    }

    fn serving(&self) -> MutexGuard<'_, Option<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has pages be brought when they are touched. By signal or by thread, whatever it is, with [`Delivery::Best`].
    pub(super) fn serve(&self, delivery: Delivery) -> io::Result<()> {
        let mut serving = self.serving();
        match &*serving {
            Some(serving) if delivery == Delivery::Best || delivery == serving.delivery => Ok(()),
            Some(_) => Err(Error::Choice("faults of this file are delivered by other means already").into()),
            None => {
                let by = if delivery == Delivery::Best { Delivery::Thread } else { delivery };
                *serving = Some(Serving::start(&self.engine, by)?);
                Ok(())
            }
        }
    }

    /// Whether a system call may be given memory of a lazy mapping that was not touched yet.
    pub(super) fn serves_system_calls(&self) -> bool {
        self.serving().as_ref().is_none_or(Serving::serves_system_calls)
    }

    /// Ends that. What was written there is dirty.
    pub(super) fn unmap(&self, part: Mapped) {
        let _masked = self.masked();
        match (part.comes, part.used) {
            (Comes::Now, Use::Write) => self.engine.soil(part.offset, part.bytes),
            (Comes::Lazily, Use::Write) => self.engine.note_changes(part.offset, part.bytes),
            _ => {}
        }
        if part.comes == Comes::Now {
            self.engine.release(part.offset, part.bytes);
        }
        let mut mapped = self.mapped();
        if let Some(i) = mapped.iter().position(|other| *other == part) {
            mapped.swap_remove(i);
        }
    }

    /// Writes back. Parts that are mapped for writing may have changed: no call has told.
    pub(super) fn sync(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let _using = self.using();
        let end = offset.saturating_add(bytes).min(self.engine.length());
        for part in self.mapped().iter().filter(|part| part.is_soiled()) {
            let (from, to) = (part.offset.max(offset), (part.offset + part.bytes).min(end));
            if from < to {
                self.engine.soil(from, to - from);
            }
        }
        self.engine.sync(offset, end.saturating_sub(offset))
    }

    /// Another process, or this one by other calls, may have changed the file: what is in memory of it is dropped then,
    /// but for what is mapped or dirty.
    fn notice_changes(&self, file: &File) -> io::Result<()> {
        // It is not this library that changes it meanwhile.
        let _alone = self.alone();
        if let Source::Local(local) = self.engine.backing()
            && !local.note_change()
        {
            self.engine.evict_range(0, usize::MAX, To::Store);
        }
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let noticed = match length >= self.engine.length() {
            true => self.engine.extend(length),
            // Mappings keep what they have.
            false if self.is_mapped_behind(length) => Ok(()),
            false => self.engine.truncate(length),
        };
        noticed.map_err(|error| io::Error::from_raw_os_error(error.number()))
    }

    fn is_mapped_behind(&self, length: usize) -> bool {
        self.mapped().iter().any(|part| part.offset + part.bytes > length)
    }

    /// Makes the file longer or shorter. EBUSY: a mapping reaches behind the new end.
    pub(super) fn set_length(&self, length: usize) -> Result<(), Errno> {
        let _alone = self.alone();
        if self.is_mapped_behind(length) {
            return Err(Errno::new(libc::EBUSY));
        }
        self.engine.truncate(length)?;
        self.engine.grow(length)
    }

    /// Has a part read as zero; `false`: it is not inside the file.
    pub(super) fn punch(&self, offset: usize, bytes: usize) -> Result<bool, Errno> {
        let _alone = self.alone();
        if offset.checked_add(bytes).is_none_or(|end| end > self.engine.length()) {
            return Ok(false);
        }
        self.engine.punch(offset, bytes).map(|()| true)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // No mapping is left that could fault. The threads have references to the cache.
        let _ = self.serving().take();
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
