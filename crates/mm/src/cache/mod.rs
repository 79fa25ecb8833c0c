//! The cache of a file: its pages in memory, at one range of addresses for the whole file.
//!
//! A page lies where its offset says. So all mappings of a file in a process are the same memory, and a huge page is
//! mapped by one entry. Frames move in from the owner of all frames ([`Store`]) and back to it. Where there is none, or
//! the backing wants none, small pages come.
//!
//! | file | holds |
//! |---|---|
//! | [`index`] | which pages are present, dirty, in writeback; pins |
//! | [`backing`] | where bytes come from and go to |
//! | `fill` | pages come |
//! | [`flush`] | dirty pages are written in the background |
//! | [`prefetch`] | many of them at a time |
//! | `stream` | what comes next is read while the program goes on |
//! | `apart` | reads that are under way without a lock |
//! | `recent` | which pages one access may need together |
//! | [`evict`] | pages go |
//! | `collapse` | small pages become a huge page |
//! | `settle` | which pages a device may be writing to |
//! | `advise` | what a program says beforehand |
//! | `share` | what its memory counts as |
//! | [`group`] | the hard budget of several files |
//! | `shadow` | which pages have gone to make room, and when |
//! | [`snapshot`] | what it held at a moment, while it goes on changing |
//! | `resize` | the file becomes longer or shorter, gets holes |
//! | [`watch`] | pages come when they are touched, and changed ones are found |
//! | `staged`, `staging` | how they come while the program may touch them |
//! | [`write_back`] | dirty pages are written, errors are kept |
//!
//! Locks, in the order in which they are taken: `stream`; `syncing`; `resizing`; `taking` of [`snapshot`]; the lock of a slot
//! ([`index::flag::CHANGING`]): a thread that has one only tries others; `account`. The backing is called with all but the last.
//!
//! Calls that take bytes away ([`Cache::truncate`], [`Cache::punch`]) have the file for themselves but for eviction,
//! mappings, and reads for faults of other caches: the caller sees to that. So they wait for the lock of each slot, also
//! of one that has nothing: its bytes may be on their way.
//!
//! Memory that no mapping holds can go back on request. The owner counts it as kept ([`Store::cached`]), as far as it
//! is in use: a slot of small pages counts by the page.

mod advise;
mod apart;
pub mod backing;
mod collapse;
pub mod evict;
mod fill;
pub mod flag;
pub mod flush;
pub mod group;
pub mod index;
pub mod prefetch;
mod recent;
mod resize;
mod settle;
mod shadow;
mod share;
pub mod snapshot;
mod staged;
mod staging;
mod stream;
pub mod watch;
pub mod write_back;

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use faultless_base::sync::{Late, Lock, Words};
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::gauges::Gauges;
use faultless_page::knobs::Values;
use faultless_page::stats::{Block, Counter};

use crate::cache::backing::Backing;
use crate::cache::flush::Ages;
use crate::cache::group::Size;
use crate::cache::index::{Change, Entry, Index, Part, Pin};
use crate::cache::resize::Zeroes;
use crate::cache::shadow::Shadows;
use crate::cache::share::{Account, Share};
use crate::cache::snapshot::Moments;
use crate::cache::staging::Staging;
use crate::cache::stream::Stream;
use crate::cache::write_back::Failures;
use crate::frame::store::Store;

/// What a thread does with bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It reads them.
    Read,
    /// It changes them.
    Write,
}

/// What all caches of a process have together.
#[derive(Clone, Copy)]
pub struct Process {
    /// The owner of all frames.
    pub store: &'static dyn Store,
    /// Where is counted.
    pub counters: &'static Block,
    /// What is set.
    pub knobs: &'static Values,
    /// Totals of memory.
    pub gauges: &'static Gauges,
}

/// The cache of one file.
pub struct Cache<M: FileMemory, B: Backing> {
    memory: M,
    backing: B,
    span: Span,
    index: Index,
    /// Mappings that hold a slot; changed with the slot's lock.
    holds: Words,
    /// In a group: pages that were promised to these mappings; changed with the slot's lock.
    promised: Option<Words>,
    store: &'static dyn Store,
    counters: &'static Block,
    knobs: &'static Values,
    /// Where its memory is counted; that of private mappings is not.
    gauges: Option<&'static Gauges>,
    length: AtomicUsize,
    /// Held while the length changes.
    resizing: Lock<()>,
    /// Pages that can go back on request, and how many slots the owner of all frames counts for them.
    account: Lock<Account>,
    syncing: Lock<()>,
    failures: Lock<Failures>,
    /// Changed with `syncing`.
    ages: Ages,
    /// Where eviction looks next.
    hand: AtomicUsize,
    /// When no huge page could be had for small ones, in ms; 0: not yet.
    collapse_failed: AtomicUsize,
    /// How often pages have gone to make room, or on request; changed with the slot's lock.
    gone: AtomicUsize,
    /// Comes with the first mapping whose pages come when they are touched.
    staging: Late<Staging>,
    moments: Moments,
    shadows: Shadows,
    /// What is read while the program goes on.
    stream: Lock<Stream>,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// A cache of a file of `length` bytes that may grow to `most`. Nothing of it is in memory.
    pub fn new(memory: M, backing: B, length: usize, most: usize, process: Process) -> Result<Self, Errno> {
        let slots = most.max(length).max(1).div_ceil(SLOT);
        let Process { store, counters, knobs, gauges } = process;
        let gauges = backing.is_written_back().then_some(gauges);
        // First: where there are no addresses for so much, the tables are no work.
        let addresses = slots.checked_mul(SLOT).and_then(|bytes| memory.reserve(bytes));
        let span = addresses.ok_or(Errno::ENOMEM)?;
        let has_group = backing.group().is_some();
        let tables = || {
            let promised = if has_group { Some(Words::new(slots)?) } else { None };
            Some((
                Index::new(slots).ok()?,
                Words::new(slots)?,
                promised,
                Ages::new(slots).ok()?,
                Shadows::new(slots).ok()?,
            ))
        };
        let Some((index, holds, promised, ages, shadows)) = tables() else {
            memory.release(span);
            return Err(Errno::ENOMEM);
        };
        let index = if let Some(gauges) = gauges { index.counted(gauges) } else { index };
        // No more than the file has: a program may lock all of its memory.
        if !memory.open(Span::new(span.start, length.next_multiple_of(SLOT))) {
            memory.release(span);
            return Err(Errno::ENOMEM);
        }
        Ok(Self {
            memory,
            backing,
            span,
            index,
            holds,
            promised,
            store,
            counters,
            knobs,
            gauges,
            length: AtomicUsize::new(length),
            resizing: Lock::new(()),
            account: Lock::new(Account::default()),
            syncing: Lock::new(()),
            failures: Lock::new(Failures::default()),
            ages,
            hand: AtomicUsize::new(0),
            collapse_failed: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            staging: Late::new(),
            moments: Moments::new(),
            shadows,
            stream: Lock::new(Stream::default()),
        })
    }

    /// The length of the file, as far as it is known here.
    pub fn length(&self) -> usize {
        self.length.load(Relaxed)
    }

    /// Its backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Where a byte of the file lies.
    pub fn address(&self, offset: usize) -> usize {
        self.span.start + offset
    }

    /// Bytes of the file that are in memory.
    pub fn present(&self) -> usize {
        (0..self.index.slots()).map(|slot| self.index.count(Entry::Present, slot) * PAGE).sum()
    }

    fn slot_span(&self, slot: usize) -> Span {
        Span::new(self.span.start + slot * SLOT, SLOT)
    }

    fn pages(&self, slot: usize, part: Part) -> Span {
        Span::new(self.slot_span(slot).start + part.first * PAGE, part.count * PAGE)
    }

    /// The slots of a range of bytes, each with its part of the range and the pages around that.
    fn parts(&self, offset: usize, bytes: usize) -> impl Iterator<Item = (usize, Span, Part)> + use<M, B> {
        self.parts_by(offset, bytes, SLOT)
    }

    /// The same, no more than `most` bytes at a time.
    fn parts_by(
        &self,
        offset: usize,
        bytes: usize,
        most: usize,
    ) -> impl Iterator<Item = (usize, Span, Part)> + use<M, B> {
        let start = self.span.start;
        let (mut at, end) = (offset, offset + bytes);
        core::iter::from_fn(move || {
            (at < end).then(|| {
                let (slot, first) = (at / SLOT, at % SLOT);
                let n = (end - at).min(SLOT - first).min(most);
                let part = Part { first: first / PAGE, count: (first + n).div_ceil(PAGE) - first / PAGE };
                let bytes = Span::new(start + at, n);
                at += n;
                (slot, bytes, part)
            })
        })
    }

    /// Memory that holds nothing any more: it reads as zero.
    fn empty(&self, span: Span) {
        if !self.memory.discard(span) {
            self.memory.zero(span);
        }
    }

    fn pin(&self, slot: usize) -> Pin<'_> {
        self.index.pin(slot, |turn| self.memory.relax(turn))
    }

    fn change(&self, slot: usize) -> Change<'_> {
        self.index.change(slot, |turn| self.memory.relax(turn))
    }

    /// Calls `f` with the memory of a range of bytes inside the file, up to 2 MiB at a time. It stays there until `f`
    /// returns. The bytes for which that was done, or why it could not be done for the first.
    pub fn with(&self, offset: usize, bytes: usize, how: Use, f: impl FnMut(Span)) -> Result<usize, Errno> {
        self.with_zeroes(offset, bytes, how, Zeroes::NONE, f)
    }

    /// The same for a write, for which [`Cache::grow_for`] has made the file as long as it takes.
    pub fn write_with(
        &self,
        offset: usize,
        bytes: usize,
        zeroes: Zeroes,
        f: impl FnMut(Span),
    ) -> Result<usize, Errno> {
        self.with_zeroes(offset, bytes, Use::Write, zeroes, f)
    }

    fn with_zeroes(
        &self,
        offset: usize,
        bytes: usize,
        how: Use,
        zeroes: Zeroes,
        mut f: impl FnMut(Span),
    ) -> Result<usize, Errno> {
        let mut done = 0;
        for (slot, bytes, part) in self.parts_by(offset, bytes, self.step()) {
            let brought = self.pin_with_room(slot, part, Size::Any, |room| {
                self.bring_for(slot, how, || self.bring_new(slot, part, zeroes, room))
            });
            let _pin = match brought {
                Ok(pin) => pin,
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            };
            if how == Use::Write {
                self.before_write(slot, part);
            }
            f(bytes);
            if how == Use::Write {
                // Afterwards: who writes it back meanwhile takes the entry away before it reads the bytes.
                self.index.set(Entry::Dirty, slot, part);
            }
            done += bytes.bytes();
        }
        Ok(done)
    }

    /// Calls `bring` for pages of a slot; what comes for a write is counted.
    fn bring_for(&self, slot: usize, how: Use, bring: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let is_empty = self.index.state(slot) & flag::FILLED == 0;
        bring()?;
        if how == Use::Write && is_empty && self.is_huge_at(slot) {
            let is_huge = self.index.state(slot) & flag::HUGE != 0;
            self.counters.add(if is_huge { Counter::FileWriteAlloc } else { Counter::FileWriteFailed }, 1);
        }
        Ok(())
    }

    /// Brings a range of bytes inside the file, and keeps it in memory until [`Cache::release`]. ENOMEM: that would be
    /// more than the budget of its group.
    pub fn hold(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        for (slot, ..) in self.parts(offset, bytes) {
            self.collapse(slot);
            self.pin(slot).keep();
            let change = self.change(slot);
            if !self.promise(slot) {
                drop(change);
                Pin::unpin(&self.index, slot);
                self.release(offset, (slot * SLOT).saturating_sub(offset));
                return Err(Errno::ENOMEM);
            }
            let before = self.share(slot);
            self.holds[slot].fetch_add(1, Relaxed);
            change.set(flag::MAPPED);
            self.count(before, self.share(slot));
            drop(change);
        }
        self.bring_many(&mut self.parts(offset, bytes), usize::MAX);
        // What other threads were about to bring, and what could not be read.
        let brought = self.parts(offset, bytes).try_for_each(|(slot, _, part)| self.bring(slot, part).map(drop));
        brought.inspect_err(|_| self.release(offset, bytes))
    }

    /// Ends that.
    pub fn release(&self, offset: usize, bytes: usize) {
        for (slot, ..) in self.parts(offset, bytes) {
            let change = self.change(slot);
            let before = self.share(slot);
            if self.holds[slot].fetch_sub(1, Relaxed) == 1 {
                self.end_promise(slot);
            }
            self.count(before, self.share(slot));
            drop(change);
            Pin::unpin(&self.index, slot);
        }
    }

    /// Bytes of the file may have been changed where they lie. The caller holds them. Holes of the file stay holes
    /// where nothing was written.
    pub fn soil(&self, offset: usize, bytes: usize) {
        for (slot, _, part) in self.parts(offset, bytes) {
            for page in part.first..part.first + part.count {
                self.soil_page(slot, Part { first: page, count: 1 });
            }
        }
    }

    /// The same of one page; whether it is dirty for that.
    fn soil_page(&self, slot: usize, page: Part) -> bool {
        let is_hole = self.index.has(Entry::Hole, slot, page);
        let is_changed = !is_hole || !self.memory.is_zero(self.pages(slot, page));
        if is_changed {
            self.index.set(Entry::Dirty, slot, page);
        }
        is_changed
    }

    /// The pages of a slot that are in the file.
    fn inside(&self, slot: usize) -> Part {
        let bytes = self.length().saturating_sub(slot * SLOT).min(SLOT);
        Part { first: 0, count: bytes.div_ceil(PAGE) }
    }
}

impl<M: FileMemory, B: Backing> Drop for Cache<M, B> {
    fn drop(&mut self) {
        self.end_stream();
        self.evict(self.index.slots(), evict::To::Store);
        // What is dirty still is lost: the caller has written back what could be written.
        let left = self.account.lock().share();
        self.tell(left, Share::default());
        self.release_snapshots();
        self.memory.release(self.span);
        if let Some(staging) = self.staging.get() {
            self.memory.release(staging.span());
        }
        self.charge(left, Share::default());
    }
}
