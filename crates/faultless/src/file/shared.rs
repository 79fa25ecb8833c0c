//! What all handles and mappings of a file share: its cache, what is mapped, and who may change its length.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use faultless_base::Errno;
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::sys::watch::OnWrite;
use faultless_mm::cache::Use;
use faultless_mm::cache::backing::Backing;
use faultless_mm::cache::flush::Flush;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::file::flush;
use crate::file::group::CacheGroup;
use crate::file::paged::{Paged, Serving};
use crate::process::masked::Masked;
use crate::region::check_devices;

/// What all handles and mappings of a file share.
pub(super) struct Shared {
    pub(super) engine: Arc<Paged>,
    /// Who brings pages of lazy mappings; comes with the first of them.
    serving: Mutex<Option<Serving>>,
    /// Held by calls that use bytes of the file; alone by those that take bytes away.
    users: RwLock<()>,
    /// What is mapped. Changed with `users`, but where a mapping ends.
    mapped: Mutex<Vec<Mapped>>,
    /// Whether something in memory is older than the file. Changed by who has the file alone.
    is_stale: AtomicBool,
    /// Whether faults of private mappings use the cache.
    is_copied: AtomicBool,
    /// Held by who writes the file back and has no handle.
    pub(super) turn: Arc<Mutex<()>>,
    /// Handles. They come and go with the list of all files locked; who has one may make more.
    pub(super) handles: AtomicUsize,
    /// How many there have been.
    pub(super) came: AtomicUsize,
}

/// Why there is no snapshot.
const UNTOLD: &str = "writes to lazy mappings of this file are not told: allow snapshots before the first of them";

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

impl Shared {
    pub(super) fn new(engine: Arc<Paged>) -> Self {
        Self {
            engine,
            serving: Mutex::default(),
            users: RwLock::default(),
            mapped: Mutex::default(),
            is_stale: AtomicBool::new(false),
            is_copied: AtomicBool::new(false),
            turn: Arc::default(),
            handles: AtomicUsize::new(0),
            came: AtomicUsize::new(0),
        }
    }

    /// Whether it is this process's: a forked child has none of its memory.
    pub(super) fn here(&self) -> io::Result<&Self> {
        match (self.engine.is_here(), self.engine.has_failed()) {
            (true, false) => Ok(self),
            (true, true) => {
                let why = "the file was closed: pages of it could not be brought any more";
                Err(io::Error::new(io::ErrorKind::BrokenPipe, why))
            }
            (false, _) => {
                Err(io::Error::other("the file was opened by the parent of this process: open it after the fork"))
            }
        }
    }

    /// Holds signals back where they could meet a lock of this thread.
    fn masked(&self) -> Option<Masked> {
        let is_touched = self.engine.memory().watched_with().is_some()
            || self.is_copied.load(Ordering::Acquire)
            || self.bounces();
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

    pub(super) fn mapped(&self) -> MutexGuard<'_, Vec<Mapped>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a part, all of which is inside the file. The caller uses the file.
    pub(super) fn map(&self, part: Mapped) -> io::Result<()> {
        let kernel = |error: Errno| io::Error::from_raw_os_error(error.number());
        match part.comes {
            Comes::Now => {
                self.engine.hold(part.offset, part.bytes).map_err(kernel)?;
                if part.used == Use::Write
                    && let Err(error) = self.engine.preserve_range(part.offset, part.bytes)
                {
                    self.engine.release(part.offset, part.bytes);
                    return Err(kernel(error));
                }
            }
            Comes::Lazily => {
                if part.used == Use::Write && self.engine.has_snapshots() && !self.allows_snapshots() {
                    return Err(Error::NoSnapshots(UNTOLD).into());
                }
                self.serve(Delivery::Best)?;
                self.engine.watch(part.offset, part.bytes, part.used).map_err(kernel)?;
            }
            Comes::Copied => {}
        }
        self.mapped().push(part);
        if self.is_mapped_lazily_for_writing() {
            flush::note_mapping();
        }
        Ok(())
    }

    /// Whether a fault may need the room of pages that a call on the file keeps.
    pub(super) fn bounces(&self) -> bool {
        self.engine.backing().in_group().is_some() && CacheGroup::has_faults()
    }

    fn note_faults(&self) {
        if self.engine.backing().in_group().is_some() {
            CacheGroup::note_faults();
        }
    }

    /// From now on faults of private mappings may use the cache. Calls that began before are over.
    pub(super) fn copy_in_faults(&self) {
        self.is_copied.store(true, Ordering::Release);
        self.note_faults();
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
                self.note_faults();
                let by = if delivery == Delivery::Best { Delivery::Thread } else { delivery };
                *serving = Some(Serving::start(&self.engine, by, OnWrite::Notes)?);
                Ok(())
            }
        }
    }

    /// Has writes to lazy mappings wait for snapshots from now on. Before the first of them.
    pub(super) fn allow_snapshots(&self) -> io::Result<()> {
        let mut serving = self.serving();
        if serving.is_none() {
            *serving = Some(Serving::start(&self.engine, Delivery::Thread, OnWrite::Tells)?);
        }
        drop(serving);
        if self.allows_snapshots() { Ok(()) } else { Err(Error::NoSnapshots(UNTOLD).into()) }
    }

    /// Whether writes to lazy mappings wait for snapshots.
    pub(super) fn allows_snapshots(&self) -> bool {
        self.engine.memory().tells_writes()
    }

    /// Takes a snapshot of a part, or of all; its number, where it begins, and its length.
    pub(super) fn snapshot(&self, part: Option<(usize, usize)>) -> io::Result<(usize, usize, usize)> {
        let _alone = self.alone();
        // Only now no other call changes the length.
        let (offset, bytes) = part.unwrap_or((0, self.engine.length()));
        let is_mapped = |comes| self.mapped().iter().any(|part| (part.used, part.comes) == (Use::Write, comes));
        if is_mapped(Comes::Now) {
            let why = "a mapping for writing that holds its pages is in the way: map lazily, or end it before";
            return Err(Error::NoSnapshots(why).into());
        }
        if is_mapped(Comes::Lazily) {
            if !self.allows_snapshots() {
                return Err(Error::NoSnapshots(UNTOLD).into());
            }
            check_devices()?;
        }
        let taken = self.engine.snapshot(offset, bytes).map(|id| (id, offset, bytes));
        taken.map_err(|refused| Error::from(refused).into())
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
        drop(mapped);
        if part.used == Use::Write && self.engine.backing().is_written_back() {
            flush::note_write();
        }
    }

    pub(super) fn is_mapped_lazily_for_writing(&self) -> bool {
        self.engine.backing().is_written_back()
            && self.mapped().iter().any(|part| (part.comes, part.used) == (Comes::Lazily, Use::Write))
    }

    /// Writes some of what is known to be dirty, for the background; how many bytes.
    pub(super) fn flush(&self, which: Flush) -> Result<usize, Errno> {
        let _using = self.using();
        if self.here().is_err() {
            return Ok(0);
        }
        self.engine.flush(which)
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

    /// Another process, or this one by other calls, may have changed the file. Then dirty pages are written, and all pages
    /// are dropped. Those that are mapped stay until this is called without that mapping.
    pub(super) fn notice_changes(&self, file: &File) -> io::Result<()> {
        // It is not this library that changes it meanwhile.
        let _alone = self.alone();
        let kernel = |error: Errno| io::Error::from_raw_os_error(error.number());
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        // Before anything is dropped: snapshots keep what is in memory.
        self.notice_end(length).map_err(kernel)?;
        let is_changed = self.engine.backing().local().is_some_and(|local| !local.note_change());
        if is_changed {
            // The file may have other bytes now.
            self.engine.preserve_present(0);
            self.engine.end_stream();
        }
        if is_changed || self.is_stale.load(Ordering::Relaxed) {
            // Dirty pages can go then. After an error they stay, and the error is kept.
            let _ = self.engine.sync(0, self.engine.length());
            // Behind its end, mappings have what was in memory.
            let bytes = if self.is_mapped_behind(length) { length } else { usize::MAX };
            self.is_stale.store(self.engine.evict_stale(bytes, is_changed), Ordering::Relaxed);
        }
        self.engine.extend(length).map_err(kernel)
    }

    /// The file ends there, perhaps by others. Mappings keep what they have.
    fn notice_end(&self, length: usize) -> Result<(), Errno> {
        let is_cut = length < self.engine.length() && !self.is_mapped_behind(length);
        if is_cut { self.engine.notice_end(length) } else { Ok(()) }
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
        // Others may have made it shorter, also than it is to be.
        let local = self.engine.backing().local();
        if let Some(local) = local {
            self.notice_end(local.length()?)?;
        }
        self.engine.truncate(length)?;
        self.engine.grow(length)?;
        local.map_or(Ok(()), |local| local.grow(length as u64).map(drop))
    }

    /// Has a part read as zero; `false`: it is not inside the file.
    pub(super) fn punch(&self, offset: usize, bytes: usize) -> Result<bool, Errno> {
        let _alone = self.alone();
        if offset.checked_add(bytes).is_none_or(|end| end > self.engine.length()) {
            return Ok(false);
        }
        let punched = self.engine.punch(offset, bytes).map(|()| true);
        // The ends of it may be zeroes that are to be written.
        flush::note_write();
        punched
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // No mapping is left that could fault. The threads have references to the cache.
        let _ = self.serving().take();
    }
}
