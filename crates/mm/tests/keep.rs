//! Huge pages that a region drops with the bytes that are in them, over a simulated memory.

mod access;
mod made;
mod owner;

use access::span;
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{Errno, PAGE, SLOT};
use faultless_fake::Fake;
use faultless_fake::mmu::{FakeMmu, WORKS};
use faultless_mm::fault::Outcome;
use faultless_mm::frame::store::Store;
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::{Advice, Refused};
use faultless_mm::region::{Plan, Region};
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;
use proptest::prelude::*;

const SLOTS: usize = 4;
const EACH: usize = SLOT / PAGE;
const PAGES: usize = SLOTS * EACH;
const ATTRIBUTES: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: true, random: false, kernel: false };

type Memory = Region<FakeMmu>;

/// A region whose windows are huge pages from the first fault on, and where they come from.
fn region(patience: usize) -> (Memory, &'static Space<Fake>) {
    let knobs = Box::leak(Box::<Values>::default());
    let plan = Plan { areas: 100, orders: Orders { first: 9, most: 10 } };
    let frames = Fake::default();
    let mmu = FakeMmu::new(|| {}).with_frames(frames.clone());
    let region = made::region(mmu, SLOTS, plan, knobs);
    knobs.set(Knob::Budget, 8 * SLOT as u64);
    let store = owner::owner(&frames, 16, knobs);
    region.map(region.span(), ATTRIBUTES, 0).unwrap();
    (region.with_patience(patience).with_frames(store, 0).with_old_bytes(), store)
}

/// The program accesses a page; `None`: it may not.
fn access(region: &Memory, page: usize, write: Option<u8>) -> Option<u8> {
    match access::access(region, page, write) {
        Ok((byte, _)) => Some(byte),
        Err(Outcome::Forbidden) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// Has all of it brought in huge pages, and writes to it; what was there before.
fn fill(region: &Memory, byte: u8) -> Vec<u8> {
    region.populate(region.span()).unwrap();
    (0..PAGES).map(|page| access(region, page, Some(byte)).unwrap()).collect()
}

#[test]
fn what_is_dropped_comes_again_first_and_no_more_than_the_budget() {
    let (region, store) = region(100);
    assert_eq!(fill(&region, 7), [0; PAGES]);
    region.advise(region.span(), Advice::DontNeed).unwrap();
    assert_eq!((store.ready(Need::Any), region.resident(), region.present_pages()), (SLOTS, 0, 0));
    assert_eq!(fill(&region, 8), [7; PAGES]);
    assert_eq!(region.counted(Counter::RegionUnzeroed), (SLOTS * SLOT) as u64);
    // One whole slot, and parts of two others.
    region.unmap(span(EACH / 2, 2 * EACH)).unwrap();
    assert_eq!((store.ready(Need::Any), region.present_pages()), (1, PAGES - 2 * EACH));
    assert!((0..EACH / 2).all(|page| access(&region, page, None) == Some(8)), "the other parts stay");
    region.set(Knob::Budget, 2 * SLOT as u64);
    region.advise(span(3 * EACH, EACH), Advice::DontNeed).unwrap();
    assert_eq!(store.ready(Need::Any), 2);
    region.map(span(EACH / 2, 2 * EACH), ATTRIBUTES, 0).unwrap();
    fill(&region, 9);
    region.advise(region.span(), Advice::DontNeed).unwrap();
    assert_eq!(store.ready(Need::Any), 2, "the budget");
}

/// An area that is left to the kernel ends behind the end of a slot that was huge.
#[test]
fn an_area_of_the_kernel_goes_on_behind_a_huge_page() {
    limit();
    let (region, _) = region(3);
    let write = |pages: std::ops::Range<usize>| {
        for page in pages {
            access(&region, page, Some(1));
        }
    };
    write(0..EACH + 1);
    region.protect(span(0, 2 * EACH), Rights::None).unwrap();
    region.advise(span(2 * EACH, EACH), Advice::DontNeed).unwrap();
    write(3 * EACH..PAGES);
    let part = span(322, 2 * EACH - 321);
    region.unmap(part).unwrap();
    region.map(part, ATTRIBUTES, 0).unwrap();
    assert!([324, EACH + 1].iter().all(|page| access(&region, *page, None).is_some()));
    write(0..323);
    assert!(region.counted(Counter::RegionGivenUp) > 0);
    region.unmap(region.span()).unwrap();
    assert_eq!((region.resident(), region.present_pages()), (0, 0));
}

/// Closed memory and what only the kernel knows is dropped as ever.
#[test]
fn what_cannot_be_moved_is_zero_again() {
    let (region, store) = region(100);
    fill(&region, 7);
    region.protect(span(0, EACH), Rights::Read).unwrap();
    region.fail(&[Errno::EBUSY]);
    region.advise(span(0, 2 * EACH), Advice::DontNeed).unwrap();
    assert_eq!((store.ready(Need::Any), region.resident()), (1, PAGES - 2 * EACH));
    region.protect(span(0, EACH), Rights::Write).unwrap();
    assert_eq!(store.take(Need::Any).map(|frame| store.give(frame.at, frame.kind)), Some(()));
    let found: Vec<u8> = (0..2 * EACH).map(|page| access(&region, page, Some(1)).unwrap()).collect();
    assert!(found.iter().all(|byte| [0, 7].contains(byte)) && found.contains(&0));
}

/// An unmap that fails has changed nothing.
#[test]
fn what_was_set_aside_goes_back_when_the_memory_stays() {
    let (region, store) = region(100);
    fill(&region, 7);
    // All four go aside, then the kernel refuses, and it takes two tries to put the first one back.
    region.fail(&[WORKS, WORKS, WORKS, WORKS, Errno::ENOMEM, Errno::EAGAIN]);
    assert_eq!(region.unmap(region.span()), Err(Refused::Kernel(Errno::ENOMEM)));
    assert_eq!((store.ready(Need::Any), region.resident(), region.present_pages()), (0, PAGES, PAGES));
    assert_eq!(fill(&region, 8), [7; PAGES]);
    assert_eq!(region.counted(Counter::RegionUnzeroed), 0);
    region.unmap(region.span()).unwrap();
    assert_eq!((store.ready(Need::Any), region.present_pages()), (SLOTS, 0));
}

#[derive(Clone, Debug)]
enum Op {
    Drop(usize, usize),
    Remake(usize, usize),
    Protect(usize, usize, Rights),
    Populate(usize, usize),
    Read(usize),
    Write(usize, usize, u8),
}

fn ops() -> impl Strategy<Value = Op> {
    let whole = (0..SLOTS, 1..=SLOTS).prop_map(|(a, n)| (a * EACH, n.min(SLOTS - a) * EACH));
    let any = (0..PAGES, 1..900usize).prop_map(|(a, n)| (a, n.min(PAGES - a)));
    let part = prop_oneof![2 => whole, 1 => any].boxed();
    let rights = prop_oneof![Just(Rights::None), Just(Rights::Read), Just(Rights::Write)];
    prop_oneof![
        3 => part.clone().prop_map(|(a, n)| Op::Drop(a, n)),
        2 => part.clone().prop_map(|(a, n)| Op::Remake(a, n)),
        1 => (part.clone(), rights).prop_map(|((a, n), r)| Op::Protect(a, n, r)),
        1 => part.clone().prop_map(|(a, n)| Op::Populate(a, n)),
        3 => (0..PAGES).prop_map(Op::Read),
        5 => (part, 1..=255u8).prop_map(|((a, n), b)| Op::Write(a, n, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Pages that were written and not dropped are there. A missing page is zero or was written once. Each page is
    /// counted once.
    #[test]
    fn nothing_that_was_written_is_lost(ops in prop::collection::vec(ops(), 1..40), patience in prop_oneof![Just(3), Just(100)]) {
        let (region, store) = region(patience as usize);
        let mut pages = vec![(Rights::Write, None); PAGES];
        let mut written = std::collections::BTreeSet::from([0]);
        for op in ops {
            match op {
                Op::Drop(at, n) => {
                    region.advise(span(at, n), Advice::DontNeed).unwrap();
                    pages[at..at + n].iter_mut().for_each(|page| page.1 = None);
                }
                Op::Remake(at, n) => {
                    region.unmap(span(at, n)).unwrap();
                    region.map(span(at, n), ATTRIBUTES, 0).unwrap();
                    pages[at..at + n].fill((Rights::Write, None));
                }
                Op::Protect(at, n, rights) => {
                    region.protect(span(at, n), rights).unwrap();
                    pages[at..at + n].iter_mut().for_each(|page| page.0 = rights);
                }
                Op::Populate(at, n) => {
                    if pages[at..at + n].iter().all(|page| page.0 > Rights::None) {
                        region.populate(span(at, n)).unwrap();
                    }
                }
                Op::Read(at) => {
                    if let Some(byte) = access(&region, at, None) {
                        prop_assert!(pages[at].1.map_or(written.contains(&byte), |is| is == byte), "page {}", at);
                    } else {
                        prop_assert_eq!(pages[at].0, Rights::None);
                    }
                }
                Op::Write(at, n, byte) => {
                    written.insert(byte);
                    for (page, (_, is)) in pages.iter_mut().enumerate().skip(at).take(n) {
                        if let Some(found) = access(&region, page, Some(byte)) {
                            prop_assert!(is.map_or(written.contains(&found), |is| is == found), "page {}", page);
                            *is = Some(byte);
                        }
                    }
                }
            }
            region.areas().check();
            prop_assert_eq!(region.present_pages(), region.present(region.span()));
            prop_assert!(store.ready(Need::Any) <= 8);
        }
    }
}
