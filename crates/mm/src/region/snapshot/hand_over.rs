//! Pages that a region drops and a snapshot needs move to the snapshot: no byte is copied.
//!
//! A call that drops memory may fail after that. So a snapshot has the pages only when the call has worked
//! ([`Region::settle_handed_over`]). If it fails, the region gets copies of them. No thread reads the snapshot meanwhile,
//! or brings a page there: the caller has the range alone, and the areas are changing.

use faultless_base::sys::mmu::{Mmu, Source};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::stats::Counter;

use crate::owner::chain::{Chain, Need};
use crate::owner::pages::PageSet;
use crate::region::Region;
use crate::region::install::MOST_AGAIN;

/// Parts of which pages are noted that have moved.
const MOST: usize = 8;

/// Where pages have moved to, until it is known whether the span has gone. A snapshot that is dropped meanwhile waits for
/// the range.
pub(crate) struct HandedOver {
    /// Parts, and the snapshots that have their pages.
    parts: [(Span, usize); MOST],
    count: usize,
}

impl HandedOver {
    /// Notes that pages of a part go to a snapshot, if there is room. Parts come in order.
    fn note(&mut self, part: Span, id: usize) -> bool {
        match self.parts[..self.count].last_mut() {
            Some((before, of)) if *of == id => before.end = part.end,
            _ if self.count == MOST => return false,
            _ => {
                self.parts[self.count] = (part, id);
                self.count += 1;
            }
        }
        true
    }
}

impl<M: Mmu> Region<M> {
    /// Moves what snapshots need of a span that is about to go. What cannot move is copied.
    pub(crate) fn hand_over(&self, span: Span) -> HandedOver {
        let mut moved = HandedOver { parts: [(span, 0); MOST], count: 0 };
        let mut open = None;
        self.each_open_need(span, |chain, need, part| {
            if !moved.note(part, need.id) {
                self.copy_for(chain, need, part);
                return;
            }
            // Asked once for each snapshot: all of its memory is open to moves then.
            if open != Some(need.id) {
                self.mmu.accept_moves(chain.memory(need.id));
                open = Some(need.id);
            }
            let slot = part.start & !(SLOT - 1);
            for run in (PageSet::of_span(part) - need.settled).runs() {
                let run = Span::new(slot + run.start * PAGE, run.len() * PAGE);
                self.each_there(run, |there| self.hand_over_run(chain, need, slot, there));
            }
        });
        moved
    }

    fn hand_over_run(&self, chain: &Chain, need: &Need, slot: usize, there: Span) {
        let copy = |pages: Span| {
            let copied = self.keep(chain, need.id, slot, pages, need.at + (pages.start - slot));
            self.count(Counter::SnapshotCopied, copied, slot / SLOT);
        };
        let mut rest = there;
        while !rest.is_empty() {
            let moved = self.mmu.take_out(rest, need.at + (rest.start - slot));
            self.count_less(moved / PAGE);
            self.count(Counter::SnapshotMoved, moved, slot / SLOT);
            if moved == 0 && rest == there {
                // It may not be written to, or is locked.
                return copy(rest);
            }
            rest.start += moved;
            let page = Span::new(rest.start, PAGE).clip(rest);
            if !page.is_empty() {
                // A device uses it.
                copy(page);
                rest.start = page.end;
            }
        }
    }

    /// Pages that were moved are the snapshots' now; or the region gets copies of them, because the span has not gone.
    pub(crate) fn settle_handed_over(&self, moved: &HandedOver, is_gone: bool) {
        let Some(chain) = self.snapshots.get() else { return };
        for (part, id) in &moved.parts[..moved.count] {
            for slot in (part.start & !(SLOT - 1)..part.end).step_by(SLOT) {
                // What is there and is not its own yet has moved.
                let new = PageSet::of_span(Span::new(slot, SLOT).clip(*part)) - chain.own(*id, slot);
                let copies = chain.copies(*id, slot);
                for run in new.runs() {
                    let run = Span::new(copies + run.start * PAGE, run.len() * PAGE);
                    self.each_there(run, |there| {
                        let pages = Span::new(slot + (there.start - copies), there.bytes());
                        if !is_gone {
                            self.bring_copies(there.start, pages);
                        }
                        chain.take(*id, slot, PageSet::of_span(pages));
                    });
                }
            }
        }
    }

    /// Brings copies of pages that have moved to where they were.
    fn bring_copies(&self, from: usize, to: Span) {
        for (from, page) in (from..).step_by(PAGE).zip((to.start..to.end).step_by(PAGE)) {
            let page = Span::new(page, PAGE);
            let mut turn = 0;
            loop {
                match self.mmu.install(Source::Buffer(from), page) {
                    Ok(()) => break self.count_more(1),
                    Err(Stopped { error: Errno::EAGAIN | Errno::ENOMEM, .. }) if turn < MOST_AGAIN => {
                        turn += 1;
                        self.mmu.relax(turn);
                    }
                    // It must not be read as zero.
                    Err(_) => {
                        let _ = self.mmu.poison(page.start);
                        break;
                    }
                }
            }
        }
    }
}
