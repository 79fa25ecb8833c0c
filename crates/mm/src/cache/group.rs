//! Files that share a hard budget: together they never have more pages in memory.
//!
//! Room is taken before pages come, by a thread that has no pin and no lock. So who waits for room keeps no page from
//! going. Memory and the room that was taken are one count, which never exceeds the budget.
//!
//! Pages that a mapping holds do not go. What a mapping may need is *promised* before it is made, and promises do not
//! exceed the budget either. So mappings wait for what can go, and never for each other.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sync::atomic::AtomicUsize;
use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES};
use faultless_page::stats::Counter;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, Part, Pin, flag};
use crate::cache::share::Share;
use crate::cache::staging::PLACE_PAGES;

/// How long a miss waits for room at most, in ms: what is in use is so for a moment.
const PATIENCE_MS: u32 = 30_000;
/// The same where changed pages cannot be written.
const PATIENCE_FAILED_MS: u32 = 1000;
/// Slots that go for a huge page at most, before small pages have to do.
const MOST_GONE: usize = 4;
/// A call brings this part of the pages that can go at a time, at most.
const STEP: usize = 8;

/// What the files of a group may have together, and what they have, in pages.
pub struct Budget {
    most: usize,
    /// Pages in memory, and those for which room was taken.
    used: AtomicUsize,
    /// Pages that mappings hold or may come to hold.
    promised: AtomicUsize,
}

impl Budget {
    /// A budget of that many bytes; parts of a page do not count.
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes / PAGE, used: AtomicUsize::new(0), promised: AtomicUsize::new(0) }
    }

    /// All of it, in bytes.
    pub fn bytes(&self) -> usize {
        self.most * PAGE
    }

    /// What is in use of it, in bytes: pages in memory, and those that are coming.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed) * PAGE
    }

    /// What mappings hold or may come to hold, in bytes.
    pub fn promised(&self) -> usize {
        self.promised.load(Relaxed) * PAGE
    }

    fn take_of(&self, count: &AtomicUsize, pages: usize) -> bool {
        let more = |now: usize| now.checked_add(pages).filter(|sum| *sum <= self.most);
        count.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn take(&self, pages: usize) -> bool {
        self.take_of(&self.used, pages)
    }

    fn change(&self, before: usize, after: usize) {
        self.used.fetch_add(after.wrapping_sub(before), Relaxed);
    }

    /// Bytes that may be in memory without a mapping.
    pub(super) fn free_bytes(&self) -> usize {
        self.free() * PAGE
    }

    /// Pages that can go, or may come for misses.
    fn free(&self) -> usize {
        self.most.saturating_sub(self.promised.load(Relaxed))
    }
}

/// Files with a budget.
pub trait Group: Send + Sync {
    /// The budget.
    fn budget(&self) -> &Budget;
    /// Lets one slot of some file go; whether one went. It waits for no other thread.
    fn evict(&self) -> bool;
    /// Writes back what has changed in all files; the first error.
    fn write_back(&self) -> Result<(), Errno>;
}

/// Which pages a miss may bring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// A huge page, where there is room for one.
    Any,
    /// Those that are needed alone.
    Small,
}

/// Room for pages that are about to come. What is not used of it is free again when this is dropped.
pub(super) struct Room<'a> {
    group: Option<&'a dyn Group>,
    pages: usize,
    is_short: bool,
}

impl Room<'_> {
    /// Whether it is enough.
    pub(super) fn has(&mut self, pages: usize) -> bool {
        self.is_short = self.group.is_some() && pages > self.pages;
        !self.is_short
    }

    /// Whether a huge page may come.
    pub(super) fn is_huge(&self) -> bool {
        self.group.is_none() || self.pages >= SLOT_PAGES
    }

    /// The room of another one, too.
    pub(super) fn add(&mut self, mut other: Self) {
        self.pages += core::mem::take(&mut other.pages);
    }

    /// Pages have come: they count in place of a part of it.
    pub(super) fn use_for(&mut self, before: Share, after: Share) {
        let Some(group) = self.group else { return };
        match after.pages().checked_sub(before.pages()) {
            None => group.budget().change(before.pages(), after.pages()),
            Some(came) => {
                debug_assert!(came <= self.pages, "more has come than there was room for");
                group.budget().change(self.pages.min(came), came);
                self.pages -= self.pages.min(came);
            }
        }
    }

    /// Pages have come: they count in place of it.
    pub(super) fn settle(&mut self, before: Share, after: Share) {
        if let Some(group) = self.group {
            let pages = core::mem::take(&mut self.pages);
            debug_assert!(after.pages() <= before.pages() + pages, "more has come than there was room for");
            group.budget().change(before.pages() + pages, after.pages());
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.settle(Share::default(), Share::default());
    }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Bytes of a slot that a call brings at a time, at most.
    pub(super) fn step(&self) -> usize {
        self.backing.group().map_or(SLOT, |group| (group.budget().free() / STEP).clamp(1, SLOT_PAGES) * PAGE)
    }

    /// Pages that come at most when those of `part` are brought, by a huge page if that may be.
    pub(super) fn need(&self, slot: usize, part: Part, size: Size) -> usize {
        let state = self.index.state(slot);
        let missing = self.index.missing(slot, part);
        if missing == 0 || state & flag::HUGE != 0 {
            return 0;
        }
        let may_be_huge = size == Size::Any && state & (flag::FILLED | flag::TABLE) == 0 && self.is_huge_at(slot);
        let pages = if may_be_huge { SLOT_PAGES } else { missing };
        // They are read beside the file.
        pages + if state & flag::WATCHED != 0 { PLACE_PAGES } else { 0 }
    }

    /// Room for that many pages, if there is some without waiting, or some slots can go for it.
    pub(super) fn try_room(&self, pages: usize) -> Option<Room<'_>> {
        let Some(group) = self.backing.group() else {
            return Some(Room { group: None, pages: 0, is_short: false });
        };
        for _ in 0..=MOST_GONE {
            if group.budget().take(pages) {
                return Some(Room { group: Some(group), pages, is_short: false });
            }
            if !group.evict() {
                break;
            }
        }
        None
    }

    /// Room for pages of a slot. It waits for what is in use for a moment, or not yet written. The caller has neither a
    /// pin, but of what it holds, nor a lock. ENOMEM: mappings hold too much. Else why pages could not be written.
    fn room(&self, slot: usize, part: Part, size: Size) -> Result<Room<'_>, Errno> {
        let Some(group) = self.backing.group() else { return Ok(Room { group: None, pages: 0, is_short: false }) };
        let mut size = size;
        let (mut turn, mut since, mut written) = (0, None, Ok(()));
        loop {
            let pages = self.need(slot, part, size);
            if let Some(room) = self.try_room(pages) {
                return Ok(room);
            }
            if size == Size::Any {
                size = Size::Small;
                continue;
            }
            if pages > group.budget().free() + self.still_promised(slot) {
                return Err(Errno::ENOMEM);
            }
            let now = self.store.now_ms();
            let waited = now.wrapping_sub(*since.get_or_insert(now));
            if waited > if written.is_ok() { PATIENCE_MS } else { PATIENCE_FAILED_MS } {
                return Err(written.err().unwrap_or(Errno::ENOMEM));
            }
            self.counters.add(Counter::FileThrottled, 1);
            written = group.write_back();
            self.memory.relax(turn);
            turn += 1;
        }
    }

    /// Pins a slot, of which `bring` brings a part; there is room for that.
    pub(super) fn pin_with_room(
        &self,
        slot: usize,
        part: Part,
        size: Size,
        mut bring: impl FnMut(&mut Room<'_>) -> Result<(), Errno>,
    ) -> Result<Pin<'_>, Errno> {
        loop {
            let mut room = self.room(slot, part, size)?;
            let pin = self.pin(slot);
            match bring(&mut room) {
                // Pages have gone since.
                Err(_) if room.is_short => {}
                brought => return brought.map(|()| pin),
            }
        }
    }

    /// A mapping is about to hold a slot, of which the caller has the lock; whether there is room for all that it may
    /// come to hold.
    pub(super) fn promise(&self, slot: usize) -> bool {
        let (Some(group), Some(promised)) = (self.backing.group(), &self.promised) else { return true };
        if self.holds[slot].load(Relaxed) > 0 {
            return true;
        }
        let is_huge = self.is_huge_at(slot) || self.index.state(slot) & flag::HUGE != 0;
        let pages = if is_huge { SLOT_PAGES } else { self.inside(slot).count };
        let pages = pages.max(self.index.count(Entry::Present, slot));
        let budget = group.budget();
        let is_kept = budget.take_of(&budget.promised, pages);
        promised[slot].store(if is_kept { pages } else { 0 }, Relaxed);
        is_kept
    }

    /// Pages of a slot that were promised, and are not there.
    fn still_promised(&self, slot: usize) -> usize {
        let promised = self.promised.as_ref().map_or(0, |promised| promised[slot].load(Relaxed));
        promised.saturating_sub(self.index.count(Entry::Present, slot))
    }

    /// No mapping holds a slot any more. The caller has its lock.
    pub(super) fn end_promise(&self, slot: usize) {
        if let (Some(group), Some(promised)) = (self.backing.group(), &self.promised) {
            group.budget().promised.fetch_sub(promised[slot].swap(0, Relaxed), Relaxed);
        }
    }

    /// A slot that is held has more pages than were promised: the file has grown. The caller has its lock.
    pub(super) fn keep_promise(&self, slot: usize, share: Share) {
        if let (Some(group), Some(promised)) = (self.backing.group(), &self.promised) {
            let more = share.held.saturating_sub(promised[slot].load(Relaxed));
            promised[slot].fetch_add(more, Relaxed);
            group.budget().promised.fetch_add(more, Relaxed);
        }
    }

    /// Pages of some slot came or went.
    pub(super) fn charge(&self, before: Share, after: Share) {
        if let Some(group) = self.backing.group() {
            group.budget().change(before.pages(), after.pages());
        }
    }
}
