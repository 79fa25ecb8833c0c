//! A region: a range of addresses of which missing pages are brought by its own faults, as areas say.
//!
//! Locks, in the order in which they are taken: a range of the region ([`RangeLock`]: changes take what they change, a
//! classic fault shares all of it), an entry ([`crate::entry`]), the areas' shape ([`crate::area`]). System calls are made
//! under the first two.
//!
//! The thread that changes a region or brings pages outside a fault must not be interrupted by a signal handler that uses
//! the same region: whoever calls sees to that.

use core::ops::Deref;

use faultless_base::sync::{Access, RangeLock};
use faultless_base::sys::mmu::{Mmu, Word};
use faultless_base::{SLOT, Span};

use crate::area::{Areas, Attributes, Full, View};
use crate::behind::Behind;
use crate::entry::Entries;
use crate::frames::{Frames, Taken, Version};
use crate::knobs::{Knob, Values};
use crate::listing::Place;
use crate::pool::Pool;
use crate::spread::Spread;
use crate::stats::{Block, Counter};
use crate::streams::Streams;
use crate::tally::Tally;
use crate::window::Orders;

/// How a region is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Areas at a time.
    pub areas: usize,
    /// Sizes of windows.
    pub orders: Orders,
}

/// Why a change was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The span is empty, not whole pages, or not inside the region.
    Outside,
    /// Something is mapped there already.
    Mapped,
    /// Nothing is mapped in a part of it.
    NotMapped,
    /// There are too many areas.
    Full,
    /// The kernel refused, with this error number.
    Kernel(i32),
}

impl From<Full> for Refused {
    fn from(_full: Full) -> Self {
        Self::Full
    }
}

/// Faults of an area that may follow nothing, unless it is said otherwise.
const PATIENCE: usize = 48;

/// A region of memory behind an [`Mmu`].
pub struct Region<M: Mmu> {
    pub(crate) mmu: M,
    pub(crate) span: Span,
    pub(crate) areas: Areas,
    pub(crate) entries: Entries,
    pub(crate) ranges: RangeLock,
    pub(crate) streams: Streams,
    /// What streams left behind, if faults are no place to look.
    pub(crate) behind: Behind,
    pub(crate) frames: Frames,
    /// Huge pages that are asked for ahead of a stream, at most.
    pub(crate) ahead: usize,
    /// Pages that are there, but for those of areas that the kernel serves.
    pub(crate) resident: Spread,
    /// Faults count in the block of their thread.
    pub(crate) counters: &'static [Block],
    /// Where it counts what is counted by region, if it is listed.
    pub(crate) place: Option<&'static Place>,
    pub(crate) knobs: &'static Values,
}

impl<M: Mmu> Region<M> {
    /// A region of `span`, which begins at a multiple of 2 MiB and of which nothing is mapped. `None` when there is no
    /// memory for its tables. There is at least one block of counters.
    pub fn new(
        mmu: M,
        span: Span,
        plan: Plan,
        counters: &'static [Block],
        knobs: &'static Values,
    ) -> Option<Self> {
        debug_assert_eq!(span.start % SLOT, 0);
        let (areas, entries) = (Areas::new(plan.areas)?, Entries::new(span)?);
        // Reserved last: only a region gives it back.
        let frames = Frames::new(&mmu);
        Some(Self {
            mmu,
            span,
            areas,
            entries,
            ranges: RangeLock::new(),
            streams: Streams::new(plan.orders, PATIENCE),
            behind: Behind::new(),
            frames,
            ahead: 0,
            resident: Spread::new(),
            counters,
            place: None,
            knobs,
        })
    }

    /// Says how many faults may follow nothing before the area is left to the kernel: fewer where a fault costs more.
    pub fn with_patience(mut self, faults: usize) -> Self {
        self.streams.set_patience(faults);
        self
    }

    /// Has it take huge pages of zeroes from a pool, and ask for `ahead` of them at most before a stream needs them.
    pub fn with_pool(mut self, pool: &'static Pool, ahead: usize) -> Self {
        self.frames.share(pool, &self.mmu);
        self.ahead = ahead;
        self
    }

    /// Has it count in a place of its own what is counted by region.
    pub fn with_place(mut self, place: &'static Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its areas.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// Makes a huge page of zeroes beforehand, unless `most` are there; whether it did.
    pub fn prepare_huge(&self, most: usize) -> bool {
        self.frames.pool().is_some_and(|pool| pool.ready() < most && pool.make(|frame| self.mmu.make_huge(frame)))
    }

    /// The bytes of the backing from `offset` on, in the buffer that was taken.
    pub(crate) fn fill(
        &self,
        taken: &mut Taken<'_>,
        offset: usize,
        bytes: usize,
        version: Version,
    ) -> Result<usize, i32> {
        let (at, read) = taken.fill(offset, bytes, version, &self.mmu)?;
        taken.tally.add(Counter::RegionFilled, read);
        Ok(at)
    }

    /// Reads from the backing for memory that is no area's.
    pub fn read_aside(&self, offset: usize, buffer: Span) -> Result<(), i32> {
        let _quiet = (!self.mmu.fills_at_any_time()).then(|| self.ranges.lock(self.span, Access::Shared));
        self.mmu.fill(offset as u64, buffer)
    }

    /// What was counted, by all that share the counters. Without what has a place of its own.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.counters.iter().map(|block| block.get(counter as usize)).sum()
    }

    /// Sets a knob, for all that share it.
    pub fn set(&self, knob: Knob, value: u64) {
        self.knobs.set(knob, value);
    }

    /// Tries for as long as there are areas whose places will be free: a fault that lost its processor may keep back as many as
    /// others unlink meanwhile. Nobody who has an area waits for a change.
    pub(crate) fn with_room(&self, mut attempt: impl FnMut() -> Result<(), Full>) -> Result<(), Full> {
        let mut turn = 0;
        loop {
            match attempt() {
                Err(Full { passes: true }) => self.mmu.relax(turn),
                done => return done,
            }
            turn += 1;
        }
    }

    /// Has areas of `span` changed as `new` says, with `kernel` in between.
    pub(crate) fn change(
        &self,
        span: Span,
        kernel: impl FnOnce() -> Result<(), i32>,
        new: impl FnMut(View) -> Option<Attributes>,
    ) -> Result<(), Refused> {
        self.with_room(|| self.areas.begin(span))?;
        self.entries.settle(span, |turn| self.mmu.relax(turn));
        match kernel() {
            Ok(()) => {
                self.areas.end(span, new);
                Ok(())
            }
            Err(error) => {
                self.restore_rights(span);
                self.areas.end(span, |view| Some(view.attributes));
                Err(Refused::Kernel(error))
            }
        }
    }

    /// A change may have failed when a part of it was done.
    pub(crate) fn restore_rights(&self, span: Span) {
        let mut at = span.start;
        while let Some(view) = self.areas.first(Span { start: at, ..span }) {
            let _ = self.mmu.protect(view.span, view.attributes.rights);
            at = view.span.end;
        }
    }

    /// Counts; `hint` tells threads apart, which then do not write to the same lines.
    pub fn count(&self, counter: Counter, n: usize, hint: usize) {
        let mut tally = Tally::new(hint);
        tally.add(counter, n);
        self.count_all(&tally);
    }

    /// Counts what was gathered.
    pub(crate) fn count_all(&self, tally: &Tally) {
        let block = tally.hint % self.counters.len();
        let places = || tally.counts().iter().map(|(counter, _)| *counter as usize);
        if let (Some(first), Some(last)) = (places().min(), places().max()) {
            self.mmu.meets(Word::Counters(block, first, last));
        }
        for (counter, n) in tally.counts() {
            let n = *n as u64;
            if !self.place.is_some_and(|place| place.count(*counter, n, tally.hint)) {
                self.counters[block].add(*counter, n);
            }
        }
    }
}

impl<M: Mmu> Deref for Region<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.mmu
    }
}

impl<M: Mmu> Drop for Region<M> {
    fn drop(&mut self) {
        self.keep_frames(self.span);
        self.frames.release(&self.mmu);
    }
}
