//! What the memory of a file counts as: for the owner of all frames, and in the totals of the process.

use core::ops::{Add, Sub};
use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{PAGE, SLOT_PAGES};
use faultless_page::gauges::Gauge;

use crate::cache::Cache;
use crate::cache::backing::Backing;
use crate::cache::index::{Entry, flag};

/// Pages of a slot, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Those that can go back on request.
    pub(super) free: usize,
    /// Those that a mapping holds.
    pub(super) held: usize,
    /// Those of huge pages.
    pub(super) huge: usize,
    /// Of these, those that lie in mappings.
    pub(super) mapped: usize,
}

impl Share {
    /// All of its memory.
    pub(super) fn pages(self) -> usize {
        self.free.wrapping_add(self.held)
    }

    fn with(self, other: Self, f: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            free: f(self.free, other.free),
            held: f(self.held, other.held),
            huge: f(self.huge, other.huge),
            mapped: f(self.mapped, other.mapped),
        }
    }

    /// With that many pages more, which are about to come.
    pub(super) fn coming(self, pages: usize, is_held: bool) -> Self {
        match is_held {
            true => Self { held: self.held + pages, ..self },
            false => Self { free: self.free + pages, ..self },
        }
    }
}

impl Add for Share {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.with(other, usize::wrapping_add)
    }
}

impl Sub for Share {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.with(other, usize::wrapping_sub)
    }
}

/// All of a file's memory, and how many slots the owner of all frames counts for it.
#[derive(Default)]
pub(super) struct Account {
    share: Share,
    pub(super) slots: usize,
}

impl Account {
    pub(super) fn share(&self) -> Share {
        self.share
    }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// The pages of memory that a slot takes.
    fn weight(&self, slot: usize) -> usize {
        match self.index.state(slot) & flag::HUGE != 0 {
            true => SLOT_PAGES,
            false => self.index.count(Entry::Present, slot),
        }
    }

    /// What they count as. The caller has the slot's lock.
    pub(super) fn share(&self, slot: usize) -> Share {
        let (state, weight) = (self.index.state(slot), self.weight(slot));
        let is_held = self.holds[slot].load(Relaxed) > 0;
        let huge = if state & flag::HUGE != 0 { SLOT_PAGES } else { 0 };
        let is_mapped = is_held || state & flag::WATCHED != 0;
        let (free, held) = if is_held { (0, weight) } else { (weight, 0) };
        Share { free, held, huge, mapped: if is_mapped { huge } else { 0 } }
    }

    /// Whether that many pages more count as one more slot.
    pub(super) fn is_account_full(&self, pages: usize) -> bool {
        let account = self.account.lock();
        account.share.free + pages > account.slots * SLOT_PAGES
    }

    /// Pages of some slot counted as `before`, and count as `after`.
    pub(super) fn count(&self, before: Share, after: Share) {
        self.tell(before, after);
        self.charge(before, after);
    }

    /// The same, but for the budget of a group.
    pub(super) fn tell(&self, before: Share, after: Share) {
        if before == after {
            return;
        }
        if let Some(gauges) = self.gauges {
            let bytes = |pages: usize| (pages * PAGE) as u64;
            gauges.change(Gauge::FileHugePages, bytes(before.huge), bytes(after.huge));
            gauges.change(Gauge::FilePmdMapped, bytes(before.mapped), bytes(after.mapped));
            gauges.change(Gauge::Unevictable, bytes(before.held), bytes(after.held));
        }
        let mut account = self.account.lock();
        account.share = account.share + after - before;
        let slots = account.share.free.div_ceil(SLOT_PAGES);
        if slots != account.slots {
            self.store.cached(account.slots, slots);
            account.slots = slots;
        }
    }
}
