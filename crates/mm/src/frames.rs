//! Where the bytes of a window are before they are installed: buffers that are filled from a backing, and huge pages of
//! zeroes.
//!
//! Both lie in memory that the region reserves when it first needs it, without a lock: whoever has a place has it alone.
//! Small pages of zeroes need none of that, the kernel copies them from its own.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::Mmu;
use faultless_base::{SLOT, Span};

/// Buffers of a region, of 2 MiB each.
const BUFFERS: usize = if cfg!(debug_assertions) { 2 } else { 16 };
/// Huge pages of zeroes that a region has at most.
const HUGE: usize = 32;

// States of a place.
const HOLE: usize = 0;
const BUSY: usize = 1;
const READY: usize = 2;

/// Places of 2 MiB each, reserved when first needed.
struct Places<const N: usize> {
    at: AtomicUsize,
    state: [AtomicUsize; N],
}

impl<const N: usize> Places<N> {
    fn new() -> Self {
        Self { at: AtomicUsize::new(0), state: core::array::from_fn(|_| AtomicUsize::new(HOLE)) }
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

    fn take(&self, from: usize) -> Option<usize> {
        let take =
            |state: &AtomicUsize| state.compare_exchange(from, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
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
    huge: Places<HUGE>,
    /// Huge pages that were taken since some were last made beforehand.
    demand: AtomicUsize,
}

/// What a fault has taken, and found out. It keeps it from its first try to its second.
#[derive(Default)]
pub struct Taken<'a> {
    buffer: Option<Buffer<'a>>,
    /// It was seen that faults of its area follow nothing.
    pub hopeless: bool,
}

struct Buffer<'a> {
    places: &'a Places<BUFFERS>,
    i: usize,
    /// Offset and bytes of what is in it.
    filled: Option<(usize, usize)>,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.places.state[self.i].store(HOLE, Ordering::Release);
    }
}

/// There is no buffer to be had now.
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

impl Frames {
    /// Nothing yet.
    #[expect(clippy::new_without_default, reason = "as its owner")]
    pub fn new() -> Self {
        Self { buffers: Places::new(), huge: Places::new(), demand: AtomicUsize::new(0) }
    }

    /// Takes a buffer, unless the fault has one already.
    pub fn take<'a>(&'a self, taken: &mut Taken<'a>, wait: Wait, mmu: &impl Mmu) -> Result<(), NotReady> {
        let mut turn = 0;
        while taken.buffer.is_none() {
            if self.buffers.is_reserved()
                && let Some(i) = self.buffers.take(HOLE)
            {
                taken.buffer = Some(Buffer { places: &self.buffers, i, filled: None });
            } else if wait == Wait::No || !self.buffers.reserve(mmu) {
                return Err(NotReady);
            } else {
                mmu.relax(turn);
                turn += 1;
            }
        }
        Ok(())
    }

    /// Whether huge pages were taken since some were last made beforehand.
    pub fn wants_huge(&self) -> bool {
        self.demand.load(Ordering::Relaxed) > 0
    }

    /// Gives a region's huge page of zeroes to `put`, which says whether it has gone. `None`: there is none to be had.
    pub fn with_huge(&self, mmu: &impl Mmu, put: impl FnOnce(usize) -> bool) -> Option<bool> {
        if !self.huge.reserve(mmu) {
            return None;
        }
        let ready = self.huge.take(READY);
        let i = ready.or_else(|| self.huge.take(HOLE))?;
        let at = self.huge.span(i).start;
        let made = ready.is_some() || mmu.make_huge(at);
        let gone = made && put(at);
        if gone {
            self.demand.fetch_add(1, Ordering::Relaxed);
        }
        self.huge.state[i].store(if made && !gone { READY } else { HOLE }, Ordering::Release);
        made.then_some(gone)
    }

    /// Makes a huge page of zeroes beforehand, unless `most` are there; whether it did.
    pub fn prepare_huge(&self, mmu: &impl Mmu, most: usize) -> bool {
        let ready = self.huge.state.iter().filter(|state| state.load(Ordering::Relaxed) == READY).count();
        let made = ready < most.min(HUGE) && self.make_one(mmu);
        if !made {
            self.demand.store(0, Ordering::Relaxed);
        }
        made
    }

    fn make_one(&self, mmu: &impl Mmu) -> bool {
        let Some(i) = self.huge.take(HOLE) else { return false };
        let made = self.huge.reserve(mmu) && mmu.make_huge(self.huge.span(i).start);
        self.huge.state[i].store(if made { READY } else { HOLE }, Ordering::Release);
        made
    }

    /// Gives all memory back. Nobody has any of it.
    pub fn release(&self, mmu: &impl Mmu) {
        self.buffers.release(mmu);
        self.huge.release(mmu);
    }
}

impl Taken<'_> {
    /// The bytes of the backing from `offset` on: read now, or at the first try. There is a buffer.
    pub fn fill(&mut self, offset: usize, bytes: usize, mmu: &impl Mmu) -> Result<usize, i32> {
        let Some(buffer) = &mut self.buffer else { return Err(0) };
        let at = buffer.places.span(buffer.i);
        match buffer.filled {
            Some((from, length)) if from <= offset && offset + bytes <= from + length => {
                Ok(at.start + offset - from)
            }
            _ => {
                buffer.filled = None;
                mmu.fill(offset as u64, Span::new(at.start, bytes))?;
                buffer.filled = Some((offset, bytes));
                Ok(at.start)
            }
        }
    }
}
