//! Programs that look whether their memory is resident: by a userfaultfd of their own, or by mincore.
//!
//! A mapping that frames moved into is resident at once. To such a program it must be as the kernel made it: from the
//! first look on nothing moves in any more, and what moved in before and is still all zero moves out again, when the program
//! registers it to hear of missing pages.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span};

use crate::frame::arena::Extent;
use crate::frame::slot::flag;
use crate::space::Space;

impl<S: Sys> Space<S> {
    /// The program is about to watch memory: nothing is brought any more, and its memory is looked at no more.
    pub fn note_watch(&self) {
        self.note_look();
        self.sys.end_looks();
    }

    fn note_look(&self) {
        self.supply.looked.store(true, Relaxed);
    }

    /// The program asks what of `span` is resident. What is stays so: a slot that another thread writes to for the first
    /// time could lose that.
    pub fn note_question(&self, span: Span) {
        if self.is_noted(span) {
            self.note_look();
        }
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        self.supply.looked.load(Relaxed)
    }

    /// The program watches `span` from now on; `missing`: its pages that are not there. Then what was brought and is not used
    /// is taken out first. Whoever hears of writes alone wants what is there to stay there.
    ///
    /// Nothing is known of the range any more: it is exposed once, before it is watched, and never again.
    pub fn watch(&self, cpu: usize, span: Span, missing: bool) {
        self.note_watch();
        let program = &self.program;
        for i in self.lent_in(span).filter(|&i| self.end_use(i)) {
            let slot = program.span(Extent { first: i, n: 1 });
            // Advised ones may hold nothing.
            if missing && program.slots.has(i, flag::CHARGED | flag::AHEAD) && self.sys.present_pages(slot) > 0 {
                self.take_unused(cpu, slot);
            }
            self.drop_note(i);
        }
        self.uncommitted(span);
    }

    /// Takes the frame out of a slot if it is all zero.
    fn take_unused(&self, cpu: usize, slot: Span) {
        let shard = self.shard(cpu);
        let hole = shard.lock_soon().and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
        let Some(e) = hole else { return };
        let place = shard.span(e);
        if self.sys.drop_zero(slot, place).is_none() {
            self.move_unused(slot, place);
        }
        self.put_back_empty(shard, e, 0);
    }

    /// The same for memory of small pages: it moves to `place`, is looked at there, and comes back if it is not zero.
    fn move_unused(&self, slot: Span, place: Span) {
        // A copy first: memory that the program uses must not be away, not even for a moment.
        let zero = self.sys.copy_from_program(slot, place.start) && self.sys.first_nonzero(place).is_none();
        let _ = self.sys.discard(place);
        let moved = if zero { self.sys.move_pages(slot, place.start) } else { None };
        let taken = moved == Some(SLOT);
        if taken && self.sys.first_nonzero(place).is_some() {
            // It was written to in between. Where the program was back already, it wrote to another page by now.
            self.sys.move_pages(place, slot.start);
        }
    }
}
