//! Pages that a region lets go under a budget of its own, and gets back at a fault as they were.
//!
//! Reclaim ([`reclaim`]) goes round the region with two hands. The first takes pages out of the region: they lie aside
//! then, and a fault brings them back without a read. The second follows it: pages that are aside still, when it comes,
//! go out to the store. So a page that is used between the two hands stays in memory (second chance). The kernel tells
//! of no access in another way.
//!
//! Where each page is stands in a [`table`] of words. Memory aside is as long as the region, and the store has each page
//! at its offset in the region. So reclaim needs no memory, and no list.
//!
//! What protects it: words and pages aside of 2 MiB change with the lock of their entry, after a look at the area, as in
//! a fault. Reclaim only tries the entry. So it goes on in any thread that has no entry, and waits for the store alone.

mod bring;
mod reclaim;
mod table;

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::Mmu;
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::region::Region;
use table::{Kind, Place, Table};

/// What a region has for that.
pub(crate) struct Swap {
    table: Table,
    /// Where the region's first page lies aside.
    aside: Span,
    /// Where the region begins.
    base: usize,
    /// Pages in memory at most, but for those that faults are bringing.
    budget: usize,
    /// Pages aside.
    kept: AtomicUsize,
    /// The two hands: addresses of pieces.
    takes: AtomicUsize,
    writes: AtomicUsize,
    /// Pages that ever went out.
    gone: AtomicUsize,
    /// Calls of reclaim that are left out because the store has failed.
    rests: AtomicUsize,
    /// What pages that came back had seen go meanwhile, on average: in pages, times 16.
    distance: AtomicUsize,
}

impl Swap {
    /// Where a page lies aside.
    fn aside(&self, span: Span) -> Span {
        Span::new(self.aside.start + (span.start - self.base), span.bytes())
    }

    /// Where a page is in the store.
    fn offset(&self, page: usize) -> u64 {
        (page - self.base) as u64
    }

    /// This many pages are aside now, or not any more.
    fn keep_more(&self, pages: usize) {
        self.kept.fetch_add(pages, Ordering::Relaxed);
    }

    fn keep_less(&self, pages: usize) {
        self.kept.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl<M: Mmu> Region<M> {
    /// Has it keep `budget` bytes in memory, and the rest in the store of its memory. It has small pages alone then.
    pub fn with_swap(mut self, budget: usize) -> Result<Self, Errno> {
        let table = Table::new(self.span).ok_or(Errno::ENOMEM)?;
        let aside = Span::new(self.mmu.reserve_aside(self.span.bytes())?, self.span.bytes());
        let none = || AtomicUsize::new(0);
        self.swap = Some(Swap {
            table,
            aside,
            base: self.span.start,
            budget: budget / PAGE,
            kept: none(),
            takes: none(),
            writes: none(),
            gone: none(),
            rests: none(),
            distance: none(),
        });
        Ok(self)
    }

    /// Whether pages of it go to a store.
    pub fn has_swap(&self) -> bool {
        self.swap.is_some()
    }

    /// Bytes of memory in which the program would find what it uses: an estimate. That is the budget, and what had gone
    /// meanwhile when pages came back lately. 0: it has no budget.
    pub fn working_set(&self) -> usize {
        let Some(swap) = &self.swap else { return 0 };
        let pages = swap.budget + swap.distance.load(Ordering::Relaxed) / 16;
        (pages * PAGE).min(self.span.bytes())
    }

    /// How many pages of it are in memory, those aside included.
    pub fn pages_in_memory(&self) -> usize {
        let aside = self.swap.as_ref().map_or(0, |swap| swap.kept.load(Ordering::Relaxed));
        self.resident.sum().max(0) as usize + aside
    }

    /// Pages of a span are gone for good, wherever they are. No thread installs or takes anything there.
    pub(crate) fn forget_swapped(&self, span: Span) {
        let Some(swap) = &self.swap else { return };
        for slot in (span.start & !(SLOT - 1)..span.end).step_by(SLOT) {
            let part = Span::new(slot, SLOT).clip(span);
            let (mut is_aside, mut is_out) = (false, false);
            for (kind, run) in swap.table.runs(part) {
                match kind {
                    Kind::Home => continue,
                    Kind::Aside => {
                        swap.keep_less(run.bytes() / PAGE);
                        is_aside = true;
                    }
                    Kind::Out => is_out = true,
                }
                swap.table.put(run, Place::Home);
            }
            if is_aside {
                self.mmu.drop_reserved(swap.aside(part));
            }
            if is_out {
                self.mmu.forget_out(swap.offset(part.start), part.bytes() as u64);
            }
        }
    }

    /// Gives the memory aside back. No thread uses the region.
    pub(crate) fn release_swap(&self) {
        if let Some(swap) = &self.swap {
            self.mmu.release(swap.aside);
        }
    }
}
