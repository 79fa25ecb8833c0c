//! Copies for snapshots: before a write, and before memory is closed or moves.
//!
//! A write copies a few pages around it: a fault costs more than to copy them. A write beside pages that were copied
//! copies as many again as lie there in a row, so that a walk takes few faults. Once a quarter of a slot is copied, the
//! rest is copied, too, and right behind a slot that was copied whole all of the next one. A write waits for a few of
//! these pages. The others are copied while it goes on, when no write waits. Only what may be a huge page is copied at
//! once: it stays one if all of it is let through in one call.

use faultless_base::sys::mmu::{Mmu, Protect, Rights};
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};

use crate::owner::chain::{Chain, Need};
use crate::owner::pages::PageSet;
use crate::region::Region;
use crate::region::area::View;
use crate::region::entry::Kind;
use faultless_page::stats::Counter;

/// Pages that a write copies at least.
const FEW: usize = 4;
/// Pages that a write copies at most, where they are small ones.
const MOST: usize = 64;
/// Slots in which writes are let through at a time where no snapshot needs them.
const LET_THROUGH: usize = 16;

/// Whether a snapshot needs pages of a slot.
pub(crate) enum Needed {
    /// It does.
    Yes,
    /// None does.
    No,
}

impl<M: Mmu> Region<M> {
    /// Lets a write to a page through, after a copy of the page if a snapshot needs one; the part of which writes go
    /// through now. `None`: the page is not there, or not protected. The caller has the entry of the page.
    pub(crate) fn let_through(
        &self,
        chain: &Chain,
        page: usize,
        view: &View,
    ) -> Option<Result<(Span, Needed), Errno>> {
        self.mmu.first_there(Span::new(page, PAGE)).filter(|there| !there.is_empty())?;
        let slot = page & !(SLOT - 1);
        let (part, needed) = match self.need(chain, slot) {
            None => (Span::new(slot, SLOT).clip(view.span), Needed::No),
            Some(need) => (self.copy_around(chain, &need, page, view), Needed::Yes),
        };
        // Memory of another kind may lie beside the page.
        let own = |_| self.mmu.protect_writes(Span::new(page, PAGE), Protect::Lift);
        match self.let_all_through(chain, part).or_else(own) {
            // Of this memory no snapshot was ever taken. The page was missing, and has come meanwhile.
            Err(Errno::ENOENT) => None,
            answer => Some(answer.map(|()| (part, needed))),
        }
    }

    /// Lets writes through in the next slots, too, as long as no snapshot needs them.
    pub(crate) fn let_more_through(&self, chain: &Chain, page: usize, behind: Span) {
        for slot in (behind.start..behind.end).step_by(SLOT).take(LET_THROUGH) {
            let Some(area) = self.areas.find_locked(page) else { return };
            let Some((view, sequence)) = area.read() else { return };
            let Some(_entry) = self.entries.try_lock(slot, self.entries.read(slot), || {}) else { return };
            let part = Span::new(slot, SLOT).clip(view.span);
            let is_free = area.sequence() == sequence && !part.is_empty() && self.need(chain, slot).is_none();
            if !is_free || self.let_all_through(chain, part).is_err() {
                return;
            }
        }
    }

    /// Lets writes through in a part of a slot. The caller has the entry.
    fn let_all_through(&self, chain: &Chain, part: Span) -> Result<(), Errno> {
        self.mmu.protect_writes(part, Protect::Lift)?;
        if part.bytes() == SLOT {
            chain.open.set(part.start);
        }
        Ok(())
    }

    /// Copies a page and others around it that a snapshot needs; the span of all of them.
    fn copy_around(&self, chain: &Chain, need: &Need, page: usize, view: &View) -> Span {
        let slot = page & !(SLOT - 1);
        let at = (page - slot) / PAGE;
        if need.settled.has(at) {
            return Span::new(page, PAGE);
        }
        let follows = page == slot
            && slot >= self.span.start + SLOT
            && self.need(chain, slot - SLOT).is_some_and(|before| before.settled.count() == SLOT_PAGES);
        let is_copied = |page: &usize| need.settled.has(*page);
        let before = (0..at).rev().take_while(is_copied).count();
        let behind = (at + 1..SLOT_PAGES).take_while(is_copied).count();
        let pages = match follows || need.settled.count() > SLOT_PAGES / 4 {
            true => SLOT_PAGES,
            false => before.max(behind).next_power_of_two().max(FEW),
        };
        // A huge page of which a part was let through is one no more.
        let is_huge = need.settled.is_empty() && self.entries.read(slot).kind() == Kind::Huge;
        let most = if is_huge { SLOT_PAGES } else { MOST };
        if pages == SLOT_PAGES && most < pages {
            chain.go_on_from(slot.max(view.span.start));
        }
        let pages = pages.min(most);
        let around = Span::new(slot + at / pages * pages * PAGE, pages * PAGE).clip(view.span);
        let copied = self.copy_for(chain, need, around);
        self.count(Counter::snapshot_copies(copied), usize::from(copied > 0), slot / SLOT);
        around
    }

    /// Copies some pages that a write was to copy and did not wait for; whether there are more. For a thread that has
    /// nothing else to do.
    pub fn copy_rest(&self) -> bool {
        let Some(chain) = self.chain() else { return false };
        let Some(page) = chain.rest() else { return false };
        chain.went_on(page, self.copy_next(chain, page))
    }

    /// Where the rest of a slot goes on after some pages of it. `None`: that was all, or others are there.
    fn copy_next(&self, chain: &Chain, page: usize) -> Option<usize> {
        let area = self.areas.find_locked(page)?;
        let (view, sequence) = area.read().filter(|(view, _)| view.span.contains(page))?;
        if view.attributes.rights != Rights::Write || view.attributes.kernel {
            return None;
        }
        let slot = page & !(SLOT - 1);
        let rest = Span { start: page, end: slot + SLOT }.clip(view.span);
        let _entry = self.entries.try_lock(page, self.entries.read(page), || {})?;
        if area.sequence() != sequence {
            return None;
        }
        let need = self.need(chain, slot)?;
        let first = (PageSet::of_span(rest) - need.settled).runs().next()?.start / MOST * MOST;
        let part = Span::new(slot + first * PAGE, MOST * PAGE).clip(rest);
        self.copy_for(chain, &need, part);
        self.let_all_through(chain, part).ok()?;
        Some(part.end).filter(|next| *next < rest.end)
    }

    /// Copies what a snapshot needs of a part of a slot; how many bytes. The caller has the entry, or all of the slot.
    pub(super) fn copy_for(&self, chain: &Chain, need: &Need, part: Span) -> usize {
        let mut bytes = 0;
        let slot = part.start & !(SLOT - 1);
        let wanted = PageSet::of_span(part) - need.settled;
        for run in wanted.runs() {
            let run = Span::new(slot + run.start * PAGE, run.len() * PAGE);
            self.each_there(run, |there| {
                bytes += self.keep(chain, need.id, slot, there, need.at + (there.start - slot));
            });
        }
        self.count(Counter::SnapshotCopied, bytes, slot / SLOT);
        bytes
    }

    /// Copies pages that are there to a snapshot's memory; how many bytes the snapshot has then. The caller has the
    /// entry, or all of the slot.
    pub(super) fn keep(&self, chain: &Chain, id: usize, slot: usize, pages: Span, to: usize) -> usize {
        if !self.mmu.copy_pages(pages, to) {
            if pages.bytes() > PAGE {
                let pages = (pages.start..pages.end).step_by(PAGE).zip((to..).step_by(PAGE));
                return pages.map(|(page, to)| self.keep(chain, id, slot, Span::new(page, PAGE), to)).sum();
            }
            // What the program itself has closed the snapshot does not get: to read it is an error.
            if !self.mmu.read_bytes(pages.start, &mut [0]) {
                return 0;
            }
            if !self.mmu.copy_pages(pages, to) {
                // There is no memory. The program goes on, and who reads the snapshot gets an error.
                self.count(Counter::SnapshotIncomplete, chain.spoil(id, slot), slot / SLOT);
            }
        }
        chain.take(id, slot, PageSet::of_span(pages));
        pages.bytes()
    }

    /// Copies what snapshots need of a span that is about to be closed, or to move. No thread installs anything there.
    pub(crate) fn preserve(&self, span: Span) {
        self.each_open_need(span, |chain, need, part| _ = self.copy_for(chain, need, part));
    }

    /// Pages have come to a span where there were none: snapshots have zeroes there. No thread installs anything
    /// there, or the caller has the entry.
    pub(crate) fn note_brought(&self, span: Span) {
        self.each_need(span, |chain, need, part| {
            let new = PageSet::of_span(part) - need.settled;
            chain.take(need.id, part.start & !(SLOT - 1), new);
        });
    }

    /// Calls `f` for each slot of a span of which a snapshot needs something.
    fn each_need(&self, span: Span, mut f: impl FnMut(&Chain, &Need, Span)) {
        let Some(chain) = self.chain() else { return };
        for slot in (span.start & !(SLOT - 1)..span.end).step_by(SLOT) {
            if let Some(need) = self.need(chain, slot) {
                f(chain, &need, Span::new(slot, SLOT).clip(span));
            }
        }
    }

    /// The same for the parts that are not closed: where a part is closed, copies were made when it was closed.
    pub(super) fn each_open_need(&self, span: Span, mut f: impl FnMut(&Chain, &Need, Span)) {
        self.each_need(span, |chain, need, part| {
            let mut at = part.start;
            while let Some(view) = self.areas.first(Span { start: at, ..part }) {
                if view.attributes.rights != Rights::None {
                    f(chain, need, view.span.clip(part));
                }
                at = view.span.end;
            }
        });
    }
}
