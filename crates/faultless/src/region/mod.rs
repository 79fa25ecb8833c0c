//! Regions: ranges of addresses whose page faults this library resolves.

mod builder;
mod heap;
mod save;
mod snapshot;
mod target;

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::region::Refused;
use faultless_mm::region::area::Attributes;
use faultless_page::knobs::{Knob, When};
use faultless_page::stats::Counter;

pub use builder::Builder;
pub use faultless_base::sys::mmu::Rights;
pub use faultless_base::sys::user_mmu::Backing;
pub use faultless_mm::region::change::Advice;
pub use heap::{Block, Heap};
pub use save::{Save, Written};
pub use snapshot::Snapshot;
pub(crate) use snapshot::{Moment, check_devices};

use crate::background::{Background, Priority};
pub use crate::delivery::Delivery;
use crate::delivery::watchdog::Watched;
use crate::delivery::{handler_pool, signal};
pub use crate::error::Error;
use crate::page;
pub use crate::process::limits::is_granted;
use crate::process::masked::{Masked, blocks_sigbus};
use crate::shared::Shared;
pub use crate::shared::file::FileBacking;
pub use crate::shared::swap::{Swap, SwapStore};

/// A region of memory.
///
/// Its parts can be mapped, unmapped, protected, moved, advised about and populated, by any thread at any time.
/// Faults go on meanwhile, and changes of different parts do not wait for each other. All ranges are in bytes from
/// the region's start, in whole pages of 4096 bytes. An access to unmapped memory is a SIGSEGV, as elsewhere.
///
/// ```
/// use faultless::region::{Region, Rights};
///
/// let mut region = Region::anonymous(64 << 20)?;
/// region.as_mut_slice()?[12345] = 1;
/// region.protect(0..1 << 20, Rights::Read)?;
/// region.unmap(32 << 20..64 << 20)?;
/// # Ok::<(), faultless::region::Error>(())
/// ```
///
/// A forked child has the bytes of an anonymous region that were there, and zeroes for the others, but cannot change
/// the region. Of a region with a backing it has nothing, unless the region has events ([`Builder::events`]).
pub struct Region {
    serving: Mutex<Option<Serving>>,
    shared: ManuallyDrop<Arc<Shared>>,
    delivery: Delivery,
    serves_system_calls: bool,
    attributes: Attributes,
    length: usize,
}

/// Threads that serve a region.
#[expect(dead_code, reason = "they end with it")]
enum Serving {
    /// Of its own.
    Own(Watched),
    /// Of several regions.
    Shared(handler_pool::Place),
}

/// Whether this thread's stack lies in a part.
fn has_this_stack(part: Span) -> bool {
    let here = 0_u8;
    part.contains(&raw const here as usize)
}

/// Whether this thread may let pages of a region go to its store: not its own stack, of which it needs a page meanwhile.
fn check_stack(shared: &Shared) -> Result<(), Error> {
    match shared.memory.has_swap() && has_this_stack(shared.memory.span()) {
        true => Err(Error::NoSwap("this thread's stack lies in the region: let another thread populate it")),
        false => Ok(()),
    }
}

impl Region {
    /// A region of `length` bytes of zeroes, all of it mapped for reading and writing.
    pub fn anonymous(length: usize) -> Result<Self, Error> {
        Self::builder(length).build()
    }

    /// The choices that [`Region::anonymous`] does not leave.
    pub fn builder(length: usize) -> Builder {
        Builder::new(length)
    }

    /// Its first byte. Access is allowed as far as the region is mapped at the time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared.memory.span().start as *mut u8
    }

    /// Its length, as it was asked for; ranges may go to the end of its last page.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false: a region has at least one byte. (Clippy asks for it beside `len`.)
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How its faults are delivered.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Whether a system call may be given memory of the region that was not touched yet: otherwise it fails with
    /// EFAULT.
    pub fn serves_system_calls(&self) -> bool {
        self.serves_system_calls
    }

    /// Whether this thread may use the region: none may that blocks SIGBUS if that is how faults are delivered.
    pub fn check_thread(&self) -> Result<(), Error> {
        self.shared.check()?;
        if self.delivery != Delivery::Signal {
            return Ok(());
        }
        match blocks_sigbus() {
            true => Err(Error::SigbusBlocked),
            false => signal::check_handler(),
        }
    }

    /// Whether this thread may use all of it like this, as it is now.
    pub fn check(&self, rights: Rights) -> Result<(), Error> {
        self.check_thread()?;
        let _masked = Masked::new();
        let all = Span::new(self.shared.memory.span().start, self.length);
        if !self.shared.memory.areas().covers(all) {
            return Err(Error::NotMapped);
        }
        self.shared.check_kept(all)?;
        let mut suffices = true;
        self.shared.memory.areas().each(all, |area| suffices &= area.attributes.rights >= rights);
        if suffices { Ok(()) } else { Err(Error::Rights) }
    }

    /// All of its bytes, if all are mapped for reading.
    ///
    /// # Safety
    /// While the slice lives no thread writes to the region, and no part of it is unmapped, moved, dropped or
    /// protected.
    pub unsafe fn as_slice(&self) -> Result<&[u8], Error> {
        self.check(Rights::Read)?;
        // SAFETY: readable now, and by contract for as long as the slice lives.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) })
    }

    /// All of its bytes, if all are mapped for writing.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8], Error> {
        self.check(Rights::Write)?;
        // SAFETY: writable now, and no other thread can change the region or write to it: it is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.length) })
    }

    /// The span of a range of pages, with signals held back and in the right process.
    fn enter(&self, range: Range<usize>) -> Result<(Span, Masked), Error> {
        let pages = self.length.next_multiple_of(PAGE);
        if range.start.max(range.end) > pages {
            return Err(Error::Outside);
        }
        self.enter_slots(range)
    }

    /// The same up to the end of the last slot.
    fn enter_slots(&self, range: Range<usize>) -> Result<(Span, Masked), Error> {
        self.shared.check()?;
        let all = self.shared.memory.span();
        let at = |offset: usize| all.start.checked_add(offset).filter(|at| *at <= all.end).ok_or(Error::Outside);
        let span = Span { start: at(range.start)?, end: at(range.end)? };
        self.shared.check_kept(span)?;
        Ok((span, Masked::new()))
    }

    /// Maps a part where nothing is mapped, as the region was built: zeroes, or what the backing has at the same
    /// offset.
    pub fn map(&self, range: Range<usize>, rights: Rights) -> Result<(), Error> {
        self.enter(range.clone())?;
        self.map_slots(range, rights)
    }

    /// The same up to the end of the last slot.
    pub(crate) fn map_slots(&self, range: Range<usize>, rights: Rights) -> Result<(), Error> {
        let (span, _masked) = self.enter_slots(range.clone())?;
        let mapped = self.shared.memory.map(span, Attributes { rights, ..self.attributes }, range.start);
        mapped.map_err(|refused| self.shared.refused(refused))?;
        if self.delivery == Delivery::Direct && rights == Rights::Write {
            self.shared.memory.populate(span).map_err(|refused| self.shared.refused(refused))?;
        }
        Ok(())
    }

    /// Has the kernel make a part of small pages alone, until it is unmapped: where it serves the faults, and may make
    /// huge pages at all.
    pub(crate) fn prefer_small(&self, range: Range<usize>) {
        if self.delivery == Delivery::Kernel && self.attributes.huge {
            let start = self.shared.memory.span().start;
            self.shared.memory.prefer_huge(Span { start: start + range.start, end: start + range.end }, false);
        }
    }

    /// Unmaps all mapped memory in a part; its content is gone. What the program said of it to the kernel (`mlock`,
    /// `madvise`, `mbind` …) does not hold for what is mapped there next.
    pub fn unmap(&self, range: Range<usize>) -> Result<(), Error> {
        let (span, _masked) = self.enter(range)?;
        self.change_place(span, span, || self.shared.memory.unmap(span))
    }

    /// Makes a change that takes memory away at `from`, and maps some at `to`: of which the kernel sends messages.
    fn change_place(
        &self,
        from: Span,
        to: Span,
        change: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<(), Error> {
        let changed =
            if self.shared.has_events() { self.shared.behind.moving(from, to, change) } else { change() };
        changed.map_err(|refused| self.shared.refused(refused))
    }

    /// Changes what a part may be used for.
    pub fn protect(&self, range: Range<usize>, rights: Rights) -> Result<(), Error> {
        let (span, _masked) = self.enter(range)?;
        self.shared.memory.protect(span, rights).map_err(|refused| self.shared.refused(refused))?;
        // Pages that are only read do not go. Else the next fault lets them go.
        if rights == Rights::Write && check_stack(&self.shared).is_ok() {
            self.shared.memory.keep_budget();
        }
        Ok(())
    }

    /// Moves a part to `to`, where nothing is mapped; where it was nothing is mapped then. It has the same rights and
    /// advice all over, and what of it was moved before came in one piece: otherwise [`Error::NotMapped`].
    pub fn remap(&self, range: Range<usize>, to: usize) -> Result<(), Error> {
        let (span, _masked) = self.enter(range)?;
        let end = to.checked_add(span.bytes()).ok_or(Error::Outside)?;
        let (target, _masked) = self.enter(to..end)?;
        self.change_place(span, target, || self.shared.memory.remap(span, target.start))
    }

    /// Takes advice about a part.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Error> {
        let (span, _masked) = self.enter(range)?;
        self.shared.memory.advise(span, advice).map_err(|refused| self.shared.refused(refused))
    }

    /// Brings all pages of a part at once, so that system calls find them in every delivery mode. A part without any
    /// rights is [`Error::Rights`].
    pub fn populate(&self, range: Range<usize>) -> Result<(), Error> {
        let (span, _masked) = self.enter(range)?;
        check_stack(&self.shared)?;
        self.shared.memory.populate(span).map(drop).map_err(|refused| self.shared.refused(refused))
    }

    /// The same in the background, 2 MiB at a time; the answer has its progress, and its end to wait for. To unmap a
    /// part meanwhile ends it with an error, as does the end of the region.
    pub fn populate_in_background(&self, range: Range<usize>) -> Result<Background, Error> {
        let (span, _masked) = self.enter(range)?;
        if span.is_empty() || span.start % PAGE != 0 || span.end % PAGE != 0 {
            return Err(Error::Outside);
        }
        let first = span.start & !(SLOT - 1);
        let (shared, bell) = (Arc::downgrade(&self.shared), self.shared.bell.clone());
        let steps = (span.end - first).div_ceil(SLOT);
        Background::start(Priority::Ordinary, steps, SLOT, bell, move |n: usize| {
            // Where several help, one or the other always has the region: its end must say that it has begun.
            let shared = shared.upgrade().filter(|shared| !shared.ends()).ok_or(Error::Ended)?;
            check_stack(&shared)?;
            let part = Span::new(first + n * SLOT, SLOT).clip(span);
            let error = |refused| if shared.ends() { Error::Ended } else { shared.refused(refused) };
            shared.memory.populate(part).map(|_| true).map_err(error)
        })
    }

    /// Whether a forked child has nothing of it, unless it has events.
    fn is_kept_from_children(&self) -> bool {
        self.attributes.backed || self.shared.memory.has_swap()
    }

    /// How many bytes of it are in memory, with those that are about to go to its store; those of [`Region::present`] if
    /// it has none.
    pub fn in_memory(&self) -> usize {
        match self.shared.memory.has_swap() {
            true => self.shared.memory.pages_in_memory() * PAGE,
            false => self.present(),
        }
    }

    /// Of a region with a store, an estimate of the memory in which it would find what it uses. That is the budget, and
    /// what had gone meanwhile when a page came back. 0: it has no store.
    pub fn working_set(&self) -> usize {
        self.shared.memory.working_set()
    }

    /// How many bytes of it are there: in memory, or the kernel's page of zeroes. Exact while no thread faults in it
    /// or changes it.
    pub fn present(&self) -> usize {
        if !self.shared.owner.is_here() {
            // Without locks, which a thread of the parent may have held; without events, a region with a backing is
            // not in the child.
            let is_there = !self.is_kept_from_children() || self.shared.memory.lost().is_some();
            return if is_there { self.shared.memory.present(self.shared.memory.span()) * PAGE } else { 0 };
        }
        let _masked = Masked::new();
        // What the length was rounded up by is not the region's.
        (self.shared.present_pages() * PAGE).min(self.len().next_multiple_of(PAGE))
    }

    /// What was counted for all regions of the process.
    pub fn counted(counter: Counter) -> u64 {
        page::sum(counter)
    }

    /// The same for the counter of a name.
    pub fn counted_as(name: &[u8]) -> Option<u64> {
        by_name(name).map(Self::counted)
    }

    /// What was counted for this region alone: faults, their windows and pages, and the time that they took. `None`
    /// for other counters. From the 65th region that a process has at a time on, regions count together.
    pub fn own_count(&self, counter: Counter) -> Option<u64> {
        self.shared.counted.get(counter)
    }

    /// The same for the counter of a name.
    pub fn own_count_as(&self, name: &[u8]) -> Option<u64> {
        self.own_count(by_name(name)?)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let serving = self.serving.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.delivery == Delivery::Signal {
            signal::forget(&**self.shared);
        }
        if !self.shared.owner.is_here() {
            // The threads are the parent's, and so are the descriptors: calls on them would change the parent.
            std::mem::forget(serving);
            let span = self.shared.memory.span();
            // A region with a backing is not in the child: something else may be in its place. With events that may
            // be so of any part, and only the parent's reader knows; of one that is closed, where a move was refused.
            let is_whole = self.shared.memory.lost().is_none() && !self.shared.memory.is_shut();
            if !self.is_kept_from_children() && is_whole {
                // SAFETY: the child's own copy of the region, which it will not use again.
                unsafe { faultless_base::sys::raw::unmap(span.start, span.bytes()) };
            }
            return;
        }
        self.shared.end();
        // The threads that serve end before the memory does.
        drop(serving);
        let others = Arc::downgrade(&self.shared);
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.shared) };
        // A step of populating in the background may be reading the backing, which may go when this returns.
        while others.strong_count() > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let span = self.shared.memory.span();
        write!(f, "Region({:#x}-{:#x}, {:?})", span.start, span.end, self.delivery)
    }
}

fn by_name(name: &[u8]) -> Option<Counter> {
    Counter::ALL.iter().copied().find(|counter| counter.declared().name.as_bytes() == name)
}

/// Sets a knob for all regions of the process.
pub fn set(knob: Knob, value: u64) {
    page::page().knobs.set(knob, value);
}

/// The same for the knob of a name; whether there is one, and it can be changed while the program runs.
pub fn set_as(name: &[u8], value: u64) -> bool {
    let is = |knob: &&Knob| knob.declared().name.as_bytes() == name && knob.declared().when == When::Live;
    let stands_for_something = |knob: &&Knob| {
        let (least, most) = knob.declared().range();
        (least..=most).contains(&value)
    };
    let found = Knob::ALL.iter().find(is).filter(stands_for_something);
    found.inspect(|knob| set(**knob, value)).is_some()
}

/// Turns speculative faults on or off for all regions of the process.
pub fn set_speculative(on: bool) {
    page::page().knobs.set(Knob::SpeculativePageFault, on as u64);
}
