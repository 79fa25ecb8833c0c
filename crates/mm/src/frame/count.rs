//! Counts of the account: single words that any thread changes, and that order nothing.

use core::fmt;

use faultless_base::Pages;
use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many slots.
#[derive(Default)]
pub(super) struct SlotCount(AtomicUsize);

impl SlotCount {
    #[inline]
    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self, slots: usize) {
        self.0.store(slots, Relaxed);
    }

    /// Adds some; how many there are then.
    #[inline]
    pub(super) fn add(&self, slots: usize) -> usize {
        self.0.fetch_add(slots, Relaxed) + slots
    }

    /// Takes some away; as many must be there.
    #[inline]
    pub(super) fn sub(&self, slots: usize) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |v| {
            debug_assert!(v >= slots, "account overdrawn: {v} - {slots}");
            Some(v.saturating_sub(slots))
        });
    }

    /// Takes away up to this number; how many it took.
    #[inline]
    pub(super) fn sub_up_to(&self, slots: usize) -> usize {
        let less = |v: usize| Some(v - v.min(slots));
        self.0.fetch_update(Relaxed, Relaxed, less).map_or(0, |before| before.min(slots))
    }

    /// Adds some, but no more than that there are `most` then.
    pub(super) fn add_up_to(&self, slots: usize, most: usize) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |v| Some((v + slots).min(most)));
    }
}

/// How many pages.
#[derive(Default)]
pub(super) struct PageCount(SlotCount);

impl PageCount {
    #[inline]
    pub(super) fn get(&self) -> Pages {
        Pages::new(self.0.get())
    }

    pub(super) fn set(&self, pages: Pages) {
        self.0.set(pages.count());
    }

    pub(super) fn add(&self, pages: Pages) {
        self.0.add(pages.count());
    }

    /// Takes some away; as many must be there.
    pub(super) fn sub(&self, pages: Pages) {
        self.0.sub(pages.count());
    }

    /// Takes away up to this number; how many it took.
    pub(super) fn sub_up_to(&self, pages: Pages) -> Pages {
        Pages::new(self.0.sub_up_to(pages.count()))
    }

    /// It is at least this number.
    pub(super) fn raise(&self, pages: Pages) {
        self.0.0.fetch_max(pages.count(), Relaxed);
    }

    /// Takes all away; how many there were.
    pub(super) fn take(&self) -> Pages {
        Pages::new(self.0.0.swap(0, Relaxed))
    }
}

impl fmt::Debug for SlotCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Debug for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
