//! Blocks of memory that share regions: many need one handler, its descriptors and one table of areas together.
//!
//! A heap has a list of regions, mostly one, of which nothing is mapped at first. A block is an area of one of them:
//! windows end with it, and an area that is left to the kernel is one block. It begins at a multiple of 2 MiB. A
//! block that is dropped is unmapped, so its memory is gone. The next block there is zero again, and has no attribute
//! that the program gave this one.
//!
//! One lock protects the list and the free runs. No thread holds it across a system call. A forked child has a list
//! of its own: the regions of its parent cannot be changed there, and a thread of the parent may have held the lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_base::units::round_up;
use faultless_base::{PAGE, SLOT};

use crate::delivery::Delivery;
use crate::error::Error;
use crate::process::limits;
use crate::process::owner::{OfProcess, Owner};
use crate::region::{Advice, Builder, Region, Snapshot};
use faultless_base::sys::mmu::Rights;

/// Addresses of a region, unless one block needs more. They take no memory.
const LENGTH: usize = 64 << 30;
/// Addresses of a region where the kernel refuses [`LENGTH`]. Where it refuses these too, a region is as long as its
/// first block.
const LESS: usize = 1 << 30;
/// The part of a limit of addresses that a region may have beyond its first block. Reservations are only ours, and
/// what the program itself asks for has to fit beside them.
const PART_OF_LIMIT: usize = 64;
/// Blocks of a region at a time, at most.
const AREAS: usize = 1 << 14;

/// Areas that a change takes while it lasts.
const SPARE_AREAS: usize = 8;

/// How a region is made.
type Choose = Box<dyn Fn(Builder) -> Builder + Send + Sync>;

/// Where blocks come from. It lives as long as the process.
pub struct Heap {
    choose: Choose,
    keeps_threads: bool,
    regions: OfProcess<Regions>,
}

struct Regions {
    owner: Owner,
    keeps_threads: bool,
    homes: Mutex<Vec<Home>>,
}

/// A region and its free ranges.
struct Home {
    region: Arc<Region>,
    /// Length by offset, in whole slots; no two of them touch.
    free: BTreeMap<usize, usize>,
    length: usize,
}

/// A block of memory of zeroes, or of old bytes where the regions may have those. Its memory goes with it.
pub struct Block {
    regions: &'static Regions,
    region: Arc<Region>,
    offset: usize,
    length: usize,
}

impl Regions {
    fn homes(&self) -> MutexGuard<'_, Vec<Home>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home {
    fn new(region: Region, length: usize) -> Self {
        Self { region: Arc::new(region), free: BTreeMap::from([(0, length)]), length }
    }

    /// Takes the first run that is long enough; where it begins.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (offset, length) =
            self.free.iter().find(|(_, length)| **length >= bytes).map(|(at, len)| (*at, *len))?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some((before, length)) = self.free.range(..offset).next_back().map(|(at, len)| (*at, *len))
            && before + length == offset
        {
            self.free.remove(&before);
            (offset, bytes) = (before, length + bytes);
        }
        bytes += self.free.remove(&(offset + bytes)).unwrap_or(0);
        self.free.insert(offset, bytes);
    }

    fn is_empty(&self) -> bool {
        self.free.first_key_value() == Some((&0, &self.length))
    }

    /// Whether threads would have to be started again, were it to end. One that is larger than others was made for
    /// its block.
    fn is_worth_keeping(&self) -> bool {
        self.region.delivery() == Delivery::Thread && self.length <= LENGTH
    }
}

impl Heap {
    /// A heap of which `choose` makes the regions: it sets all but their length and what is mapped.
    ///
    /// ```
    /// use faultless::region::Heap;
    ///
    /// let heap = Heap::new(|builder| builder.budget(16 << 20));
    /// let blocks = (0..100).map(|_| heap.allocate(1 << 20)).collect::<Result<Vec<_>, _>>()?;
    /// # drop(blocks);
    /// # Ok::<(), faultless::region::Error>(())
    /// ```
    pub fn new(choose: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> &'static Self {
        Self::leaked(Box::new(choose), false)
    }

    /// The same for a heap that is used again and again: a region with handler threads stays when its last block goes.
    pub fn lasting(choose: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> &'static Self {
        Self::leaked(Box::new(choose), true)
    }

    fn leaked(choose: Choose, keeps_threads: bool) -> &'static Self {
        Box::leak(Box::new(Self { choose, keeps_threads, regions: OfProcess::new() }))
    }

    /// The list of this process.
    fn regions(&self) -> &'static Regions {
        self.regions.get(|| Regions {
            owner: Owner::here(),
            keeps_threads: self.keeps_threads,
            homes: Mutex::default(),
        })
    }

    /// A block of `length` bytes.
    pub fn allocate(&self, length: usize) -> Result<Block, Error> {
        let bytes = round_up(length, SLOT).filter(|bytes| *bytes > 0).ok_or(Error::Length)?;
        let regions = self.regions();
        // Those that have no room for one more area are passed over, as are those that cannot serve any more.
        let mut passed: Vec<Arc<Region>> = Vec::new();
        loop {
            let is_passed = |home: &Home| passed.iter().any(|region| Arc::ptr_eq(region, &home.region));
            let place = |home: &mut Home| Some((home.region.clone(), home.take(bytes)?));
            let found = regions.homes().iter_mut().filter(|home| !is_passed(home)).find_map(place);
            let Some((region, offset)) = found else {
                let (region, length) = self.region(bytes)?;
                regions.homes().push(Home::new(region, length));
                continue;
            };
            let mapped = region.map(offset..offset + length.next_multiple_of(PAGE), Rights::Write);
            match mapped {
                Ok(()) => {
                    let block = Block { regions, region, offset, length };
                    block.region.prefer_small(block.head());
                    return Ok(block);
                }
                Err(Error::TooManyAreas | Error::Closed) => {
                    regions.give(&region, offset, bytes);
                    passed.push(region);
                }
                Err(error) => {
                    regions.give(&region, offset, bytes);
                    return Err(error);
                }
            }
        }
    }

    /// A new region, and how long it is.
    fn region(&self, bytes: usize) -> Result<(Region, usize), Error> {
        let make = |length: usize| {
            // No more than there can be blocks.
            let areas = AREAS.min(length / SLOT + SPARE_AREAS);
            let builder = (self.choose)(Region::builder(length).areas(areas));
            builder.mapped(false).build().map(|region| (region, length))
        };
        let most = limits::memory().map_or(usize::MAX, |limit| limit / PART_OF_LIMIT / SLOT * SLOT);
        let mut last = Error::NoAddressSpace;
        for length in [LENGTH, LESS, 0] {
            match make(length.min(most).max(bytes)) {
                Err(error @ Error::NoAddressSpace) => last = error,
                made => return made,
            }
        }
        Err(last)
    }
}

impl Regions {
    /// A run is free again. A region without blocks ends, unless the heap keeps it.
    fn give(&self, region: &Arc<Region>, offset: usize, bytes: usize) {
        let ended = {
            let mut homes = self.homes();
            let Some(at) = homes.iter().position(|home| Arc::ptr_eq(&home.region, region)) else { return };
            homes[at].give(offset, bytes);
            let stays = !homes[at].is_empty() || self.keeps_threads && homes[at].is_worth_keeping();
            (!stays).then(|| homes.swap_remove(at))
        };
        // Not with the lock: threads may have to end.
        drop(ended);
    }
}

impl Block {
    /// The first 2 MiB, in slots. They are of small pages in every delivery mode: a block of which only the beginning
    /// is used takes no more than that.
    fn head(&self) -> Range<usize> {
        self.offset..self.offset + SLOT
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr().wrapping_add(self.offset)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false: a block has at least one byte. (Clippy asks for it beside `len`.)
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How faults are delivered.
    pub fn delivery(&self) -> Delivery {
        self.region.delivery()
    }

    /// As [`Region::serves_system_calls`].
    pub fn serves_system_calls(&self) -> bool {
        self.region.serves_system_calls()
    }

    /// As [`Region::check_thread`].
    pub fn check_thread(&self) -> Result<(), Error> {
        self.region.check_thread()
    }

    /// Takes a snapshot of it, as [`Region::snapshot`] does of a region. It holds what the block had, also when the
    /// block is gone.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let end = self.offset + self.length.next_multiple_of(SLOT);
        self.region.snapshot_of_slots(self.offset..end, self.length)
    }

    /// Brings all pages of it at once, so that system calls find them in every delivery mode.
    pub fn populate(&self) -> Result<(), Error> {
        self.populate_range(0..self.length.next_multiple_of(PAGE))
    }

    /// The same of a part, in whole pages.
    pub fn populate_range(&self, range: Range<usize>) -> Result<(), Error> {
        if range.start > range.end || range.end > self.length.next_multiple_of(PAGE) {
            return Err(Error::Outside);
        }
        self.region.populate(self.offset + range.start..self.offset + range.end)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A child keeps the pages that it has of its parent's blocks until it ends: the region is not its own.
        if !self.regions.owner.is_here() {
            return;
        }
        // Whole slots, as its head is one. What the program said of them to the kernel ends, too.
        let bytes = self.length.next_multiple_of(SLOT);
        match self.region.unmap(self.offset..self.offset + bytes) {
            Ok(()) => self.regions.give(&self.region, self.offset, bytes),
            // It gives its memory back, and is not handed out again.
            Err(_) => {
                let pages = self.offset..self.offset + self.length.next_multiple_of(PAGE);
                let _ = self.region.advise(pages, Advice::DontNeed);
            }
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = self.as_ptr() as usize;
        write!(f, "Block({start:#x}-{:#x}, {:?})", start + self.length, self.delivery())
    }
}
