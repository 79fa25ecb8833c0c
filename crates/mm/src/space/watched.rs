//! What the background thread keeps an eye on: growing extents, advised mappings, the supply. Data only;
//! [`crate::background::ahead`], [`crate::mapping::advice`] and `supply.rs` act on it.

use core::sync::atomic::{AtomicBool, AtomicUsize};

use faultless_base::Span;

/// Extents up to this many slots are demand for the stock; larger ones are followed as growth.
pub const SMALL_DEMAND: usize = 8;
/// Growing extents followed at a time.
pub(crate) const FOLLOWED: usize = 8;
/// Time without demand after which the stock is not filled up any more.
pub(crate) const STOCK_QUIET_LOOKS: u32 = 40;
/// Mappings known at a time.
pub(crate) const KNOWN: usize = 16;
/// Looks without a change after which they end until the program maps something again.
pub(crate) const ADVICE_PATIENCE: u32 = 100;

/// A large extent that was handed out without memory.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) shard: usize,
    pub(crate) first: usize,
    pub(crate) n: usize,
    /// What it lies in, which is one area to the kernel until a part of it is advised.
    pub(crate) whole: Span,
    /// Slots that have got huge-page advice: those before this one.
    pub(crate) advised: usize,
    /// Slots that were touched before it was handed out: that they are there says nothing of the program.
    pub(crate) begin: usize,
    /// Slots that the program has passed.
    pub(crate) reached: usize,
    /// Slots that were looked at after the program had passed them.
    pub(crate) confirmed: usize,
    /// Slots looked at for touching.
    pub(crate) touched: usize,
    pub(crate) window: usize,
    /// The last window that memory was moved to.
    pub(crate) moved: Option<Window>,
    pub(crate) quiet: u32,
}

/// Slots that memory was moved to.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// The one before them, which is left to the program.
    pub(crate) marker: usize,
    pub(crate) end: usize,
    /// How many they are: between them may be some that the program has already.
    pub(crate) moved: usize,
}

/// The extents that are being followed, and the stock.
pub struct Growths {
    pub(crate) followed: [Option<Growth>; FOLLOWED],
    pub(crate) next: usize,
    pub(crate) stock: usize,
    pub(crate) stock_quiet: u32,
}

impl Growths {
    /// Nothing to follow.
    pub const fn new() -> Self {
        Self { followed: [None; FOLLOWED], next: 0, stock: 0, stock_quiet: STOCK_QUIET_LOOKS }
    }

    /// After a fork, in the child.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }
}

impl Default for Growths {
    fn default() -> Self {
        Self::new()
    }
}

/// A mapping of the program.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// Its whole slots.
    pub(crate) span: Span,
    /// Groups that it may be divided into: each costs areas.
    pub(crate) most_groups: usize,
    /// How many slots of each of its groups have been advised.
    pub(crate) depth: usize,
    /// Slots charged for it: one for `share` slots that were advised.
    pub(crate) charged: usize,
    pub(crate) share: usize,
    pub(crate) use_: Use,
    /// Whether huge pages are refused there for now, because they are cold.
    pub(crate) refused: bool,
    /// Whether the program has given up a part of it. Then it only counts, until all of it is gone.
    pub(crate) cut: bool,
}

/// How the program uses a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It has not shown yet.
    Unknown,
    /// Most pages of what it touches.
    Dense,
    /// A page here and there.
    Sparse,
}

/// The mappings that were advised.
pub struct Advices {
    pub(crate) known: [Option<Known>; KNOWN],
    /// Which one makes room for another first.
    pub(crate) next: usize,
    pub(crate) quiet: u32,
}

impl Advices {
    /// None.
    pub const fn new() -> Self {
        Self { known: [None; KNOWN], next: 0, quiet: ADVICE_PATIENCE }
    }

    /// Where there is room for another mapping: a free place, or that of one that does not count and `may_go`.
    pub(crate) fn place(&self, may_go: impl Fn(&Known) -> bool) -> Option<usize> {
        let free = self.known.iter().position(Option::is_none);
        let ended = |place: &usize| self.known[*place].is_some_and(|k| k.charged == 0 && may_go(&k));
        free.or_else(|| (0..KNOWN).map(|i| (self.next + i) % KNOWN).find(ended))
    }
}

impl Default for Advices {
    fn default() -> Self {
        Self::new()
    }
}

/// Huge pages to be zeroed beforehand, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Slots that were asked for and not zeroed since.
    pub(crate) due: AtomicUsize,
    /// Windows in which the program followed.
    pub(crate) followed: AtomicUsize,
    /// Whether this process cannot move pages.
    pub(crate) refused: AtomicBool,
    /// Whether the program looks which pages are resident.
    pub(crate) looked: AtomicBool,
    /// Whether the kernel may use frames of the program's without a mapping, in ways that a move does not see.
    pub(crate) referenced: AtomicBool,
}
