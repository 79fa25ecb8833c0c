//! Pages come back at a fault.

use faultless_base::sync::atomic::Ordering;
use faultless_base::sys::mmu::{Mmu, Source};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_page::stats::Counter;

use super::Swap;
use super::clean::COPIED;
use super::table::{Kind, Place, WHEN_MASK};
use crate::region::Region;
use crate::region::install::{MOST_AGAIN, Met};

/// How pages that are aside come home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They may be written to from then on.
    Move,
    /// They are clean, and the kernel notes the first write to each.
    Copy,
}

impl<M: Mmu> Region<M> {
    /// Installs the missing pages of a piece of one entry, wherever they are. The caller has the entry, and room.
    pub(crate) fn install_from_anywhere(
        &self,
        swap: &Swap,
        source: Source,
        piece: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        for (kind, run) in swap.table.runs(piece) {
            let Err(error) = self.bring_run(swap, kind, run, source, met, installed) else { continue };
            match met {
                // Of the others each comes when it is needed.
                Met::Fault(page) if !run.contains(page) => {}
                // All of its run could not be had.
                Met::Fault(page) if run.bytes() > PAGE => {
                    let kind = swap.table.get(page).kind();
                    self.bring_run(swap, kind, Span::new(page, PAGE), source, met, installed)?;
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// The same for pages of one kind.
    fn bring_run(
        &self,
        swap: &Swap,
        kind: Kind,
        run: Span,
        source: Source,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        match kind {
            Kind::Home => self.install_new(swap, source, run, met, installed),
            Kind::HomeClean => self.install_dropped(swap, source, run, met, installed),
            Kind::Aside => self.bring_back(swap, run, Way::Move, installed),
            Kind::AsideClean | Kind::Out => {
                if kind == Kind::Out {
                    self.read_in(swap, run, met)?;
                }
                // What is written to at once need not be noted.
                let is_read = source == Source::ZeroPage && self.mmu.notes_writes();
                self.bring_back(swap, run, if is_read { Way::Copy } else { Way::Move }, installed)
            }
        }
    }

    fn install_new(
        &self,
        swap: &Swap,
        source: Source,
        run: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        let before = *installed;
        let done = self.install_pages(source, run, met, installed);
        swap.hold_more(*installed - before);
        done
    }

    /// Pages that are home and clean need nothing, unless the program has dropped some by a call of its own.
    fn install_dropped(
        &self,
        swap: &Swap,
        source: Source,
        run: Span,
        met: Met,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        let (mut at, mut done) = (run.start, Ok(()));
        let mut install = |missing: Span| {
            if !missing.is_empty() && done.is_ok() {
                swap.table.put(missing, Place::Home);
                self.mmu.forget_out(swap.offset(missing.start), missing.bytes() as u64);
                done = self.install_new(swap, source, missing, met, installed);
            }
        };
        self.each_there(run, |there| {
            install(Span { start: at, end: there.start });
            at = there.end;
        });
        install(Span { start: at, ..run });
        done
    }

    /// Pages that are out are aside then, as they were. An error leaves all of them where they are. ENOMEM: they went after
    /// room was taken, and there is none for all of them.
    fn read_in(&self, swap: &Swap, run: Span, met: Met) -> Result<(), Errno> {
        let count = run.bytes() / PAGE;
        if count == 1 || met == Met::All {
            swap.hold_more(count);
        } else if !swap.hold_if_room(count) {
            return Err(Errno::ENOMEM);
        }
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
            swap.hold_less(count);
            return read;
        }
        // A page has come back when this many others had gone since it went.
        let gone = swap.gone.load(Ordering::Relaxed);
        let mut distances = 0;
        for page in pages() {
            if let Place::Out { digest, when } = swap.table.get(page) {
                distances += gone.wrapping_sub(when) & WHEN_MASK;
                swap.table.set(page, Place::AsideClean { digest });
            }
        }
        swap.keep_more(count);
        swap.distance.note(distances / count);
        self.count(Counter::SwapIn, run.bytes(), 0);
        self.count(Counter::SwapRefaults, count, 0);
        self.count(Counter::SwapRefaultDistance, distances * PAGE, 0);
        Ok(())
    }

    /// Pages that are aside go home.
    fn bring_back(&self, swap: &Swap, run: Span, way: Way, installed: &mut usize) -> Result<(), Errno> {
        let (mut at, mut again) = (run.start, 0);
        while at < run.end {
            let most = if way == Way::Copy { COPIED * PAGE } else { SLOT };
            let rest = Span::new(at, most).clip(run);
            let from = swap.aside(rest).start;
            let put = match way {
                Way::Move => self.mmu.put_back(from, rest),
                Way::Copy => self.mmu.put_copy(from, rest),
            };
            let (done, error) = match put {
                Ok(()) => (rest.bytes(), None),
                Err(Stopped { done, error }) => (done, Some(error)),
            };
            self.is_home(swap, Span::new(at, done), way, installed);
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
                            self.is_home(swap, page, Way::Move, installed);
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

    /// Pages have come, by moving or as copies.
    fn is_home(&self, swap: &Swap, run: Span, way: Way, installed: &mut usize) {
        if run.is_empty() {
            return;
        }
        if way == Way::Copy {
            self.mmu.drop_reserved(swap.aside(run));
        }
        for page in (run.start..run.end).step_by(PAGE) {
            let digest = swap.table.get(page).digest().filter(|_| way == Way::Copy);
            swap.table.set(page, digest.map_or(Place::Home, |digest| Place::HomeClean { digest }));
        }
        swap.keep_less(run.bytes() / PAGE);
        *installed += run.bytes() / PAGE;
        self.count(Counter::SwapBack, run.bytes(), 0);
    }
}
