//! Memory whose content the program drops (`MADV_DONTNEED`): given to the kernel as always, or replaced by zeroed
//! frames at once when the program uses it again soon, drop after drop.
//!
//! A huge page that goes costs its removal, a fault, zeroing by the kernel and, on a machine that was idle, a page
//! that its host has to find first. Zeroing one that is there costs only the zeroing. It stays charged until it is
//! used. So a program that does not come back keeps the budget's worth of memory at most, and gives all of it up with
//! its next drop.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Slot, Span};

use crate::frame::extent::Extent;
use crate::frame::slot::{State, flag};
use crate::mapping::Change;
use crate::space::Space;
use faultless_page::stats::Counter;

/// Slots that move at once (64 MiB).
const AT_ONCE: usize = 32;

impl<S: Sys> Space<S> {
    /// The program drops the content of `span`. Takes frames out of it where the program uses them again soon. Has
    /// the kernel drop the rest by `give`, part by part as long as that works, and brings as many frames of zeroes.
    ///
    /// Each page is dropped once, by the move or by the kernel: another thread may use it again in between.
    pub fn recycle(&self, cpu: usize, span: Span, mut give: impl FnMut(Span) -> bool) {
        let e = Extent::inside(span);
        self.noted(e).for_each(|part| self.note_left(self.program(), part));
        // Nothing may leave that the kernel would not drop.
        if !self.comes_back(e) || !self.sys.can_drop(span) {
            self.change(span, Change::Dropped);
            give(span);
            return;
        }
        // Up to where all is dropped.
        let mut done = span.start;
        let mut left = e;
        while !left.is_empty() {
            let piece = left.front(left.n.min(AT_ONCE));
            left = left.behind(piece.n);
            let at = self.program().span(piece);
            // From the first on, and up to what does not move: the kernel too goes on as far as it can.
            let taken = self.take_frames(cpu, at).unwrap_or(0);
            self.change(at, Change::Dropped);
            for part in [Span { start: done, end: at.start }, Span { start: at.start + taken, end: at.end }] {
                if !part.is_empty() && !give(part) {
                    return;
                }
            }
            done = at.end;
            let room = self.budget.limit().saturating_sub(self.budget.charged());
            let wanted = piece.front((taken / SLOT).min(room));
            let moved = self.bring(cpu, wanted);
            if !wanted.is_empty() {
                self.count_moved(wanted, moved);
            }
            self.program().count(Counter::BytesRecycled, moved.slots() * SLOT);
        }
        if done < span.end {
            give(Span { start: done, end: span.end });
        }
    }

    /// Whether the program uses all of these slots, and did so at the last drops too.
    fn comes_back(&self, e: Extent) -> bool {
        let program = self.program();
        let known = |i: Slot| program.slots.state(i) == State::Mapped && !program.slots.has(i, flag::TAINTED);
        if self.is_referenced()
            || e.is_empty()
            || self.budget.limit() == 0
            || self.is_retired()
            || !self.can_move()
            || self.is_looked_at()
            || !e.slots().all(known)
        {
            return false;
        }
        let looks = |i: Slot| self.is_present(program, i) && self.peek_dense(program, i);
        let in_use = |i: Slot| self.enter(program, Extent::one(i), |_| looks(i)) == Some(true);
        let in_use = in_use(e.first) && in_use(e.last());
        let expected = program.dropped.is_long();
        program.dropped.note(in_use);
        in_use && expected
    }
}
