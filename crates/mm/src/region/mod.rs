//! A region: a range of addresses whose missing pages are brought by its own faults, as areas say.
//!
//! Locks, in the order in which they are taken. System calls are made under the first two.
//!
//! 1. a range of the region ([`RangeLock`]): a change takes what it changes. A classic fault shares its 2 MiB, or the
//!    whole region where filling needs that.
//! 2. an entry ([`crate::region::entry`])
//! 3. the areas' shape ([`crate::region::area`])
//!
//! The caller makes sure of this: while a thread changes a region or brings pages outside a fault, no signal handler
//! that uses the same region interrupts it.

pub mod area;
pub mod change;
pub mod entry;
pub(crate) mod fault_stats;
pub mod frames;
pub(crate) mod install;
pub(crate) mod retained;
pub mod snapshot;
mod swap;

use core::ops::Deref;

use faultless_base::sync::{Access, RangeLock};
use faultless_base::sys::mmu::{Mmu, Word};
use faultless_base::{Errno, SLOT, Span};

use crate::frame::buddy::Kind;
use crate::frame::store::Store;
use crate::owner::chain::Chain;
use crate::predict::pending::Pending;
use crate::predict::streams::Streams;
use crate::predict::window::Orders;
use crate::region::area::{Areas, Attributes, Full, View};
use crate::region::entry::Entries;
use crate::region::fault_stats::FaultStats;
use crate::region::frames::{FaultContext, Frames, Version};
use faultless_base::sync::Late;
use faultless_base::sync::per_cpu::{self, PerCpu};
use faultless_page::knobs::{Knob, Values};
use faultless_page::listing::{Counted, own};
use faultless_page::stats::Counter;

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
    /// A part of it may not be read, or comes from a backing.
    Rights,
    /// Its pages go to a store, which this does not know of.
    Swapped,
    /// There is no memory for it.
    NoMemory,
    /// The snapshot lacks bytes: there was no memory for a copy.
    Incomplete,
    /// There are too many snapshots.
    TooManySnapshots,
    /// The kernel refused, for this reason.
    Kernel(Errno),
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
    pub(crate) pending: Pending,
    pub(crate) frames: Frames,
    /// Once there was one.
    pub(crate) snapshots: Late<Chain>,
    /// If its pages go to a store.
    pub(crate) swap: Option<swap::Swap>,
    /// Huge pages that are asked for ahead of a stream, at most.
    pub(crate) ahead: usize,
    /// Pages that are there, but for those of areas that the kernel serves.
    pub(crate) resident: PerCpu,
    /// Where it counts.
    pub(crate) counted: Counted<'static>,
    pub(crate) knobs: &'static Values,
}

impl<M: Mmu> Region<M> {
    /// A region of `span`, which begins at a multiple of 2 MiB and of which nothing is mapped. `None` when there is no
    /// memory for its tables.
    pub fn new(mmu: M, span: Span, plan: Plan, counted: Counted<'static>, knobs: &'static Values) -> Option<Self> {
        debug_assert_eq!(span.start % SLOT, 0);
        let places = per_cpu::places(counted.lines());
        let (areas, entries) = (Areas::new(plan.areas, places)?, Entries::new(span)?);
        let (streams, resident) = (Streams::new(plan.orders, PATIENCE, places)?, PerCpu::new(places)?);
        let frames = Frames::empty();
        Some(Self {
            mmu,
            span,
            areas,
            entries,
            ranges: RangeLock::new(),
            streams,
            pending: Pending::new(),
            frames,
            snapshots: Late::new(),
            swap: None,
            ahead: 0,
            resident,
            counted,
            knobs,
        })
    }

    /// Says how many faults may follow nothing before the area is left to the kernel: fewer where a fault costs more.
    pub fn with_patience(mut self, faults: usize) -> Self {
        self.streams.set_patience(faults);
        self
    }

    /// Has it take huge pages from their owner, and ask for `ahead` of them at most before a stream needs them.
    pub fn with_frames(mut self, store: &'static dyn Store, ahead: usize) -> Self {
        self.frames.take_from(store);
        self.ahead = ahead;
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
        let Some(store) = self.frames.store().filter(|_| self.frames.ready() < most) else { return false };
        store.place().is_some_and(|place| {
            let made = self.mmu.make_huge(place);
            store.give(place, if made { Kind::Zeroed } else { Kind::Unbacked });
            made
        })
    }

    /// The bytes of the backing from `offset` on, in the buffer that was taken.
    pub(crate) fn fill(
        &self,
        context: &mut FaultContext<'_>,
        offset: usize,
        bytes: usize,
        version: Version,
    ) -> Result<usize, Errno> {
        let (at, read) = context.fill(offset, bytes, version, &self.mmu)?;
        context.stats.add(Counter::RegionFilled, read);
        Ok(at)
    }

    /// Reads from the backing for memory that is no area's.
    pub fn read_aside(&self, offset: usize, buffer: Span) -> Result<(), Errno> {
        let _quiet = (!self.mmu.fills_at_any_time()).then(|| self.ranges.lock(self.span, Access::Shared));
        self.mmu.fill(offset as u64, buffer)
    }

    /// What it has counted: 0 for what regions do not count.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.counted.get(counter).unwrap_or(0)
    }

    /// Sets a knob, for all that share it.
    pub fn set(&self, knob: Knob, value: u64) {
        self.knobs.set(knob, value);
    }

    /// Tries for as long as there are areas whose places will be free. A fault that lost its processor may keep back
    /// as many places as other threads unlink meanwhile. No thread that holds an area waits for a change.
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
        kernel: impl FnOnce() -> Result<(), Errno>,
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

    /// Counts, on this processor: others do not write to the same lines.
    pub fn count(&self, counter: Counter, n: usize, cpu: usize) {
        let mut stats = FaultStats::new(cpu);
        stats.add(counter, n);
        self.count_all(&stats);
    }

    /// Counts what was gathered.
    pub(crate) fn count_all(&self, stats: &FaultStats) {
        let places = || stats.counts().iter().filter_map(|(counter, _)| own(*counter));
        if let (Some(first), Some(last)) = (places().min(), places().max()) {
            self.mmu.meets(Word::Counters(stats.cpu, first, last));
        }
        let line = self.counted.line(stats.cpu);
        stats.counts().iter().for_each(|(counter, n)| line.add(*counter, *n as u64));
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
        self.release_snapshots();
        self.release_swap();
        self.frames.release(&self.mmu);
    }
}
