//! Units of carved slots that belong to no block, shard by shard.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use faultless_base::{Pages, SLOT, UNIT};

use crate::frame::budget::MAX_SHARDS;

/// On a cache line of its own, because it is written at each call. Written with the shard's lock held.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Apart(AtomicUsize);

/// How many there are.
#[derive(Debug, Default)]
pub(super) struct UnusedUnits([Apart; MAX_SHARDS]);

impl UnusedUnits {
    /// Of one shard.
    #[inline]
    pub(super) fn of(&self, shard: usize) -> usize {
        self.0[shard].0.load(Relaxed)
    }

    /// Sets that; with the shard's lock held.
    #[inline]
    pub(super) fn set(&self, shard: usize, units: usize) {
        self.0[shard].0.store(units, Relaxed);
    }

    fn all(&self) -> usize {
        self.0.iter().map(|unused| unused.0.load(Relaxed)).sum()
    }

    /// The pages of all of them.
    pub(super) fn pages(&self) -> Pages {
        Pages::filled_by(self.all() * UNIT)
    }

    /// The slots that they would fill.
    pub(super) fn slots(&self) -> usize {
        self.all() * UNIT / SLOT
    }
}
