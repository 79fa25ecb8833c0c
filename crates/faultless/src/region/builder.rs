//! The choices that a region is made with.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use faultless_base::sync::Epoch;
use faultless_base::sys::uffd::Way;
use faultless_base::sys::user_mmu::{Backing, STRIPES, UserMmu};
use faultless_base::units::round_up;
use faultless_base::{Errno, PAGE, SLOT};
use faultless_mm::predict::window::{MOST_ORDER, Orders};
use faultless_mm::region::area::Attributes;
use faultless_mm::region::{Plan, Region as Engine};

use crate::background::owner;
use crate::delivery::handler_pool::{self, Place};
use crate::delivery::signal;
use crate::delivery::watchdog::Watched;
use crate::delivery::{self, Delivery};
use crate::error::Error;
use crate::events::Events;
use crate::page::{self, page};
use crate::process::limits;
use crate::process::masked::Masked;
use crate::region::Region;
use crate::region::Serving;
use crate::shared::Shared;
use crate::shared::source::Source;
use crate::shared::swap::Swap;
use faultless_base::sys::mmu::Rights;

/// A window of 2 MiB.
const SLOT_ORDER: u32 = (SLOT / PAGE).ilog2();
/// Areas that a region has at a time, unless it is said otherwise.
const AREAS: usize = 4096;
/// Bytes of huge pages that are made ready ahead of a stream, unless it is said otherwise.
const BUDGET: usize = 64 << 20;
/// Largest window of a handler thread: a message costs as much as moving 60 huge pages.
const MOST_BY_THREAD: u32 = MOST_ORDER;
/// Largest window of a signal handler: a signal costs as much as moving five.
const MOST_BY_SIGNAL: u32 = 13;
/// Faults that may follow nothing before their area is left to the kernel: what they cost together is lost.
const PATIENCE_BY_THREAD: usize = 16;
/// The same with signals.
const PATIENCE_BY_SIGNAL: usize = 64;
/// Least budget of a region whose pages go to a store: what two faults bring.
const LEAST_IN_MEMORY: usize = 2 * SLOT;

/// What a fault brings: at first, and at most.
#[derive(Clone, Copy, Default)]
struct Windows {
    first: Option<usize>,
    most: Option<usize>,
}

/// Makes a [`Region`].
pub struct Builder {
    length: usize,
    delivery: Delivery,
    windows: Windows,
    huge: bool,
    budget: Option<usize>,
    handlers: usize,
    areas: usize,
    mapped: bool,
    zeroed: bool,
    events: bool,
    patience: Duration,
    backing: Option<Box<dyn Backing>>,
    swap: Option<Swap>,
}

impl Builder {
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            delivery: Delivery::Best,
            windows: Windows::default(),
            huge: true,
            budget: None,
            handlers: 1,
            areas: AREAS,
            mapped: true,
            zeroed: true,
            events: false,
            patience: handler_pool::PATIENCE,
            backing: None,
            swap: None,
        }
    }

    /// How faults are delivered.
    pub fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// How many bytes one fault brings: `first` at first, and twice as much each time while faults follow each other,
    /// up to `most`. Both are at least a page, and are rounded down to a power of two of pages.
    pub fn windows(self, first: usize, most: usize) -> Self {
        self.first_window(first).most_window(most)
    }

    /// The same for the first alone.
    pub fn first_window(mut self, bytes: usize) -> Self {
        self.windows.first = Some(bytes);
        self
    }

    /// The same for the largest alone.
    pub fn most_window(mut self, bytes: usize) -> Self {
        self.windows.most = Some(bytes);
        self
    }

    /// Whether large windows are made of huge pages, as they are unless this says no.
    pub fn huge_pages(self, huge: bool) -> Self {
        Self { huge, ..self }
    }

    /// How much memory the region may have beyond what was asked for. That is memory made ready while a stream of
    /// faults goes on, and likewise the memory that one fault brings. A thread of idle priority, which all regions
    /// share, makes up to 64 MiB ready unless it is said otherwise, and gives it back soon after. Without a budget
    /// only the windows limit the memory that one fault brings. [`Delivery::Direct`] has what is mapped, and no more.
    /// With [`Delivery::Kernel`] a fault brings a page or a huge page; a huge one only if budget and windows allow 2 MiB.
    ///
    /// Buffers for a backing are not counted: up to 32 MiB, each with the bytes of its last use.
    pub fn budget(self, bytes: usize) -> Self {
        Self { budget: Some(bytes), ..self }
    }

    /// How many threads serve faults with [`Delivery::Thread`], 1 to 16 of them (more count as 16); each has an equal
    /// part of the region, and a descriptor of its own. With [`Delivery::Signal`] only the descriptors: threads that
    /// fault in different parts have less in common then.
    pub fn handlers(self, handlers: usize) -> Self {
        Self { handlers, ..self }
    }

    /// How many areas with different attributes there may be at a time.
    pub fn areas(self, areas: usize) -> Self {
        Self { areas, ..self }
    }

    /// Whether all of it is mapped at first; otherwise nothing is.
    pub fn mapped(self, mapped: bool) -> Self {
        Self { mapped, ..self }
    }

    /// Whether missing pages are zero, as they are unless this says no: then they may have old bytes of this
    /// process's own instead. Huge pages that such regions drop are kept, up to the process's `budget`, and come
    /// again to such regions, which saves zeroing them. For memory that is written to before it is read; with a
    /// backing, or delivered directly, it changes nothing.
    ///
    /// Memory that such a region drops may be written to at once, as memory that goes back to an allocator. So it
    /// must not be read any more, not even by the kernel: not from a pipe (`vmsplice`), nor for a socket
    /// (`MSG_ZEROCOPY`).
    pub fn zeroed(self, zeroed: bool) -> Self {
        Self { zeroed, ..self }
    }

    /// Whether the kernel tells the region what the program does to its memory by calls of its own, with
    /// [`Delivery::Thread`]: `fork`, `mremap`, `munmap`, `madvise`. Missing pages of forked children, and of memory
    /// that was moved away, then come from the backing. Ranges that were unmapped are known ([`Error::Lost`]).
    ///
    /// Each such call waits for a thread of the region's, and while it does no page is brought; those of the region's
    /// own as well. The process needs `CAP_SYS_PTRACE`. With a backing it has a process beside it. So children of a
    /// program that is killed find an error instead of a false zero (Linux 6.9).
    pub fn events(self, events: bool) -> Self {
        Self { events, ..self }
    }

    /// After what time a fault that is not served is reported on stderr.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where the bytes come from that were not written yet.
    pub fn backing(self, backing: impl Backing + 'static) -> Self {
        Self { backing: Some(Box::new(backing)), ..self }
    }

    /// Keeps the region below a budget of memory: pages that were not used lately go to a store, and come back when
    /// they are touched. So the region may be larger than the memory of the machine.
    ///
    /// It needs [`Delivery::Thread`] by which the kernel delivers its own faults, too, and has neither a backing nor
    /// events: otherwise [`Error::NoSwap`]. It has small pages alone, can neither be moved (`remap`) nor have snapshots,
    /// and is not in forked children. What may not be written to, and what the program or a device has locked, stays in
    /// memory.
    pub fn swap(self, swap: Swap) -> Self {
        Self { swap: Some(swap), ..self }
    }

    /// Why it cannot go with the other choices.
    fn check_swap(&self, swap: &Swap) -> Result<(), Error> {
        match self.delivery {
            _ if swap.budget < LEAST_IN_MEMORY => {
                Err(Error::Choice("the budget of a region with a store is less than 4 MiB: give more"))
            }
            _ if self.backing.is_some() || self.events => {
                Err(Error::NoSwap("a region with a backing or events has no store, so far"))
            }
            Delivery::Best | Delivery::Thread => Ok(()),
            Delivery::Direct | Delivery::Kernel => Err(Error::NoSwap(
                "with direct or kernel delivery no page comes back from a store: use thread delivery",
            )),
            Delivery::Signal => Err(Error::NoSwap(
                "with signal delivery a system call on a page in the store would fail: use thread delivery",
            )),
        }
    }

    fn orders(&self, delivery: Delivery) -> Orders {
        let order = |bytes: usize| (bytes / PAGE).max(1).ilog2().min(MOST_ORDER);
        let most = if delivery == Delivery::Signal { MOST_BY_SIGNAL } else { MOST_BY_THREAD };
        let first = self.windows.first.map_or(0, order);
        let most = self.windows.most.map_or(most, order);
        let most = most.min(self.budget.map_or(u32::MAX, order));
        // A window takes no more than half of the least budget.
        let most = if self.swap.is_some() { most.min(SLOT_ORDER) } else { most };
        Orders { first: first.min(most), most }
    }

    /// How many huge pages are asked for ahead of a stream.
    fn ahead(&self, delivery: Delivery) -> usize {
        let frames = self.budget.unwrap_or(BUDGET) / SLOT;
        let asks = self.huge && self.backing.is_none() && delivery.raises_faults();
        if asks && frames > 0 && owner::start() { frames } else { 0 }
    }

    /// Whether the choices make sense; [`Builder::build`] looks, too.
    pub fn check(&self) -> Result<(), Error> {
        let Windows { first, most } = self.windows;
        let is_less_than_a_page = |bytes: Option<usize>| bytes.is_some_and(|bytes| bytes < PAGE);
        match () {
            () if self.handlers == 0 => Err(Error::Choice("handlers is 0: a region has at least one")),
            () if self.areas == 0 => Err(Error::Choice("areas is 0: a region has at least one")),
            () if is_less_than_a_page(first) || is_less_than_a_page(most) => {
                Err(Error::Choice("a window is less than a page of 4096 bytes: it is whole pages"))
            }
            () if first.zip(most).is_some_and(|(first, most)| first > most) => {
                Err(Error::Choice("the first window is larger than the largest: give the smaller one first"))
            }
            () => self.swap.as_ref().map_or(Ok(()), |swap| self.check_swap(swap)),
        }
    }

    /// Makes the region.
    pub fn build(mut self) -> Result<Region, Error> {
        // A handler of the program's that ran in the middle of this, and made a region, would wait for itself.
        let _masked = Masked::new();
        self.check()?;
        let bytes =
            round_up(self.length, SLOT).filter(|bytes| *bytes > 0 && *bytes < 1 << 46).ok_or(Error::Length)?;
        if self.delivery != Delivery::Best {
            return self.make(bytes, self.delivery);
        }
        if self.backing.is_some() || self.events || self.swap.is_some() {
            // Nothing else would do, and the reason why it is no better is what helps.
            return self.make(bytes, Delivery::Thread);
        }
        if limits::memory().is_none()
            && let Ok(region) = self.make(bytes, Delivery::Best)
        {
            return Ok(region);
        }
        // Threads and descriptors are not what was asked for.
        self.make(bytes, Delivery::Kernel)
    }

    fn make(&mut self, bytes: usize, wanted: Delivery) -> Result<Region, Error> {
        let stripes = self.handlers.clamp(1, STRIPES.min(bytes / SLOT));
        let (delivery, opened) = match () {
            () if self.events => delivery::open_with_events(wanted, stripes),
            () if self.swap.is_some() => delivery::open_for_swap(stripes),
            () => delivery::open(wanted, stripes),
        }?;
        let orders = self.orders(delivery);
        if !delivery.raises_faults() && self.backing.is_some() {
            return Err(Error::DirectBacking);
        }
        let mut uffds = opened.uffds.into_iter();
        let uffds = std::array::from_fn(|_| uffds.next());
        let has_backing = self.backing.is_some();
        if self.swap.is_some() && !opened.way.is_some_and(Way::sees_kernel_faults) {
            return Err(Error::NoSwap(
                "the kernel delivers no faults of its own here, so a system call on a page in the store would fail",
            ));
        }
        let swap = self.swap.take().map(|swap| (swap.budget, swap.open(bytes))).map(|(budget, store)| {
            store
                .map(|store| (budget, store))
                .map_err(|error| Error::Kernel(error.raw_os_error().unwrap_or(libc::EIO)))
        });
        let (in_memory, store) = swap.transpose()?.unzip();
        let ahead = self.ahead(delivery);
        let mut mmu =
            UserMmu::new(bytes, uffds, Source::new(self.backing.take(), store)).map_err(|error| match error {
                Errno::ENOMEM => Error::NoAddressSpace,
                error => Error::Kernel(error.number()),
            })?;
        if delivery == Delivery::Signal {
            mmu.allow_looks();
        }
        if opened.notes_writes {
            mmu.note_writes();
        }
        let span = mmu.span();
        if self.events {
            mmu.note_losses().map_err(|_| Error::NoAddressSpace)?;
        } else if has_backing || in_memory.is_some() {
            mmu.keep_from_children().map_err(|error| Error::Kernel(error.number()))?;
        }
        // The kernel brings a huge page for a fault, whatever a window is: so that must not be beyond it.
        let huge = self.huge && in_memory.is_none() && (delivery != Delivery::Kernel || orders.most >= SLOT_ORDER);
        mmu.prefer_huge_by_default(huge);
        let plan = Plan { areas: self.areas.max(3), orders };
        let handlers = Epoch::new(page::places()).ok_or(Error::NoAddressSpace)?;
        let counted = page::counted(span, delivery as u64);
        let Some(memory) = Engine::new(mmu, span, plan, counted, &page().knobs) else {
            counted.end();
            return Err(Error::NoAddressSpace);
        };
        let memory = match in_memory {
            Some(budget) => memory.with_swap(budget).map_err(|error| {
                counted.end();
                no_swap(error)
            })?,
            None => memory,
        };
        let patience = if delivery == Delivery::Signal { PATIENCE_BY_SIGNAL } else { PATIENCE_BY_THREAD };
        let memory = memory.with_patience(patience);
        let memory = match owner::frames() {
            Some(frames) => memory.with_frames(frames, ahead),
            None => memory,
        };
        // The background thread gives the kept memory back after a while.
        let keeps =
            !self.zeroed && !has_backing && in_memory.is_none() && delivery.raises_faults() && owner::start();
        let memory = if keeps { memory.with_old_bytes() } else { memory };
        let shared = Arc::new(Shared::new(memory, counted, handlers));
        let shares_handler = !has_backing
            && !self.events
            && in_memory.is_none()
            && stripes == 1
            && self.patience == handler_pool::PATIENCE;
        let serving = match delivery {
            Delivery::Thread if shares_handler => Some(Serving::Shared(Place::find(&shared)?)),
            Delivery::Thread => {
                let events = self.events.then(|| Events::start(&shared)).transpose()?;
                Some(Serving::Own(Watched::start_with_handlers(shared.clone(), events, self.patience)?))
            }
            Delivery::Signal => {
                // Nothing else can take long where a thread resolves its own faults.
                let watched = has_backing.then(|| Watched::start(shared.clone(), self.patience)).transpose()?;
                signal::serve(shared.clone())?;
                watched.map(Serving::Own)
            }
            Delivery::Direct | Delivery::Kernel | Delivery::Best => None,
        };
        if let Err(error) = shared.memory.deliver() {
            if delivery == Delivery::Signal {
                signal::forget(&*shared);
            }
            return Err(Error::Kernel(error.number()));
        }
        let attributes =
            Attributes { rights: Rights::None, backed: has_backing, huge, random: false, kernel: false };
        let serves_system_calls = match delivery {
            Delivery::Signal => false,
            _ => opened.way.is_none_or(Way::sees_kernel_faults),
        };
        let shared = ManuallyDrop::new(shared);
        let serving = Mutex::new(serving);
        let region = Region { serving, shared, delivery, serves_system_calls, attributes, length: self.length };
        if self.mapped {
            region.map_slots(0..bytes, Rights::Write)?;
        }
        Ok(region)
    }
}

/// Why pages cannot leave a region.
fn no_swap(error: Errno) -> Error {
    match error {
        Errno::ENOMEM => Error::NoAddressSpace,
        Errno::EOPNOTSUPP => Error::NoSwap("this kernel moves no pages (UFFDIO_MOVE): Linux 6.8 does"),
        Errno::EBUSY => Error::NoSwap("the program locks all of its memory (mlockall), so no page may leave it"),
        error => Error::Kernel(error.number()),
    }
}
