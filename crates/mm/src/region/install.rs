//! Installing pages below one entry, and how many pages a region has.
//!
//! Every page that a fault or populating brings goes through [`Region::install`], and every one that is dropped
//! through [`Region::drop_pages`]. Pages that the kernel brings itself are counted when a caller asks.

use faultless_base::sys::mmu::{Mmu, Source, Word};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::region::Region;
use crate::region::area::View;
use crate::region::entry::{Entry, Kind};
use crate::region::fault_stats::FaultStats;
use crate::region::frames::Given;
use faultless_page::stats::Counter;

/// Whether an access may have left a page table behind where pages are installed: a huge page cannot go there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// No access was there.
    Nothing,
    /// The same, and all of the pages are wanted.
    All,
    /// Other threads may have been there.
    Others,
    /// The fault on this page did.
    Fault(usize),
}

/// What was installed.
pub(crate) struct Installed {
    pub pages: usize,
    pub took_long: bool,
}

/// How often the kernel may ask to try again before it counts as an error.
pub(crate) const MOST_AGAIN: u32 = 1000;

impl<M: Mmu> Region<M> {
    /// How many of its pages are there, the kernel's page of zeroes included. Exact while no thread faults or changes
    /// anything.
    pub fn present_pages(&self) -> usize {
        if !self.mmu.raises_faults() {
            return self.mmu.present(self.span);
        }
        // Pages that the program put there itself, and that were dropped, were never counted: the sum may be below
        // zero.
        self.resident.sum().max(0) as usize + self.left_to_kernel(self.span)
    }

    /// How many pages the kernel has brought itself in areas of `span`.
    pub(crate) fn left_to_kernel(&self, span: Span) -> usize {
        let mut at = span.start;
        let next = || {
            let left = self.next_left_to_kernel(Span { start: at, ..span })?;
            at = left.end;
            Some(left)
        };
        core::iter::from_fn(next).map(|left| self.mmu.present(left)).sum()
    }

    /// The first part of `span` that the kernel serves. A function of its own, because no system call is made with
    /// the areas' lock.
    fn next_left_to_kernel(&self, span: Span) -> Option<Span> {
        let mut first = None;
        self.areas.each(span, |view| first = first.or(view.attributes.kernel.then(|| view.span.clip(span))));
        first
    }

    /// Has the kernel serve a span from now on. No thread installs anything there.
    pub(crate) fn leave_to_kernel(&self, span: Span) -> Result<(), Errno> {
        let there = self.mmu.present(span);
        self.mmu.leave_to_kernel(span)?;
        self.count_less(there);
        Ok(())
    }

    /// This many pages are gone.
    pub(crate) fn count_less(&self, pages: usize) {
        self.count_more_or_less(-(pages as isize));
    }

    /// This many pages are there that no fault has counted.
    pub(crate) fn count_more(&self, pages: usize) {
        self.count_more_or_less(pages as isize);
    }

    fn count_more_or_less(&self, pages: isize) {
        self.resident.add(pages, 0);
        self.counted.drop_pages(-pages);
    }

    /// The kernel does not serve `span` any more, if it did.
    pub(crate) fn take_from_kernel(&self, span: Span) -> Result<(), Errno> {
        if self.next_left_to_kernel(span).is_some() {
            self.mmu.take_from_kernel(span)?;
            self.count_more(self.left_to_kernel(span));
        }
        Ok(())
    }

    /// Drops all pages of a span where no thread installs anything. Where a whole huge page may be again, one may
    /// come.
    pub(crate) fn drop_pages(&self, span: Span) -> Result<(), Errno> {
        self.drop_by(span, || self.mmu.discard(span))
    }

    /// The same by another call.
    pub(crate) fn drop_by(&self, span: Span, call: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let present = || self.mmu.present(span).saturating_sub(self.left_to_kernel(span));
        let there = present();
        if let Err(error) = call() {
            // A part may be dropped.
            self.count_less(there.saturating_sub(present()));
            return Err(error);
        }
        self.count_less(there);
        self.forget_swapped(span, there);
        let empty = |slot| self.mmu.frees_tables() || self.entries.read(slot).kind() == Kind::Huge;
        let whole = span.aligned_inside(SLOT);
        for slot in (whole.start..whole.end).step_by(SLOT) {
            if empty(slot) {
                self.entries.put(Span::new(slot, SLOT), Kind::Empty, |turn| self.mmu.relax(turn));
            }
        }
        Ok(())
    }

    /// Installs the missing pages of a piece of one entry. Then the page of a fault is there, or all pages if they
    /// are wanted; otherwise the answer is an error.
    pub(crate) fn install(
        &self,
        entry: Entry<'_>,
        source: Source,
        view: &View,
        piece: Span,
        met: Met,
        stats: &mut FaultStats,
    ) -> Result<Installed, Errno> {
        let mut pages = 0;
        let result = self.install_some(entry, source, view, piece, met, &mut pages);
        self.mmu.meets(Word::Resident(stats.cpu));
        self.resident.add(pages as isize, stats.cpu);
        stats.add(Counter::RegionPages, pages);
        result.map(|took_long| Installed { pages, took_long })
    }

    /// The same, with the number of pages also where it ends with an error. Whether it took long.
    fn install_some(
        &self,
        mut entry: Entry<'_>,
        source: Source,
        view: &View,
        piece: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<bool, Errno> {
        if let Some(swap) = &self.swap {
            entry.set(Kind::Pages);
            return self.install_from_anywhere(swap, source, piece, met, installed).map(|()| false);
        }
        let whole = piece.bytes() == SLOT && source == Source::Zeroes && view.attributes.huge;
        // A table cannot be taken out of the way: by now it may belong to a mapping that is not the region's.
        if whole && entry.kind() == Kind::Empty && matches!(met, Met::Nothing | Met::All) {
            let given = self.move_huge_page(piece, installed);
            if *installed > 0 {
                self.note_brought(piece);
            }
            if given != Given::None {
                entry.set(Kind::Huge);
                if given == Given::Old {
                    self.count(Counter::RegionUnzeroed, SLOT, piece.start / SLOT);
                }
                return Ok(given == Given::Made);
            }
        }
        entry.set(if entry.kind() == Kind::Huge { Kind::Huge } else { Kind::Pages });
        self.install_pages(source, piece, met, installed).map(|()| false)
    }

    /// Moves a huge page of zeroes to where nothing was installed. A function of its own, as the next one: a signal
    /// handler has little stack.
    fn move_huge_page(&self, to: Span, installed: &mut usize) -> Given {
        self.frames.with_huge(&self.mmu, |frame| {
            let moved = self.mmu.move_huge(frame, to.start);
            *installed = if moved { SLOT / PAGE } else { self.mmu.present(to) };
            moved
        })
    }

    /// Installs missing pages, one area of the kernel's after the other.
    pub(crate) fn install_pages(
        &self,
        source: Source,
        piece: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        let wanted = if let Met::Fault(page) = met { page } else { piece.start };
        let (mut at, mut again, mut most) = (piece.start, 0, piece.bytes());
        while at < piece.end {
            let from = match source {
                Source::Buffer(buffer) => Source::Buffer(buffer + (at - piece.start)),
                zero => zero,
            };
            let rest = Span::new(at, most).clip(piece);
            let Err(Stopped { done, error }) = self.mmu.install(from, rest) else {
                *installed += rest.bytes() / PAGE;
                self.note_brought(rest);
                at = rest.end;
                continue;
            };
            *installed += done / PAGE;
            self.note_brought(Span::new(at, done));
            at += done;
            match error {
                // Another thread was here first: its pages stay.
                Errno::EEXIST => at = self.end_of_there(Span { start: at, ..piece }).max(at + PAGE),
                // Up to something that is there.
                Errno::EAGAIN if done > 0 => at = self.end_of_there(Span { start: at, ..piece }),
                Errno::EAGAIN if again < MOST_AGAIN => {
                    again += 1;
                    self.mmu.relax(again);
                }
                // The kernel has several areas here, after a move; a call stays inside one.
                Errno::ENOENT if most > PAGE => most = PAGE,
                // Of a window that leads up to the fault, its own page is what counts.
                _ if at < wanted => (at, most) = (wanted, PAGE),
                // The page of the fault is there.
                _ if at > wanted && met != Met::All => break,
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Where the pages end that are there from the beginning of a span on: one question for all of them.
    fn end_of_there(&self, span: Span) -> usize {
        self.mmu.first_there(span).filter(|there| there.start == span.start).map_or(span.start, |there| there.end)
    }
}
