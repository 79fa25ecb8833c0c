//! Where the bytes of a window are before they are installed: buffers that are filled from a backing, and huge pages
//! of zeroes.
//!
//! Both lie in memory that the region reserves when it first needs it, without a lock: the holder of a place has it
//! alone. Small pages of zeroes need neither: the kernel copies them from its own.
//!
//! A buffer is for the bytes of a file ([`Purpose::File`]), which are read over all of it. So it is taken with the
//! bytes of its last use, and never from the huge pages: nothing else here needs zeroes.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::{Mmu, Word};
use faultless_base::{Errno, SLOT, Span};

use crate::frame::purpose::{Need, Purpose};
use crate::predict::window::Window;
use crate::region::fault_stats::FaultStats;
use crate::region::pool::Pool;

const _: () = assert!(matches!(Purpose::File.need(), Need::Any), "buffers are context with whatever is in them");

/// Buffers of a region, of 2 MiB each.
const BUFFERS: usize = if cfg!(debug_assertions) { 2 } else { 16 };
/// Huge pages of zeroes that a region has at most while it has no share in a pool.
const HUGE: usize = 32;

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
    /// Its own, until it has a share in one.
    own: Option<Pool>,
    shared: Option<&'static Pool>,
    /// Those with old bytes, which are as good for this region.
    old: Option<&'static Pool>,
}

/// What a fault carries from its first try to its second.
pub struct FaultContext<'a> {
    buffer: Option<Buffer<'a>>,
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
    /// It was ready, with old bytes.
    Old,
    /// It was made for this, which takes long.
    Made,
    /// None was given.
    None,
}

impl Frames {
    /// Nothing yet.
    pub fn new(mmu: &impl Mmu) -> Self {
        let own = Pool::new(HUGE * SLOT, |bytes| mmu.reserve(bytes));
        Self { buffers: Places::new(), own, shared: None, old: None }
    }

    /// Shares a pool.
    pub fn share(&mut self, pool: &'static Pool, mmu: &impl Mmu) {
        self.release_own(mmu);
        self.shared = Some(pool);
    }

    /// Has it take huge pages with old bytes first.
    pub fn take_old(&mut self, pool: &'static Pool) {
        self.old = Some(pool);
    }

    /// Where those come from, and go to.
    pub fn old(&self) -> Option<&'static Pool> {
        self.old
    }

    /// Where huge pages of zeroes come from.
    pub fn pool(&self) -> Option<&Pool> {
        self.shared.or(self.own.as_ref())
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
        if let Some((old, frame)) = self.old.and_then(|pool| Some((pool, pool.take()?))) {
            let gone = put(frame);
            old.let_go(frame, !gone && mmu.drop_unless_whole(frame));
            return if gone { Given::Old } else { Given::None };
        }
        let Some(pool) = self.pool() else { return Given::None };
        mmu.meets(Word::Pool);
        let ready = pool.take();
        let Some(frame) = ready.or_else(|| pool.begin()) else { return Given::None };
        let made = ready.is_some() || mmu.make_huge(frame);
        let gone = made && put(frame);
        mmu.meets(Word::Pool);
        pool.let_go(frame, made && !gone && mmu.drop_unless_whole(frame));
        match (gone, ready) {
            (false, _) => Given::None,
            (true, Some(_)) => Given::Ready,
            (true, None) => Given::Made,
        }
    }

    fn release_own(&mut self, mmu: &impl Mmu) {
        if let Some(own) = self.own.take() {
            own.span().into_iter().for_each(|span| mmu.release(span));
        }
    }

    /// Gives all memory back. No thread uses any of it.
    pub fn release(&mut self, mmu: &impl Mmu) {
        self.buffers.release(mmu);
        self.release_own(mmu);
    }
}

impl FaultContext<'_> {
    /// Nothing yet; for a fault on this processor.
    pub fn new(cpu: usize) -> Self {
        Self {
            buffer: None,
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
