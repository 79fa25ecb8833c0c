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
                // What is written to at once need not be noted.
                let is_read = source == Source::ZeroPage && self.mmu.notes_writes();
                let way = if is_read { Way::Copy } else { Way::Move };
                if kind == Kind::Out && run.bytes() == PAGE {
                    let brought =
                        swap.copies.with(|at| at.map(|at| self.bring_page(swap, run, at, way, installed)));
                    if let Some(brought) = brought {
                        return brought;
                    }
                }
                if kind == Kind::Out {
                    self.read_in(swap, run, met)?;
                }
                self.bring_back(swap, run, way, installed)
            }
        }
    }

    /// A page that is out comes by memory for copies: that is there, and stays. An error leaves it where it is.
    fn bring_page(
        &self,
        swap: &Swap,
        page: Span,
        at: usize,
        way: Way,
        installed: &mut usize,
    ) -> Result<(), Errno> {
        let Place::Out { digest, when } = swap.table.get(page.start) else { return Ok(()) };
        swap.hold_more(1);
        let brought = self.read_checked(swap, page, at, |_| Some(digest)).and_then(|()| self.put(page, at, way));
        let Ok(Some(way)) = brought else {
            swap.hold_less(1);
            return brought.map(drop);
        };
        self.note_return(swap, 1, swap.gone.load(Ordering::Relaxed).wrapping_sub(when) & WHEN_MASK);
        let place = if way == Way::Copy { Place::HomeClean { digest } } else { Place::Home };
        swap.table.set(page.start, place);
        *installed += 1;
        self.count(Counter::SwapBack, PAGE, 0);
        Ok(())
    }

    /// Copies a page to its place, in this way or so that it counts as written to; in which. `None`: an error is there,
    /// which stays until the page is dropped.
    fn put(&self, page: Span, at: usize, mut way: Way) -> Result<Option<Way>, Errno> {
        let mut again = 0;
        loop {
            let put = match way {
                Way::Move => self.mmu.install(Source::Buffer(at), page),
                Way::Copy => self.mmu.put_copy(at, page),
            };
            match put.map_err(|stopped| stopped.error) {
                Err(Errno::EAGAIN) if again < MOST_AGAIN => {
                    again += 1;
                    self.mmu.relax(again);
                }
                Err(Errno::EEXIST) => return Ok(None),
                Err(_) if way == Way::Copy => way = Way::Move,
                done => return done.map(|()| Some(way)),
            }
        }
    }

    /// Reads pages from the store, and makes sure that they are as they were.
    fn read_checked(
        &self,
        swap: &Swap,
        run: Span,
        at: usize,
        digest_of: impl Fn(usize) -> Option<u32>,
    ) -> Result<(), Errno> {
        let read = self.mmu.read_in(swap.offset(run.start), Span::new(at, run.bytes()));
        let mut pages = (run.start..run.end).step_by(PAGE);
        match read {
            Ok(()) if !pages.all(|page| self.mmu.digest(at + (page - run.start)) == digest_of(page)) => {
                self.count(Counter::SwapCorrupt, 1, 0);
                Err(Errno::EBADMSG)
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.count(Counter::SwapErrors, 1, 0);
                Err(error)
            }
        }
    }

    /// Pages have come back from the store, when so many others in all had gone since each went.
    fn note_return(&self, swap: &Swap, pages: usize, distances: usize) {
        swap.distance.note(distances / pages);
        self.count(Counter::SwapIn, pages * PAGE, 0);
        self.count(Counter::SwapRefaults, pages, 0);
        self.count(Counter::SwapRefaultDistance, distances * PAGE, 0);
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
        let read = self.read_checked(swap, run, aside.start, |page| swap.table.get(page).digest());
        if read.is_err() {
            self.mmu.drop_reserved(aside);
            swap.hold_less(count);
            return read;
        }
        let gone = swap.gone.load(Ordering::Relaxed);
        let mut distances = 0;
        for page in (run.start..run.end).step_by(PAGE) {
            if let Place::Out { digest, when } = swap.table.get(page) {
                distances += gone.wrapping_sub(when) & WHEN_MASK;
                swap.table.set(page, Place::AsideClean { digest });
            }
        }
        swap.keep_more(count);
        self.note_return(swap, count, distances);
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
