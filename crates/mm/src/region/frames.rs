//! Where the bytes of a window are before they are installed: buffers that are filled from a backing, and huge pages.
//!
//! Buffers lie in memory that the region reserves when it first needs it, without a lock: the holder of a place has it
//! alone. Huge pages come from the owner of all frames ([`Store`]). Small pages of zeroes need neither: the kernel
//! copies them from its own.
//!
//! A buffer is for the bytes of a file ([`Purpose::File`]), which are read over all of it. So it is taken with the
//! bytes of its last use, and never from the huge pages: nothing else here needs zeroes.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::{Mmu, Word};
use faultless_base::{Errno, SLOT, Span};

use crate::frame::buddy::Kind;
use crate::frame::purpose::{Need, Purpose};
use crate::frame::store::{Frame, Store};
use crate::predict::window::Window;
use crate::region::fault_stats::FaultStats;

const _: () = assert!(matches!(Purpose::File.need(), Need::Any), "buffers are context with whatever is in them");

/// Buffers of a region, of 2 MiB each.
const BUFFERS: usize = if cfg!(debug_assertions) { 2 } else { 16 };

// States of a place.
const FREE: usize = 0;
const BUSY: usize = 1;

/// Places of 2 MiB each, reserved when first needed.
struct Places<const N: usize> {
    at: AtomicUsize,
    state: [AtomicUsize; N],
}

impl<const N: usize> Places<N> {
    fn new() -> Self {
        Self { at: AtomicUsize::new(0), state: core::array::from_fn(|_| AtomicUsize::new(FREE)) }
    }

    fn span(&self, i: usize) -> Span {
        Span::new(self.at.load(Ordering::Acquire) + i * SLOT, SLOT)
    }

    fn is_reserved(&self) -> bool {
        self.at.load(Ordering::Acquire) != 0
    }

    fn reserve(&self, mmu: &impl Mmu) -> bool {
        if self.is_reserved() {
            return true;
        }
        let Some(at) = mmu.reserve(N * SLOT) else { return false };
        if self.at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Acquire).is_err() {
            mmu.release(Span::new(at, N * SLOT));
        }
        true
    }

    fn take(&self) -> Option<usize> {
        let take =
            |state: &AtomicUsize| state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        self.state.iter().position(take)
    }

    fn release(&self, mmu: &impl Mmu) {
        let at = self.at.swap(0, Ordering::AcqRel);
        if at != 0 {
            mmu.release(Span::new(at, N * SLOT));
        }
    }
}

/// The buffers and huge pages of one region.
pub struct Frames {
    buffers: Places<BUFFERS>,
    /// Where huge pages come from.
    store: Option<&'static dyn Store>,
    /// What this region needs of them: where old bytes will do, it keeps the frames that it drops.
    need: Need,
}

/// What a fault carries from its first try to its second.
pub struct FaultContext<'a> {
    buffer: Option<Buffer<'a>>,
    /// No buffer can be had, and the fault is made for the last time: what needs one is lost.
    pub goes_without_buffer: bool,
    /// It was seen that faults of its area follow nothing.
    pub without_pattern: bool,
    /// A window that a stream has left behind.
    pub ended_window: Option<Span>,
    /// The window that the streams of an area have chosen: they are asked once.
    pub window: Option<(usize, Window)>,
    /// Its counts.
    pub stats: FaultStats,
}

struct Buffer<'a> {
    places: &'a Places<BUFFERS>,
    i: usize,
    /// The bytes in it.
    filled: Option<Filled>,
}

/// Bytes of the backing in a buffer.
#[derive(Clone, Copy)]
struct Filled {
    offset: usize,
    bytes: usize,
    version: Version,
}

/// An area and its sequence count, when something was read for it. A change of the area may have dropped its pages
/// because the backing has other bytes now. After that the bytes must not be installed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which area.
    pub area: usize,
    /// Its sequence count.
    pub sequence: usize,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.places.state[self.i].store(FREE, Ordering::Release);
    }
}

/// There is no free buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady;

/// Whether a fault may wait for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It has no time.
    No,
    /// It waits, and has buffers made where there are none.
    Yes,
}

/// Where a huge page came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// It was ready.
    Ready,
    /// It was ready, with old bytes in it.
    Old,
    /// It was made for this, which takes long.
    Made,
    /// None was given.
    None,
}

impl Frames {
    /// Buffers alone, none yet.
    pub fn empty() -> Self {
        Self { buffers: Places::new(), store: None, need: Need::Zero }
    }

    /// Has it take huge pages from `store`.
    pub fn take_from(&mut self, store: &'static dyn Store) {
        self.store = Some(store);
    }

    /// Has it take huge pages with old bytes first, and keep its own.
    pub fn take_old(&mut self) {
        self.need = Need::Any;
    }

    /// Where huge pages come from.
    pub fn store(&self) -> Option<&'static dyn Store> {
        self.store
    }

    /// Where the frames go that the region drops; `None`: to the kernel.
    pub fn keeps(&self) -> Option<&'static dyn Store> {
        self.store.filter(|_| self.need == Need::Any)
    }

    /// Frames that are ready for this region.
    pub fn ready(&self) -> usize {
        self.store.map_or(0, |store| store.ready(self.need))
    }

    /// Takes a buffer, unless the fault has one already.
    pub fn take<'a>(&'a self, context: &mut FaultContext<'a>, wait: Wait, mmu: &impl Mmu) -> Result<(), NotReady> {
        let mut turn = 0;
        while context.buffer.is_none() {
            if self.buffers.is_reserved()
                && let Some(i) = self.buffers.take()
            {
                context.buffer = Some(Buffer { places: &self.buffers, i, filled: None });
            } else if wait == Wait::No || !self.buffers.reserve(mmu) {
                return Err(NotReady);
            } else {
                mmu.relax(turn);
                turn += 1;
            }
        }
        Ok(())
    }

    /// Gives a huge page to `put`, which says whether it has gone: one of zeroes, unless others will do.
    pub fn with_huge(&self, mmu: &impl Mmu, put: impl FnOnce(usize) -> bool) -> Given {
        let Some(store) = self.store else { return Given::None };
        mmu.meets(Word::Pool);
        let ready = store.take(self.need);
        let place = || Some(Frame { at: store.place()?, kind: Kind::Unbacked });
        let Some(frame) = ready.or_else(place) else { return Given::None };
        let is_there = ready.is_some() || mmu.make_huge(frame.at);
        let gone = is_there && put(frame.at);
        mmu.meets(Word::Pool);
        let is_left = is_there && !gone && mmu.drop_unless_whole(frame.at);
        store.give(
            frame.at,
            match frame.kind {
                _ if !is_left => Kind::Unbacked,
                Kind::Unbacked => Kind::Zeroed,
                kind => kind,
            },
        );
        match frame.kind {
            _ if !gone => Given::None,
            Kind::Zeroed => Given::Ready,
            Kind::Dirty => Given::Old,
            Kind::Unbacked => Given::Made,
        }
    }

    /// Gives all memory back. No thread uses any of it.
    pub fn release(&mut self, mmu: &impl Mmu) {
        self.buffers.release(mmu);
    }
}

impl FaultContext<'_> {
    /// Nothing yet; for a fault on this processor.
    pub fn new(cpu: usize) -> Self {
        Self {
            buffer: None,
            goes_without_buffer: false,
            without_pattern: false,
            ended_window: None,
            window: None,
            stats: FaultStats::new(cpu),
        }
    }

    /// Where the bytes of the backing from `offset` on are, and how many were read now. None were read if the first
    /// try read them and the area is as it was then. The caller has taken a buffer.
    pub fn fill(
        &mut self,
        offset: usize,
        bytes: usize,
        version: Version,
        mmu: &impl Mmu,
    ) -> Result<(usize, usize), Errno> {
        let Some(buffer) = &mut self.buffer else { return Err(Errno::new(0)) };
        let at = buffer.places.span(buffer.i);
        let holds =
            |f: &Filled| f.version == version && f.offset <= offset && offset + bytes <= f.offset + f.bytes;
        match buffer.filled.filter(holds) {
            Some(filled) => Ok((at.start + offset - filled.offset, 0)),
            None => {
                buffer.filled = None;
                mmu.fill(offset as u64, Span::new(at.start, bytes))?;
                buffer.filled = Some(Filled { offset, bytes, version });
                Ok((at.start, bytes))
            }
        }
    }
}
