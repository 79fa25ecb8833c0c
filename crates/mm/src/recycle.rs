//! Memory whose content the program drops (`MADV_DONTNEED`): given to the kernel as always, or zeroed where it stands
//! when the program uses it again soon, drop after drop.
//!
//! A huge page that goes costs its removal, a fault, zeroing by the kernel and, on a machine that was idle, a page
//! that its host has to find first. Zeroing the one that is there costs only that. It stays charged until it is used,
//! so a program that does not come back gives up the budget's worth of memory at most, and with its next drop all.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span};

use crate::arena::Extent;
use crate::mapping::Change;
use crate::slot::flag;
use crate::space::{Shard, Space};
use crate::stats::Counter;

/// Slots zeroed at once (64 MiB): what an unmap or a fork of another thread may have to wait for.
const AT_ONCE: usize = 32;

impl<S: Sys> Space<S> {
    /// The program drops the content of `span`. Zeroes what is better kept, and calls `give` for all the rest, part
    /// by part: the kernel is to drop that. The thread takes no signals meanwhile: a handler might unmap the memory,
    /// and would wait for itself.
    pub fn recycle(&self, span: Span, mut give: impl FnMut(Span)) {
        self.each_part(span.aligned_inside(SLOT), |shard, _, e| self.note_left(shard, e));
        let alone = self.dropping.try_lock();
        let back = alone.as_ref().and_then(|_| self.comes_back(span));
        self.change(span, Change::Dropped);
        let mut rest = span;
        if let Some((shard, e)) = back {
            for first in (e.first..e.first + e.n).step_by(AT_ONCE) {
                let piece = Extent { first, n: AT_ONCE.min(e.first + e.n - first) };
                self.zero_dropped(shard, piece, |zeroed| {
                    if rest.start < zeroed.start {
                        give(Span { start: rest.start, end: zeroed.start });
                    }
                    rest.start = zeroed.end;
                });
            }
        }
        drop(alone);
        if !rest.is_empty() {
            give(rest);
        }
    }

    /// The whole slots in `span`, if they are in use, and were so at the last drops too.
    fn comes_back(&self, span: Span) -> Option<(&Shard, Extent)> {
        let inner = span.aligned_inside(SLOT);
        if inner.is_empty() || inner.clip(self.span()) != inner || self.budget.limit() == 0 {
            return None;
        }
        let (shard, first) = self.locate(inner.start);
        let e = Extent { first, n: inner.bytes() / SLOT };
        if first + e.n > shard.slots.len() || self.is_retired() {
            return None;
        }
        let in_use = |i: usize| {
            let one = Extent { first: i, n: 1 };
            self.dropped_now.enter(shard.span(one), shard.slots, one, |_| self.is_used(shard, i)) == Some(true)
        };
        let in_use = in_use(e.first) && in_use(e.first + e.n - 1);
        let expected = shard.dropped.is_long();
        shard.dropped.note(in_use);
        (in_use && expected).then_some((shard, e))
    }

    /// Zeroes those of `e` that are in use, as far as the budget goes.
    fn zero_dropped(&self, shard: &Shard, e: Extent, mut zeroed: impl FnMut(Span)) {
        self.dropped_now.enter(shard.span(e), shard.slots, e, |_| {
            let worth = |i: usize| self.is_used(shard, i) && self.charge_dropped(shard, i);
            shard.groups(e, worth, |g, worth| {
                if worth {
                    let start = self.sys.now_ns();
                    self.sys.zero_hot(shard.span(g));
                    shard.count(Counter::HotZeroNs, (self.sys.now_ns() - start) as usize);
                    shard.count(Counter::BytesRecycled, g.n * SLOT);
                    zeroed(shard.span(g));
                }
            });
        });
    }

    /// Whether slot `i` has memory that the program wrote to all over.
    fn is_used(&self, shard: &Shard, i: usize) -> bool {
        self.is_present(shard, i) && self.is_dense(shard, i)
    }

    /// Charges a slot whose content goes and whose memory stays; false when the budget has no room for it.
    fn charge_dropped(&self, shard: &Shard, i: usize) -> bool {
        let charged = shard.slots.has(i, flag::CHARGED);
        let after = self.budget.charged() + self.budget.idle() + !charged as usize;
        if after > self.budget.limit() {
            return false;
        }
        if shard.slots.share(i, flag::CHARGED) & flag::CHARGED == 0 {
            self.budget.charge(1);
        }
        true
    }
}
