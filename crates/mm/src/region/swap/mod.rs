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
//! A page that comes back for a read is *clean*: the store has it, too, until the kernel notes a write ([`clean`]). If it
//! is clean still when it goes out again, it is dropped without a write.
//!
//! What is on its way into memory counts as if it were there ([`room`]), so the budget holds at each moment.
//!
//! What protects it: words and pages aside of 2 MiB change with the lock of their entry, after a look at the area, as in
//! a fault. Reclaim only tries the entry. So it goes on in any thread that has no entry, and waits for the store alone.

mod bring;
mod clean;
mod reclaim;
mod room;
mod table;

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::Mmu;
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::predict::average::Average;
use crate::region::Region;
use clean::Copies;
use table::{Place, Table};

/// What a region has for that.
pub(crate) struct Swap {
    table: Table,
    /// Where the region's first page lies aside.
    aside: Span,
    /// Where the region begins.
    base: usize,
    /// Where copies of pages are while those go aside, behind the memory aside.
    copies: Copies,
    /// Pages in memory at most.
    budget: usize,
    /// Pages in memory, in the region and aside. Below zero if the program has dropped some by its own calls.
    held: AtomicUsize,
    /// Pages that are coming: room is kept for them.
    coming: AtomicUsize,
    /// Pages aside.
    kept: AtomicUsize,
    /// Of those, such as may not go: the second hand met them on its last tour, and on this one so far.
    stuck: AtomicUsize,
    met_stuck: AtomicUsize,
    /// Tours of both hands in vain, one after the other.
    vain: AtomicUsize,
    /// The two hands: addresses of pieces.
    takes: AtomicUsize,
    writes: AtomicUsize,
    /// Pages that ever went out.
    gone: AtomicUsize,
    /// Calls of reclaim that are left out because the store has failed.
    rests: AtomicUsize,
    /// Pages that had gone meanwhile when others came back.
    distance: Average,
    /// Pages that a fault wants to bring.
    window: Average,
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

    /// This many pages are in memory now that were not, or not any more.
    fn hold_more(&self, pages: usize) {
        self.held.fetch_add(pages, Ordering::Relaxed);
    }

    /// The same if that is no more than the budget; whether it is.
    fn hold_if_room(&self, pages: usize) -> bool {
        let more =
            |held: usize| Some(held.wrapping_add(pages)).filter(|sum| *sum as isize <= self.budget as isize);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn hold_less(&self, pages: usize) {
        self.held.fetch_sub(pages, Ordering::Relaxed);
    }

    fn held(&self) -> usize {
        (self.held.load(Ordering::Relaxed) as isize).max(0) as usize
    }
}

impl<M: Mmu> Region<M> {
    /// Has it keep `budget` bytes in memory, and the rest in the store of its memory. It has small pages alone then.
    pub fn with_swap(mut self, budget: usize) -> Result<Self, Errno> {
        let table = Table::new(self.span).ok_or(Errno::ENOMEM)?;
        let aside = Span::new(self.mmu.reserve_aside(self.span.bytes(), clean::RESERVED)?, self.span.bytes());
        let none = || AtomicUsize::new(0);
        self.swap = Some(Swap {
            table,
            aside,
            base: self.span.start,
            copies: Copies::new(aside.end),
            budget: budget / PAGE,
            held: none(),
            coming: none(),
            kept: none(),
            stuck: none(),
            met_stuck: none(),
            vain: none(),
            takes: none(),
            writes: none(),
            gone: none(),
            rests: none(),
            distance: Average::new(),
            window: Average::new(),
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
        let pages = swap.budget + swap.distance.get();
        (pages * PAGE).min(self.span.bytes())
    }

    /// How many pages of it are in memory, those aside included.
    pub fn pages_in_memory(&self) -> usize {
        self.swap.as_ref().map_or_else(|| self.resident.sum().max(0) as usize, Swap::held)
    }

    /// Pages of a span are gone for good, wherever they are; `were_there` of them were in the region. No thread installs
    /// or takes anything there.
    pub(crate) fn forget_swapped(&self, span: Span, were_there: usize) {
        let Some(swap) = &self.swap else { return };
        swap.hold_less(were_there);
        for slot in (span.start & !(SLOT - 1)..span.end).step_by(SLOT) {
            let part = Span::new(slot, SLOT).clip(span);
            let (mut is_aside, mut is_stored) = (false, false);
            for (kind, run) in swap.table.runs(part) {
                if kind.is_aside() {
                    let pages = run.bytes() / PAGE;
                    swap.keep_less(pages);
                    swap.hold_less(pages);
                }
                is_aside |= kind.is_aside();
                is_stored |= kind.is_stored();
                swap.table.put(run, Place::Home);
            }
            if is_aside {
                self.mmu.drop_reserved(swap.aside(part));
            }
            if is_stored {
                self.mmu.forget_out(swap.offset(part.start), part.bytes() as u64);
            }
        }
    }

    /// Gives the memory aside back. No thread uses the region.
    pub(crate) fn release_swap(&self) {
        if let Some(swap) = &self.swap {
            self.mmu.release(Span { end: swap.aside.end + clean::RESERVED, ..swap.aside });
        }
    }
}
