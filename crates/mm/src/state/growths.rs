//! The extents that the background thread follows, and how large the stock is. Behind the lock of
//! [`Ahead`](crate::state::ahead::Ahead).

use faultless_base::{Slot, Span};

use crate::frame::extent::Extent;

/// Growing extents followed at a time.
pub(crate) const FOLLOWED: usize = 8;
/// Most slots kept in stock (64 MiB).
pub(crate) const STOCK_MAX: usize = 32;
/// Looks without demand after which the stock is not filled up any more.
const STOCK_QUIET_LOOKS: u32 = 40;

/// A large extent that was handed out without memory. [`crate::background::ahead`] says how its numbers change.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) shard: usize,
    pub(crate) first: Slot,
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
    /// When it was handed out, and how many slots were touched since to see what that takes.
    pub(crate) since_ms: u32,
    pub(crate) probes: u16,
    pub(crate) quiet: u16,
}

impl Growth {
    /// All of it. The counts below are of its slots from the first on.
    pub(crate) fn extent(&self) -> Extent {
        Extent { first: self.first, n: self.n }
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.shard, self.first) == (other.shard, other.first)
    }
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

/// How many zeroed slots are kept ready.
struct Stock {
    size: usize,
    /// Looks since the last demand.
    quiet: u32,
}

/// The extents that are being followed, and the stock.
pub(crate) struct Growths {
    followed: [Option<Growth>; FOLLOWED],
    /// Which one makes room for another first.
    next: usize,
    stock: Stock,
}

impl Growths {
    /// Nothing to follow.
    pub(crate) const fn new() -> Self {
        Self { followed: [None; FOLLOWED], next: 0, stock: Stock { size: 0, quiet: STOCK_QUIET_LOOKS } }
    }

    /// One more is followed, if need be in place of another one.
    pub(crate) fn add(&mut self, growth: Growth) {
        let place = self.followed.iter().position(Option::is_none).unwrap_or(self.next % FOLLOWED);
        self.followed[place] = Some(growth);
        self.next = place + 1;
    }

    pub(crate) fn at(&self, place: usize) -> Option<Growth> {
        self.followed[place]
    }

    /// The growth that was at `place` is as `growth` says now, or is followed no more; unless the program has put another
    /// extent there meanwhile.
    pub(crate) fn update(&mut self, place: usize, growth: &Growth, goes_on: bool) {
        if self.followed[place].is_some_and(|g| g.is_same(growth)) {
            self.followed[place] = goes_on.then_some(*growth);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Growth> {
        self.followed.iter().flatten()
    }

    /// How large the stock is to be, after `demand` slots were asked for since the last look. `None`: there was no
    /// demand for long.
    pub(crate) fn stock_for(&mut self, demand: usize) -> Option<usize> {
        let stock = &mut self.stock;
        if demand > 0 {
            *stock = Stock { size: (stock.size * 2).clamp(demand.min(STOCK_MAX), STOCK_MAX), quiet: 0 };
        } else {
            stock.quiet += 1;
        }
        if stock.quiet > STOCK_QUIET_LOOKS {
            stock.size = 0;
            return None;
        }
        Some(stock.size)
    }
}
