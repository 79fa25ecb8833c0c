//! What is brought ahead of the program, and where the looks go on that find out what it uses.

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use faultless_base::sync::{TryGuard, TryLock};

use crate::predict::prefault_budget::PrefaultBudget;
use crate::state::announced::Announced;
use crate::state::growths::Growths;
use crate::state::supply::Supply;

/// Extents up to this many slots are demand for the stock; larger ones are followed as growth.
pub(crate) const SMALL_DEMAND: usize = 8;
/// How long looks at charged slots rest at most when they find nothing.
const LOOK_REST_MS: u32 = 64;

/// The memory that is brought ahead.
pub(crate) struct Ahead {
    growths: TryLock<Growths>,
    confirming: TryLock<Cursor>,
    /// Slots handed out in small extents since the background thread last looked, which takes them by a swap.
    demand: AtomicUsize,
    pub(crate) prefault_budget: PrefaultBudget,
    pub(crate) supply: Supply,
    pub(crate) announced: Announced,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        Self {
            growths: TryLock::new(Growths::new()),
            confirming: TryLock::new(Cursor::default()),
            demand: AtomicUsize::new(0),
            prefault_budget: PrefaultBudget::new(),
            supply: Supply::default(),
            announced: Announced::default(),
        }
    }

    /// The extents that are followed, and the stock; behind a lock.
    pub(crate) fn growths(&self) -> Option<TryGuard<'_, Growths>> {
        self.growths.lock_soon()
    }

    /// Where looks at charged slots go on, if no other thread is at it.
    pub(crate) fn confirming(&self) -> Option<TryGuard<'_, Cursor>> {
        self.confirming.try_lock()
    }

    /// The program asks for `n` slots.
    #[inline]
    pub(crate) fn note_request(&self, n: usize) {
        if n <= SMALL_DEMAND {
            self.demand.fetch_add(n, Relaxed);
        }
    }

    /// The slots that were asked for since the last call.
    pub(crate) fn take_demand(&self) -> usize {
        self.demand.swap(0, Relaxed)
    }

    /// In a forked child: the holders of the locks are not here, and nothing is followed.
    pub(crate) fn begin_again(&self) {
        self.growths.force_unlock();
        self.confirming.force_unlock();
        self.announced.begin_again();
        if let Some(mut growths) = self.growths.try_lock() {
            *growths = Growths::new();
        }
    }
}

/// Where looks at charged slots go on, and when.
#[derive(Default)]
pub(crate) struct Cursor {
    /// Which shard, and which of its slots.
    pub(crate) shard: usize,
    pub(crate) slot: usize,
    /// How long they rest, in ms, and since when.
    rest_ms: u32,
    since_ms: u32,
}

impl Cursor {
    pub(crate) fn rests(&self, now_ms: u32) -> bool {
        now_ms.wrapping_sub(self.since_ms) < self.rest_ms
    }

    /// Looks end. A program that uses little of what it has is not looked at again and again.
    pub(crate) fn rest(&mut self, has_found: bool, now_ms: u32) {
        self.rest_ms = if has_found { 0 } else { (self.rest_ms * 2).clamp(1, LOOK_REST_MS) };
        self.since_ms = now_ms;
    }
}
