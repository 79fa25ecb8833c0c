//! Regions whose missing pages may have old bytes, beside regions whose missing pages are zero. One test at a time
//! has the pools.

mod chance;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use chance::Chance;
use faultless::region::{Advice, Builder, Delivery, Error, Region, Rights, set_as};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const SLOTS: usize = 6;
const PAGES: usize = SLOTS * SLOT / PAGE;
const STEPS: usize = 60;
const MODES: [Delivery; 2] = [Delivery::Thread, Delivery::Signal];

static ALONE: Mutex<()> = Mutex::new(());

/// No other test has the pools, and nothing is in them.
fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    limit();
    assert!(set_as(b"budget", 1 << 30));
    faultless::release_reserved();
    alone
}

/// A region of which each fault at the begin of a huge page brings some; `None` where there is none of this kind.
fn region(delivery: Delivery, zeroed: bool) -> Option<Region> {
    let choose = |builder: Builder| builder.delivery(delivery).windows(SLOT, 4 * SLOT).zeroed(zeroed);
    match choose(Region::builder(SLOTS * SLOT)).build() {
        Ok(region) => Some(region),
        Err(Error::NoUserfaultfd(error)) => {
            faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            None
        }
        Err(error) => panic!("{delivery:?}: {error}"),
    }
}

fn unzeroed() -> u64 {
    Region::counted(Counter::RegionUnzeroed)
}

fn fill(region: &mut Region, byte: u8) {
    region.as_mut_slice().unwrap().fill(byte);
}

/// Whether huge pages can be made, and moved.
fn has_huge_pages() -> bool {
    let ready = faultless::reserve(SLOT).unwrap().wait().unwrap();
    faultless::release_reserved();
    ready == SLOT
}

#[test]
fn what_is_dropped_comes_again_and_only_to_those_who_take_it() {
    let _alone = alone();
    for delivery in MODES {
        faultless::release_reserved();
        let Some(mut first) = region(delivery, false) else { continue };
        if !has_huge_pages() {
            return faultless_testkit::skip("no huge pages");
        }
        let drops: [fn(Region) -> Option<Region>; 3] = [
            |region| {
                region.advise(0..SLOTS * SLOT, Advice::DontNeed).unwrap();
                Some(region)
            },
            |region| {
                region.unmap(0..SLOTS * SLOT).unwrap();
                region.map(0..SLOTS * SLOT, Rights::Write).unwrap();
                Some(region)
            },
            |_| None,
        ];
        for drop in drops {
            // Nothing is kept as long as the engine does not know what the control group allows.
            let mut came = false;
            while !came {
                fill(&mut first, 7);
                let before = unzeroed();
                first = drop(first).or_else(|| region(delivery, false)).unwrap();
                let bytes = first.as_mut_slice().unwrap();
                bytes.chunks_mut(PAGE).for_each(|page| page[0] = 1);
                assert!(bytes.chunks(PAGE).all(|page| page[1..].iter().all(|byte| [0, 7].contains(byte))));
                came = unzeroed() > before;
            }
            fill(&mut first, 7);
            let before = unzeroed();
            first = drop(first).or_else(|| region(delivery, false)).unwrap();
            // A region of the other kind has zeroes, also where it gets what waits.
            let mut other = region(delivery, true).unwrap();
            // Written first, so that it is no read that brings them.
            for page in other.as_mut_slice().unwrap().chunks_mut(PAGE) {
                page[0] = 1;
                assert!(page[1..].iter().all(|byte| *byte == 0), "old bytes where zeroes must be");
            }
            assert_eq!(unzeroed(), before);
        }
    }
}

#[test]
fn no_more_is_kept_than_the_budget_allows_and_it_can_be_given_back() {
    let _alone = alone();
    let Some(mut first) = region(Delivery::Signal, false) else { return };
    if !has_huge_pages() {
        return faultless_testkit::skip("no huge pages");
    }
    // What was given back of what was dropped with a budget of `slots` frames, and what came again.
    let mut again = |slots: usize, gives_back: bool| {
        assert!(set_as(b"budget", (slots * SLOT) as u64));
        fill(&mut first, 7);
        first.advise(0..SLOTS * SLOT, Advice::DontNeed).unwrap();
        assert_eq!(first.present(), 0);
        let back = if gives_back { faultless::release_reserved() / SLOT } else { 0 };
        let before = unzeroed();
        fill(&mut first, 8);
        (back, (unzeroed() - before) as usize / SLOT)
    };
    assert_eq!(again(0, false), (0, 0));
    // Nothing is kept as long as the engine does not know what the control group allows.
    while again(2, false) == (0, 0) {}
    while again(SLOTS, false).1 <= 2 {}
    let mut back = 0;
    while back == 0 {
        let came;
        (back, came) = again(SLOTS, true);
        assert_eq!(came, 0);
    }
}

/// A thread's work on a region, and what it may find where it wrote nothing.
struct Worker {
    region: Region,
    delivery: Delivery,
    zeroed: bool,
    /// What it wrote to each page; `None`: it is missing, or was dropped.
    pages: Vec<Option<u8>>,
    chance: Chance,
}

/// Bytes of regions of zeroes have this bit, the others not.
const MARK: u8 = 0x80;

impl Worker {
    fn range(pages: &Range<usize>) -> Range<usize> {
        pages.start * PAGE..pages.end * PAGE
    }

    /// Looks at a page all over.
    fn check(&mut self, page: usize) {
        let expected = self.pages[page];
        let zeroed = self.zeroed;
        let bytes = &self.region.as_mut_slice().unwrap()[page * PAGE..][..PAGE];
        match expected {
            Some(byte) => assert!(bytes.iter().all(|b| *b == byte), "page {page} is not what was written"),
            None if zeroed => assert!(bytes.iter().all(|b| *b == 0), "page {page} is not zero"),
            None => assert!(bytes.iter().all(|b| b & MARK == 0), "page {page} has bytes of a region of zeroes"),
        }
    }

    fn step(&mut self) {
        // Often whole huge pages, and often parts of them.
        let first = self.chance.below(PAGES);
        let n = 1 + self.chance.below(PAGES - first);
        let part = match self.chance.below(3) {
            0 => first..first + n.min(40),
            _ => first / 512 * 512..(first + n).next_multiple_of(512).min(PAGES),
        };
        match self.chance.below(9) {
            0 => {
                self.region.advise(Self::range(&part), Advice::DontNeed).unwrap();
                self.pages[part].fill(None);
            }
            1 => {
                self.region.unmap(Self::range(&part)).unwrap();
                self.region.map(Self::range(&part), Rights::Write).unwrap();
                self.pages[part].fill(None);
            }
            2 => {
                self.region = region(self.delivery, self.zeroed).unwrap();
                self.pages.fill(None);
            }
            3 => self.region.populate(Self::range(&part)).unwrap(),
            4 => part.for_each(|page| self.check(page)),
            _ => {
                let mark = if self.zeroed { MARK } else { 0 };
                let byte = (1 + self.chance.below(0x7F) as u8) | mark;
                for page in part {
                    self.region.as_mut_slice().unwrap()[page * PAGE..][..PAGE].fill(byte);
                    self.pages[page] = Some(byte);
                }
            }
        }
    }
}

#[test]
fn regions_of_zeroes_never_see_old_bytes_beside_those_that_may() {
    let _alone = alone();
    let before = unzeroed();
    for (seed, delivery) in (1..4).flat_map(|seed| MODES.map(|delivery| (seed, delivery))) {
        if region(delivery, true).is_none() || !has_huge_pages() {
            return faultless_testkit::skip("no huge pages that are moved");
        }
        thread::scope(|scope| {
            for id in 0..4 {
                scope.spawn(move || {
                    let zeroed = id % 2 == 0;
                    let region = region(delivery, zeroed).unwrap();
                    let chance = Chance(seed * 1000 + id + 1);
                    let mut worker = Worker { region, delivery, zeroed, pages: vec![None; PAGES], chance };
                    (0..STEPS).for_each(|_| worker.step());
                    (0..PAGES).for_each(|page| worker.check(page));
                });
            }
        });
    }
    assert!(unzeroed() > before, "nothing with old bytes was taken");
    faultless::release_reserved();
}

/// A huge page of the program's own, where a huge page of the region was that it has unmapped.
#[test]
fn what_the_program_has_in_the_place_of_a_part_stays() {
    let _alone = alone();
    let builder = Region::builder(SLOTS * SLOT).delivery(Delivery::Thread).windows(SLOT, 4 * SLOT);
    let Ok(mut region) = builder.zeroed(false).events(true).build() else {
        return faultless_testkit::skip("no events");
    };
    fill(&mut region, 1);
    let at = region.as_ptr().wrapping_add(2 * SLOT);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a part that the region loses and knows it; what is there from then on is this test's.
    let own = unsafe {
        assert_eq!(libc::munmap(at.cast(), SLOT), 0);
        assert_eq!(libc::mmap(at.cast(), SLOT, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), at.cast());
        libc::madvise(at.cast(), SLOT, libc::MADV_HUGEPAGE);
        std::slice::from_raw_parts_mut(at, SLOT)
    };
    own.fill(7);
    // SAFETY: the child ends in here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child's own copy, which ends here and nowhere else.
        drop(unsafe { std::ptr::read(&region) });
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(own.iter().any(|byte| *byte != 7))) };
    }
    let mut status = 0;
    // SAFETY: a place for the status.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's is not its region's");
    // Shared with a child it could not be moved.
    own.fill(7);
    drop(region);
    assert!(own.iter().all(|byte| *byte == 7), "it was taken for the region's");
    // SAFETY: not used any more.
    unsafe { libc::munmap(at.cast(), SLOT) };
}
