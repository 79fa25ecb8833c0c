//! What calls of the program do to its blocks beside reading and writing them.
//!
//! Memory whose attributes changed (protection, locking, policy, inheritance, a pin) must not be handed out again: it
//! goes back to the kernel when its block is freed.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span};

use crate::arena::Extent;
use crate::mapping::Change;
use crate::slot::{State, flag};
use crate::space::Space;

impl<S: Sys> Space<S> {
    /// Attributes of the blocks in `span` change. The background thread is out of them when this returns.
    pub fn taint(&self, span: Span) {
        self.each_part(span, |shard, _, e| {
            for i in e.slots().filter(|&i| matches!(shard.slots.state(i), State::Block | State::Runs)) {
                shard.slots.share(i, flag::TAINTED);
            }
        });
        self.wait_while_busy(Span { start: span.start & !(SLOT - 1), end: span.end });
    }

    /// The content of blocks in `span` goes, or the program asks for huge pages there itself.
    pub fn change_blocks(&self, span: Span, change: Change) {
        self.each_part(span, |shard, part, e| {
            for i in e.slots().filter(|&i| shard.slots.state(i) == State::Block) {
                let slot = shard.span(Extent { first: i, n: 1 });
                let whole = slot.clip(part) == slot;
                match change {
                    Change::Dropped => {
                        if whole {
                            shard.slots.clear(i, flag::SIGNED);
                        }
                        // How much is left of it is not known: it is no longer use, but a charge.
                        let before = shard.slots.share(i, flag::FRESH);
                        if before & (flag::FRESH | flag::CHARGED) == 0 {
                            self.budget.unuse(1);
                            if before & flag::ADVISED != 0 {
                                self.budget.charge(1);
                                shard.slots.share(i, flag::CHARGED);
                            }
                        }
                    }
                    Change::HugeAdvised if whole => {
                        let fresh = shard.slots.share(i, flag::ADVISED) & flag::FRESH != 0;
                        self.budget.discharge((fresh && shard.slots.clear(i, flag::CHARGED)) as usize);
                    }
                    Change::HugeAdvised => {}
                }
            }
        });
        self.wait_while_busy(Span { start: span.start & !(SLOT - 1), end: span.end });
    }
}
