//! Moving pages within a region by page tables, and back where that cannot be finished.

use super::{Backing, SwapStore, UserMmu};
use crate::sys::linux::reserve_at;
use crate::sys::migrate::{Stopped, move_all, move_by_way};
use crate::{Errno, Span};

impl<B: Backing + SwapStore> UserMmu<B> {
    /// As [`Mmu::relocate`](crate::sys::mmu::Mmu::relocate).
    ///
    /// The kernel joins a moved area with a like one beside its new place, and then forgets for the whole area where
    /// faults are delivered. It joins none that is registered with one that is not. So what moves is not registered
    /// meanwhile, whatever else the program has said of it and of its neighbours. Nothing is missed in it, because it
    /// has no rights.
    pub(super) fn relocate_pages(&self, from: Span, to: usize) -> Result<(), Errno> {
        let target = Span::new(to, from.bytes());
        let _alone = self.relocating.lock();
        if self.is_shut() {
            return Err(Errno::EIO);
        }
        let moved = self.unregister(from).map_err(|error| Stopped::new(0, error));
        let moved = moved.and_then(|()| move_all(from, to, move_by_way)).and_then(|()| {
            let delivered = self.register(target).and_then(|()| self.register(from));
            delivered.map_err(|error| Stopped::new(from.bytes(), error))
        });
        moved.map_err(|Stopped { done, error, holes }| {
            if done == from.bytes() {
                let _ = self.unregister(target);
            }
            let back = move_all(Span::new(to, done), from.start, move_by_way);
            let more = back.as_ref().err().map_or([Span::new(0, 0); 2], |stopped| stopped.holes);
            let lost = holes.into_iter().chain(more).filter(|hole| !self.reserve_again(*hole)).count();
            // Pages that cannot be moved back are lost, and pages that are not delivered would be zero: neither must
            // be read.
            if back.is_err() || lost > 0 || self.register(from).and(self.register(target)).is_err() {
                self.shut();
            }
            error
        })
    }

    fn unregister(&self, span: Span) -> Result<(), Errno> {
        self.parts(span).try_for_each(|(uffd, part)| uffd.unregister(part))
    }

    /// Reserves a hole that a move has left; whether it is the region's again. If not, another thread may have mapped
    /// something there, and so it is never unmapped here.
    fn reserve_again(&self, hole: Span) -> bool {
        if hole.is_empty() {
            return true;
        }
        if !reserve_at(hole, libc::MAP_FIXED_NOREPLACE) {
            self.gone.add(hole);
            return false;
        }
        self.advise_anew(hole).is_ok()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::sys::linux::madvise;
    use crate::sys::mmu::{Mmu, Rights, Source};
    use crate::sys::raw;
    use crate::sys::uffd::{Uffd, feature};
    use crate::sys::user_mmu::STRIPES;
    use crate::{PAGE, SLOT};

    const PAGES: usize = 8;
    /// Where pages come from, the page that is missing in there, and where they are to go.
    const FROM: usize = SLOT;
    const GAP: usize = 5;
    const TO: usize = SLOT + 32 * PAGE;

    /// A region of which missing pages are an error, and pages of which each has its number in it.
    fn region() -> Option<(UserMmu<()>, Span)> {
        let (uffd, _) = Uffd::open_best().ok()?;
        uffd.enable(feature::SIGBUS).ok()?;
        let mut uffds = [const { None }; STRIPES];
        uffds[0] = Some(uffd);
        let mmu = UserMmu::new(4 * SLOT, uffds, ()).unwrap();
        mmu.deliver().unwrap();
        let from = Span::new(mmu.span().start + FROM, PAGES * PAGE);
        mmu.protect(from, Rights::Write).unwrap();
        for i in 0..PAGES {
            mmu.install(Source::Zeroes, page(from, i)).unwrap();
            // SAFETY: installed above.
            unsafe { (page(from, i).start as *mut usize).write_volatile(i + 1) };
        }
        mmu.protect(from, Rights::None).unwrap();
        Some((mmu, from))
    }

    fn page(span: Span, i: usize) -> Span {
        Span::new(span.start + i * PAGE, PAGE)
    }

    fn unmap(page: Span) {
        // SAFETY: a page of a test's region, which no thread accesses.
        unsafe { raw::unmap(page.start, PAGE) };
    }

    /// What is in the pages of a span; 0 where none is.
    fn numbers(mmu: &UserMmu<()>, span: Span) -> [usize; PAGES] {
        core::array::from_fn(|i| {
            if mmu.present(page(span, i)) == 0 {
                return 0;
            }
            mmu.protect(page(span, i), Rights::Read).unwrap();
            // SAFETY: present and readable.
            unsafe { (page(span, i).start as *const usize).read_volatile() }
        })
    }

    /// Whether missing pages of a span are delivered, and nothing else is there.
    fn is_delivered(mmu: &UserMmu<()>, span: Span) -> bool {
        mmu.protect(span, Rights::Write).is_ok()
            && (0..PAGES).all(|i| mmu.install(Source::Zeroes, page(span, i)).is_ok())
    }

    /// A thread that changes it may have looked before.
    #[test]
    fn what_is_shut_is_not_opened_again() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        mmu.protect(from, Rights::Read).unwrap();
        mmu.shut();
        assert!(mmu.is_shut());
        for rights in [Rights::Read, Rights::Write] {
            assert_eq!(mmu.protect(from, rights), Err(Errno::EIO));
            let closed = crate::sys::linux::peek_written(from.start);
            assert!(!closed, "it can be read");
        }
        mmu.protect(from, Rights::None).unwrap();
    }

    #[test]
    fn what_is_the_region_s_is_told_apart() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        let (own, missing, other) = (from.start, from.end, from.end + PAGE);
        mmu.protect(Span::new(missing, 2 * PAGE), Rights::Write).unwrap();
        unmap(Span::new(other, PAGE));
        assert!(mmu.serves(own) && mmu.serves(missing) && !mmu.serves(other));
        assert_eq!(mmu.present(Span::new(missing, PAGE)), 0, "asked without a page");
        assert!(reserve_at(Span::new(other, PAGE), libc::MAP_FIXED_NOREPLACE) && !mmu.serves(other));
        // It can be had, or is another error.
        assert!(!mmu.is_sigbus_of_others(other, Rights::Read), "a SIGSEGV");
        mmu.protect(Span::new(other, PAGE), Rights::Write).unwrap();
        assert!(!mmu.is_sigbus_of_others(other, Rights::Write));
        assert!(!mmu.is_sigbus_of_others(missing, Rights::Read), "it is the region's");
    }

    #[test]
    fn pages_of_several_areas_move() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        // Parts that differ in rights have areas of their own.
        mmu.protect(page(from, 2), Rights::Read).unwrap();
        let to = Span::new(mmu.span().start + TO, from.bytes());
        mmu.relocate(from, to.start).unwrap();
        assert_eq!(numbers(&mmu, to), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(is_delivered(&mmu, from), "where they were");
        mmu.discard(to).unwrap();
        assert!(is_delivered(&mmu, to), "where they went");
    }

    /// The kernel makes one area of those that are alike.
    #[test]
    fn what_lies_beside_is_delivered_as_before() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        let to = Span::new(mmu.span().start + TO, from.bytes());
        let beside = |span: Span| [span.start - span.bytes(), span.end].map(|at| Span::new(at, span.bytes()));
        mmu.relocate(from, to.start).unwrap();
        mmu.relocate(to, from.start).unwrap();
        unmap(page(from, GAP));
        assert!(mmu.relocate(from, to.start).is_err(), "one that is undone");
        for span in beside(from).into_iter().chain(beside(to)) {
            assert!(is_delivered(&mmu, span), "{span:x?}");
        }
    }

    /// The program's own advice may make areas alike, and an area without pages has no place of its own.
    #[test]
    fn what_lies_beside_is_delivered_whatever_the_program_advises() {
        for advice in [libc::MADV_SEQUENTIAL, libc::MADV_RANDOM, libc::MADV_DONTDUMP, libc::MADV_NORMAL] {
            let Some((mmu, _)) = region() else { return faultless_testkit::skip("no userfaultfd") };
            assert!(madvise(mmu.span(), advice));
            let from = Span::new(mmu.span().start + 2 * SLOT, PAGES * PAGE);
            let to = Span::new(mmu.span().start + TO, from.bytes());
            mmu.relocate(from, to.start).unwrap();
            for span in [to.start - from.bytes(), to.end].map(|at| Span::new(at, from.bytes())) {
                assert!(is_delivered(&mmu, span), "advice {advice}: {span:x?}");
            }
            assert!(is_delivered(&mmu, from) && is_delivered(&mmu, to), "advice {advice}");
        }
    }

    #[test]
    fn a_move_that_stops_half_way_is_undone() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        unmap(page(from, GAP));
        let to = Span::new(mmu.span().start + TO, from.bytes());
        assert_eq!(mmu.relocate(from, to.start), Err(Errno::EFAULT));
        // A foreign page in the place of the missing one, so that all can be looked at.
        assert!(reserve_at(page(from, GAP), libc::MAP_FIXED_NOREPLACE), "nobody was to put anything there");
        assert_eq!(numbers(&mmu, from), [1, 2, 3, 4, 5, 0, 7, 8]);
        assert_eq!(numbers(&mmu, to), [0; PAGES]);
        assert!(is_delivered(&mmu, to), "where they were to go");
        mmu.discard(from).unwrap();
        unmap(page(from, GAP));
        assert!(reserve_at(page(from, GAP), libc::MAP_FIXED_NOREPLACE));
        mmu.register(page(from, GAP)).unwrap();
        assert!(is_delivered(&mmu, from), "where they are");
    }

    #[test]
    fn nothing_moves_where_nothing_can() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        unmap(page(from, 0));
        let to = Span::new(mmu.span().start + TO, from.bytes());
        assert_eq!(mmu.relocate(from, to.start), Err(Errno::EFAULT));
        assert!(reserve_at(page(from, 0), libc::MAP_FIXED_NOREPLACE));
        assert_eq!(numbers(&mmu, from), [0, 2, 3, 4, 5, 6, 7, 8]);
        assert!(is_delivered(&mmu, to));
    }

    /// A region's last pages have nothing of it behind them.
    #[test]
    fn the_last_pages_move_there_and_back() {
        let Some((mmu, from)) = region() else { return faultless_testkit::skip("no userfaultfd") };
        let last = Span::new(mmu.span().end - from.bytes(), from.bytes());
        mmu.relocate(from, last.start).unwrap();
        mmu.relocate(last, from.start).unwrap();
        assert_eq!(numbers(&mmu, from), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(is_delivered(&mmu, last));
    }
}
