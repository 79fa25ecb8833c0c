//! Snapshots of regions: what a part of one held at a moment, while it goes on changing.

use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};

use faultless_base::sys::raw;
use faultless_base::{PAGE, SLOT, Span};

use crate::delivery::Delivery;
use crate::delivery::handler_pool;
use crate::delivery::watchdog::Watched;
use crate::error::Error;
use crate::process::bell::Bell;
use crate::process::masked::Masked;
use crate::region::{Region, Serving, has_this_stack};
use crate::shared::Shared;

/// Bytes that are read by way of the stack.
const SMALL: usize = 8 << 10;

/// What a region, a file, or a part of one held when the snapshot was taken.
///
/// Any thread may read it, at any time. It ends with its region: then reading is [`Error::Ended`]. Of a file, it keeps
/// the file open. Dropping it, and all
/// clones of it, frees what no other snapshot needs.
///
/// ```no_run
/// use faultless::region::{Delivery, Region};
///
/// let mut region = Region::builder(64 << 20).delivery(Delivery::Thread).build()?;
/// region.as_mut_slice()?[5] = 1;
/// let snapshot = region.snapshot()?;
/// region.as_mut_slice()?[5] = 2;
/// let mut byte = [0];
/// snapshot.read_at(5, &mut byte)?;
/// assert_eq!(byte, [1]);
/// # Ok::<(), faultless::region::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot(Arc<dyn Moment>);

/// What some memory held at a moment.
pub(crate) trait Moment: Send + Sync {
    /// How many bytes it has.
    fn bytes(&self) -> usize;
    /// How many bytes of copies it has.
    fn held(&self) -> usize;
    /// Whether it can be read here and now.
    fn check(&self) -> Result<(), Error>;
    /// What rings when it cannot be read any more.
    fn bell(&self) -> Result<Arc<Bell>, Error>;
    /// Reads bytes of it into memory of the library's own.
    fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error>;
}

struct Taken {
    shared: Weak<Shared>,
    id: usize,
    /// Its first byte in the region.
    start: usize,
    length: usize,
}

impl Region {
    /// Takes a snapshot of all of it. That takes the kernel few calls, and no time for any page of ours.
    ///
    /// The region needs [`Delivery::Thread`] by which the kernel delivers its own faults, too
    /// ([`Region::serves_system_calls`]). It has neither a backing nor events. No device may write to its memory by
    /// itself (buffers registered with io_uring). An [`Error::NoSnapshots`] says what is missing. Nothing has changed
    /// then.
    ///
    /// Where `/proc` is not mounted the error is `ENOSYS`: it says which pages are there.
    ///
    /// While a snapshot lives, the program must not unmap, drop or move memory of the region by calls of its own.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.snapshot_of(0..self.length)
    }

    /// The same of a part, which begins at a multiple of 2 MiB, and ends at one or at the region's end.
    pub fn snapshot_of(&self, range: Range<usize>) -> Result<Snapshot, Error> {
        let end = if range.end == self.length { range.end.next_multiple_of(SLOT) } else { range.end };
        self.snapshot_of_slots(range.start..end, range.end - range.start.min(range.end))
    }

    /// The same of whole slots, of which the first bytes count.
    pub(crate) fn snapshot_of_slots(&self, range: Range<usize>, length: usize) -> Result<Snapshot, Error> {
        let (span, _masked) = self.enter_slots(range)?;
        self.check_snapshots(span)?;
        self.have_own_handler()?;
        let id = self.shared.memory.snapshot(span).map_err(|refused| self.shared.refused(refused))?;
        Ok(Snapshot::new(Taken { shared: Arc::downgrade(&self.shared), id, start: span.start, length }))
    }

    /// Whether each write is noticed, by threads and by system calls.
    fn check_snapshots(&self, span: Span) -> Result<(), Error> {
        let no = |why| Err(Error::NoSnapshots(why));
        match () {
            () if self.delivery != Delivery::Thread => {
                no("a snapshot needs thread delivery: only it notices all writes, also those of system calls")
            }
            () if !self.serves_system_calls => {
                no("the kernel does not deliver its own faults, so a snapshot would make system calls fail: \
                    `faultless doctor` says how to allow it")
            }
            () if self.attributes.backed => no("a region with a backing has no snapshots"),
            () if self.shared.has_events() => no("a region with events has no snapshots"),
            () if has_this_stack(span) => {
                no("this thread's stack lies in the region: let another thread take the snapshot")
            }
            () => check_devices(),
        }
    }

    /// Has a handler of its own serve it from now on. A shared handler may wait for a change of another region, and
    /// that change for its stack: memory of this region that was just protected.
    fn have_own_handler(&self) -> Result<(), Error> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*serving, Some(Serving::Shared(_))) {
            // For a moment both serve it.
            let own = Watched::start_with_handlers((*self.shared).clone(), None, handler_pool::PATIENCE)?;
            *serving = Some(Serving::Own(own));
        }
        Ok(())
    }
}

/// Whether all writes take the page tables: what is pinned for devices does not.
pub(crate) fn check_devices() -> Result<(), Error> {
    // It does not say which memory.
    match raw::status_number("VmPin") {
        Some(1..) => Err(Error::NoSnapshots(
            "a device may write to pinned memory of the process unnoticed: unregister its buffers before",
        )),
        _ => Ok(()),
    }
}

impl Snapshot {
    pub(crate) fn new(moment: impl Moment + 'static) -> Self {
        Self(Arc::new(moment))
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.bytes()
    }

    /// Always false: a snapshot has at least one byte. (Clippy asks for it beside `len`.)
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it can be read here and now.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// What rings when it cannot be read any more.
    pub(crate) fn bell(&self) -> Result<Arc<Bell>, Error> {
        self.0.bell()
    }

    /// Reads bytes from `offset` on, into all of `buffer`. [`Error::Rights`] where the program has closed memory of the
    /// region by a call of its own. [`Error::Kernel`] where bytes of a file cannot be read.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error> {
        if offset.checked_add(buffer.len()).is_none_or(|end| end > self.len()) {
            return Err(Error::Outside);
        }
        // The bytes go to memory of our own first, because the buffer may be memory of the region or file.
        if buffer.len() <= SMALL {
            let mut room = [0; SMALL];
            let part = &mut room[..buffer.len()];
            self.read(offset, part)?;
            buffer.copy_from_slice(part);
            return Ok(());
        }
        let mut room = Room::new(buffer.len().min(SLOT))?;
        let mut at = offset;
        for piece in buffer.chunks_mut(SLOT) {
            let part = &mut room.bytes()[..piece.len()];
            self.read(at, part)?;
            piece.copy_from_slice(part);
            at += piece.len();
        }
        Ok(())
    }

    /// The same into memory that is no region's, and no file's.
    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error> {
        self.0.read(offset, buffer)
    }

    /// How many bytes of copies it has: what was written to since, as far as no newer snapshot has it.
    pub fn held(&self) -> usize {
        self.0.held()
    }
}

impl Taken {
    fn shared(&self) -> Result<Arc<Shared>, Error> {
        let shared = self.shared.upgrade().filter(|shared| !shared.ends()).ok_or(Error::Ended)?;
        shared.check()?;
        Ok(shared)
    }
}

impl Moment for Taken {
    fn bytes(&self) -> usize {
        self.length
    }
    fn held(&self) -> usize {
        self.shared().map_or(0, |shared| shared.memory.snapshot_held(self.id))
    }
    fn check(&self) -> Result<(), Error> {
        self.shared().map(drop)
    }
    fn bell(&self) -> Result<Arc<Bell>, Error> {
        Ok(self.shared()?.bell.clone())
    }
    fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Error> {
        let shared = self.shared()?;
        let _masked = Masked::new();
        let read = shared.memory.read_snapshot(self.id, self.start + offset, buffer);
        // If service has ended meanwhile, what was read may be anything.
        shared.check()?;
        read.map_err(|refused| shared.refused(refused))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // In a child the memory is the parent's.
        if let Some(shared) = self.shared.upgrade().filter(|shared| shared.owner.is_here()) {
            let _masked = Masked::new();
            shared.memory.drop_snapshot(self.id);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} bytes)", self.len())
    }
}

/// Memory of our own, and no allocator's.
pub(crate) struct Room(usize, usize);

impl Room {
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        raw::map_private(bytes, raw::Access::Write).map(|at| Self(at, bytes)).ok_or(Error::NoAddressSpace)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this value's own mapping, which may be read and written.
        unsafe { std::slice::from_raw_parts_mut(self.0 as *mut u8, self.1) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { raw::unmap(self.0, self.1) };
    }
}
