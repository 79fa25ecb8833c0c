//! Pages come back at a fault.

use faultless_base::sync::atomic::Ordering;
use faultless_base::sys::mmu::{Mmu, Source};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, Span};
use faultless_page::stats::Counter;

use super::Swap;
use super::table::{Kind, Place, WHEN_MASK};
use crate::region::Region;
use crate::region::install::{MOST_AGAIN, Met};

impl<M: Mmu> Region<M> {
    /// Installs the missing pages of a piece of one entry, wherever they are. The caller has the entry.
    pub(crate) fn install_from_anywhere(
        &self,
        swap: &Swap,
        source: Source,
        piece: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        for (kind, run) in swap.table.runs(piece) {
            let mut bring = |run: Span| match kind {
                Kind::Home => self.install_pages(source, run, met, installed),
                Kind::Aside => self.bring_back(swap, run, installed),
                Kind::Out => self.read_in(swap, run).and_then(|()| self.bring_back(swap, run, installed)),
            };
            let Err(error) = bring(run) else { continue };
            match met {
                // Of the others each comes when it is needed.
                Met::Fault(page) if !run.contains(page) => {}
                Met::Fault(page) if run.bytes() > PAGE => self.bring_one(swap, source, page, met, installed)?,
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// The same for one page, when all of its run could not be had.
    fn bring_one(
        &self,
        swap: &Swap,
        source: Source,
        page: usize,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        let page = Span::new(page, PAGE);
        if swap.table.get(page.start).kind() == Kind::Out {
            self.read_in(swap, page)?;
        }
        match swap.table.get(page.start).kind() {
            Kind::Home => self.install_pages(source, page, met, installed),
            _ => self.bring_back(swap, page, installed),
        }
    }

    /// Pages that are out are aside then, as they were. An error leaves all of them where they are.
    fn read_in(&self, swap: &Swap, run: Span) -> Result<(), Errno> {
        let aside = swap.aside(run);
        let pages = || (run.start..run.end).step_by(PAGE);
        let is_as_it_was = |page: usize| match swap.table.get(page) {
            Place::Out { digest, .. } => self.mmu.digest(swap.aside(Span::new(page, PAGE)).start) == Some(digest),
            _ => false,
        };
        let mut read = self.mmu.read_in(swap.offset(run.start), aside);
        if read.is_ok() && !pages().all(is_as_it_was) {
            self.count(Counter::SwapCorrupt, 1, 0);
            read = Err(Errno::EBADMSG);
        } else if read.is_err() {
            self.count(Counter::SwapErrors, 1, 0);
        }
        if read.is_err() {
            self.mmu.drop_reserved(aside);
            return read;
        }
        let gone = swap.gone.load(Ordering::Relaxed);
        let mut distances = 0;
        for page in pages() {
            if let Place::Out { when, .. } = swap.table.get(page) {
                distances += gone.wrapping_sub(when) & WHEN_MASK;
            }
            swap.table.set(page, Place::Aside);
        }
        let count = run.bytes() / PAGE;
        swap.keep_more(count);
        swap.note_distance(distances / count);
        self.count(Counter::SwapIn, run.bytes(), 0);
        self.count(Counter::SwapRefaults, count, 0);
        self.count(Counter::SwapRefaultDistance, distances * PAGE, 0);
        Ok(())
    }

    /// Pages that are aside go home.
    fn bring_back(&self, swap: &Swap, run: Span, installed: &mut usize) -> Result<(), Errno> {
        let (mut at, mut again) = (run.start, 0);
        while at < run.end {
            let rest = Span { start: at, ..run };
            let from = swap.aside(rest).start;
            let (done, error) = match self.mmu.put_back(from, rest) {
                Ok(()) => (rest.bytes(), None),
                Err(Stopped { done, error }) => (done, Some(error)),
            };
            self.is_home(swap, Span::new(at, done), installed);
            at += done;
            let page = Span::new(at, PAGE);
            match error {
                None => {}
                // An error is there, which stays until the page is dropped.
                Some(Errno::EEXIST) => at += PAGE,
                Some(Errno::EAGAIN) if done > 0 => {}
                Some(Errno::EAGAIN) if again < MOST_AGAIN => {
                    again += 1;
                    self.mmu.relax(again);
                }
                // It may not be written to there, or the device still has it.
                Some(_) => {
                    let from = swap.aside(page);
                    match self.mmu.install(Source::Buffer(from.start), page) {
                        Ok(()) => {
                            self.mmu.drop_reserved(from);
                            self.is_home(swap, page, installed);
                        }
                        Err(Stopped { error: Errno::EEXIST, .. }) => {}
                        Err(Stopped { error, .. }) => return Err(error),
                    }
                    at += PAGE;
                }
            }
        }
        Ok(())
    }

    fn is_home(&self, swap: &Swap, run: Span, installed: &mut usize) {
        swap.table.put(run, Place::Home);
        swap.keep_less(run.bytes() / PAGE);
        *installed += run.bytes() / PAGE;
        self.count(Counter::SwapBack, run.bytes(), 0);
    }
}

impl Swap {
    /// A page has come back when this many others had gone since it went. The last sixteen or so count.
    fn note_distance(&self, pages: usize) {
        let _ =
            self.distance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all - all / 16 + pages));
    }
}
