//! Regions over a simulated memory: random operations against a naive oracle, and each way a fault can end.

mod access;
mod changes;
mod made;
mod owner;

use access::span;
use changes::{Change, Oracle};
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::{FakeMmu, Found, WORKS, backing_byte};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::{Advice, Refused};
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;
use made::BASE;
use proptest::prelude::*;

const SLOTS: usize = 4;
const PAGES: usize = SLOTS * SLOT / PAGE;

const ANONYMOUS: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };
const BACKED: Attributes = Attributes { backed: true, ..ANONYMOUS };

fn region_of(mmu: FakeMmu, areas: usize, orders: Orders) -> Region<FakeMmu> {
    made::region(mmu, SLOTS, Plan { areas, orders }, Box::leak(Box::default()))
}

fn region() -> Region<FakeMmu> {
    region_of(FakeMmu::new(|| {}), 100, Orders { first: 0, most: 11 })
}

/// The program accesses a page.
fn access(region: &Region<FakeMmu>, page: usize, write: Option<u8>) -> Result<u8, Outcome> {
    access::access(region, page, write).map(|(byte, _)| byte)
}

fn ops() -> impl Strategy<Value = Change> {
    let part = (0..PAGES, prop_oneof![1..20usize, 400..1200usize]);
    let rights = prop_oneof![Just(Rights::None), Just(Rights::Read), Just(Rights::Write)];
    let advice = prop_oneof![
        Just(Advice::DontNeed),
        Just(Advice::Random),
        Just(Advice::Normal),
        Just(Advice::Huge),
        Just(Advice::NoHuge)
    ];
    prop_oneof![
        4 => (part.clone(), prop::option::of(0..100usize)).prop_map(|((a, n), o)| Change::Map(a, n, o)),
        2 => part.clone().prop_map(|(a, n)| Change::Unmap(a, n)),
        2 => (part.clone(), rights).prop_map(|((a, n), r)| Change::Protect(a, n, r)),
        2 => (part.clone(), 0..PAGES).prop_map(|((a, n), to)| Change::Remap(a, n, to)),
        2 => (part.clone(), advice).prop_map(|((a, n), x)| Change::Advise(a, n, x)),
        1 => part.prop_map(|(a, n)| Change::Populate(a, n)),
        6 => (0..PAGES).prop_map(Change::Read),
        6 => (0..PAGES, 1..=255u8).prop_map(|(a, b)| Change::Write(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is done, each page holds what it would hold without regions, and may be accessed as then.
    #[test]
    fn regions_are_as_the_oracle_says(
        ops in prop::collection::vec(ops(), 1..60), speculative in any::<bool>(), most in 0..12u32,
    ) {
        // So little patience that areas are left to the kernel in many cases.
        let region = region_of(FakeMmu::new(|| {}), 200, Orders { first: 0, most }).with_patience(5);
        let mut oracle = Oracle::new(PAGES, ANONYMOUS);
        if !speculative {
            region.set(Knob::SpeculativePageFault, 0);
        }
        for op in ops {
            oracle.step(&region, op);
            region.areas().check();
            assert_eq!(region.present_pages(), region.present(region.span()), "pages");
        }
        for at in (0..PAGES).step_by(7) {
            oracle.step(&region, Change::Read(at));
        }
    }
}

#[test]
fn faults_in_a_row_bring_windows_and_whole_huge_pages() {
    let region = region();
    region.map(region.span(), Attributes { huge: true, ..ANONYMOUS }, 0).unwrap();
    let mut faults = 0;
    for page in 0..PAGES {
        if region.read(span(page, 1).start) == Found::Missing {
            faults += 1;
            access(&region, page, Some(1)).unwrap();
        }
    }
    assert_eq!(region.resident(), PAGES);
    assert!(faults <= 13, "{faults} faults for {PAGES} pages");
    assert_eq!(region.counted(Counter::SpeculativePgfault), faults);
    assert_eq!(region.counted(Counter::RegionPages), PAGES as u64);
    // The same without huge pages.
    region.refuse_huge();
    region.unmap(region.span()).unwrap();
    region.map(region.span(), Attributes { huge: true, ..ANONYMOUS }, 0).unwrap();
    (0..PAGES).for_each(|page| assert_eq!(access(&region, page, None), Ok(0)));
}

#[test]
fn changes_are_refused_with_their_reason() {
    let region = region_of(FakeMmu::new(|| {}), 3, Orders { first: 0, most: 0 });
    assert_eq!(region.map(Span::new(BASE - PAGE, PAGE), ANONYMOUS, 0), Err(Refused::Outside));
    assert_eq!(region.map(span(0, 0), ANONYMOUS, 0), Err(Refused::Outside));
    assert_eq!(region.map(Span::new(BASE, 5), ANONYMOUS, 0), Err(Refused::Outside));
    region.map(span(0, 100), ANONYMOUS, 0).unwrap();
    assert_eq!(region.map(span(99, 2), ANONYMOUS, 0), Err(Refused::Mapped));
    assert_eq!(region.protect(span(90, 20), Rights::Read), Err(Refused::NotMapped));
    assert_eq!(region.remap(span(0, 10), span(5, 1).start), Err(Refused::Mapped));
    // Three places: a hole in the middle takes them for a moment, one more is too many, and nothing has changed.
    region.unmap(span(50, 1)).unwrap();
    access(&region, 20, Some(9)).unwrap();
    assert_eq!(region.unmap(span(20, 1)), Err(Refused::Full));
    assert_eq!(access(&region, 20, None), Ok(9));
    region.fail(&[Errno::ENOMEM]);
    assert_eq!(region.protect(span(0, 50), Rights::Read), Err(Refused::Kernel(Errno::ENOMEM)));
    assert_eq!(access(&region, 20, Some(8)), Ok(9));
    region.areas().check();
}

#[test]
fn failures_of_the_kernel_are_met() {
    // What a fault on the second page of four meets, and how it ends.
    let cases: [(&[Errno], Result<u8, Outcome>); 6] = [
        (&[], Ok(0)),
        (&[Errno::EAGAIN], Ok(0)),
        (&[Errno::EAGAIN, Errno::EAGAIN, Errno::EAGAIN, Errno::EAGAIN], Ok(0)),
        (&[Errno::EEXIST], Ok(0)),
        (&[Errno::ENOMEM], Err(Outcome::Failed(Errno::ENOMEM))),
        // A part of the kernel's areas is gone: once for the window, once for the page, twice over.
        (&[Errno::ENOENT, Errno::ENOENT], Err(Outcome::Forbidden)),
    ];
    for (errors, end) in cases {
        let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 2, most: 2 });
        region.map(span(0, 8), ANONYMOUS, 0).unwrap();
        let errors = if end == Err(Outcome::Forbidden) { [errors, errors].concat() } else { errors.to_vec() };
        region.fail(&errors);
        assert_eq!(access(&region, 1, None), end, "{errors:?}");
        region.fail(&[]);
    }
}

/// After a fork the frames that were made before are shared, and the kernel refuses to move them.
#[test]
fn a_huge_page_that_cannot_be_moved_is_made_of_small_ones() {
    let frames = Fake::default();
    let region = region_of(FakeMmu::new(|| {}).with_frames(frames.clone()), 10, Orders { first: 9, most: 9 });
    let region = region.with_frames(owner::owner(&frames, 8, Box::leak(Box::default())), 0);
    region.map(region.span(), Attributes { huge: true, ..ANONYMOUS }, 0).unwrap();
    assert!(region.prepare_huge(1));
    // The move fails; then small ones in its place.
    region.fail(&[Errno::EBUSY]);
    assert_eq!(region.populate(span(0, SLOT / PAGE)), Ok(SLOT / PAGE));
    assert_eq!(region.resident(), SLOT / PAGE);
    assert!((0..SLOT / PAGE).all(|page| access(&region, page, None) == Ok(0)));
    assert!(!region.prepare_huge(1), "the frame was lost");
    // Nor does one come to where an access has left a table.
    assert_eq!(access(&region, SLOT / PAGE, Some(1)), Ok(0));
    assert!(!region.prepare_huge(1) && region.splits() == 0, "it was split");
    assert_eq!(region.populate(span(2 * SLOT / PAGE, SLOT / PAGE)), Ok(SLOT / PAGE));
    assert!(region.prepare_huge(1), "the frame was not used any more");
}

/// A fault that lost its processor keeps back the places of all areas that were unlinked since: changes wait for it.
#[test]
fn changes_wait_for_places_that_a_fault_keeps_back() {
    faultless_testkit::limit::limit();
    let region = region_of(FakeMmu::new(|| {}), 4, Orders { first: 0, most: 0 });
    region.map(span(0, 1), ANONYMOUS, 0).unwrap();
    let late = region.areas().find(span(0, 1).start, 0).unwrap();
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                region.unmap(span(0, 1)).unwrap();
                region.map(span(0, 1), ANONYMOUS, 0).unwrap();
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        // Until it has no place any more.
        while done.load(std::sync::atomic::Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        drop(late);
    });
    assert_eq!(done.into_inner(), 20);
    region.areas().check();
}

/// Whatever fails in the middle of a change, nothing has changed.
#[test]
fn changes_that_fail_half_way_are_undone() {
    type Change = fn(&Region<FakeMmu>) -> Result<(), Refused>;
    let remap: Change = |region| region.remap(span(4, 8), span(100, 1).start);
    let unmap: Change = |region| region.unmap(span(4, 8));
    let drop: Change = |region| region.advise(span(4, 8), Advice::DontNeed);
    let map: Change = |region| region.map(span(200, 8), ANONYMOUS, 0);
    // Which of its steps fails.
    let cases: [(Change, &[Errno]); 8] = [
        (remap, &[Errno::ENOMEM]),
        (remap, &[WORKS, Errno::EFAULT]),
        (remap, &[WORKS, Errno::EAGAIN]),
        (remap, &[WORKS, WORKS, Errno::ENOMEM]),
        (unmap, &[Errno::ENOMEM]),
        (unmap, &[WORKS, Errno::ENOMEM]),
        (drop, &[Errno::EAGAIN]),
        (map, &[Errno::ENOMEM]),
    ];
    for (i, (change, errors)) in cases.into_iter().enumerate() {
        let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 0, most: 0 });
        region.map(span(0, 20), ANONYMOUS, 0).unwrap();
        (0..20).for_each(|page| assert_eq!(access(&region, page, Some(page as u8)), Ok(0)));
        region.fail(errors);
        assert_eq!(change(&region), Err(Refused::Kernel(errors[errors.len() - 1])), "case {i}");
        (0..20).for_each(|page| assert_eq!(access(&region, page, Some(1)), Ok(page as u8), "case {i}"));
        for page in [100, 200] {
            assert_eq!(access(&region, page, None), Err(Outcome::Forbidden), "case {i}");
        }
        region.areas().check();
        change(&region).unwrap();
        region.areas().check();
    }
}

/// A fault needs its own page only; populating needs all pages.
#[test]
fn populating_says_that_a_page_is_missing() {
    let region = region();
    region.map(span(0, 8), ANONYMOUS, 0).unwrap();
    access(&region, 3, Some(1)).unwrap();
    // As far as the page that is there, which is looked at, and then no further.
    region.fail(&[WORKS, WORKS, Errno::ENOMEM]);
    assert_eq!(region.populate(span(0, 8)), Err(Refused::Kernel(Errno::ENOMEM)));
    assert_eq!(region.populate(span(0, 8)), Ok(4));
}

/// Each run of pages that are there takes one question, and not one for each page.
#[test]
fn populating_passes_over_what_is_there() {
    let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 0, most: 0 });
    let attributes = Attributes { huge: false, ..ANONYMOUS };
    region.map(region.span(), attributes, 0).unwrap();
    region.populate(span(0, SLOT_PAGES)).unwrap();
    let before = region.installs();
    assert_eq!(region.populate(span(0, SLOT_PAGES)), Ok(0));
    assert_eq!(region.installs() - before, 1);
    [3, 100, 101, 511].into_iter().for_each(|page| {
        region.advise(span(page, 1), Advice::DontNeed).unwrap();
    });
    let before = region.installs();
    assert_eq!(region.populate(span(0, SLOT_PAGES)), Ok(4));
    // One that meets what is there, and two for each of three runs: the last one has nothing behind it.
    assert!(region.installs() - before <= 6, "{} calls", region.installs() - before);
    assert_eq!(region.present_pages(), SLOT_PAGES);
}

#[test]
fn an_unreadable_backing_is_an_error_and_not_zeroes() {
    let region = region();
    region.map(span(0, 8), BACKED, 0).unwrap();
    // Buffers are made by the first fault that is not speculative.
    assert_eq!(access(&region, 0, None), Ok(backing_byte(0)));
    assert_eq!(region.counted(Counter::SpfVmaNoanon), 1);
    region.fail(&[Errno::EIO]);
    assert_eq!(access(&region, 4, None), Err(Outcome::Lost(Errno::EIO)));
    assert_eq!(region.read(span(4, 1).start), Found::Poisoned);
    // Until it is dropped.
    region.advise(span(4, 1), Advice::DontNeed).unwrap();
    assert_eq!(access(&region, 4, None), Ok(backing_byte(4 * PAGE)));
}

/// Whatever number it has, and only for the page that is needed.
#[test]
fn a_backing_that_fails_is_not_asked_again_and_keeps_no_other_page_away() {
    let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 3, most: 3 });
    region.map(span(0, 64), BACKED, 0).unwrap();
    assert_eq!(access(&region, 0, None), Ok(backing_byte(0)));
    let before = region.fills();
    // All of the window cannot be read, but its first page can.
    region.fail(&[Errno::EIO]);
    assert_eq!(access(&region, 8, None), Ok(backing_byte(8 * PAGE)));
    assert_eq!((region.read(span(9, 1).start), region.fills()), (Found::Missing, before + 1));
    for error in [Errno::EAGAIN, Errno::ENOMEM] {
        region.fail(&[error, error]);
        let page = 16 + error.number() as usize;
        assert_eq!(access(&region, page, None), Err(Outcome::Lost(error)));
        assert_eq!(region.read(span(page, 1).start), Found::Poisoned);
    }
}

/// Pages for which the kernel has no memory may come later, until the fault is made for the last time.
#[test]
fn a_page_that_does_not_come_is_an_error_in_the_end() {
    let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 0, most: 0 });
    region.map(span(0, 8), ANONYMOUS, 0).unwrap();
    let fault = Fault { addr: span(1, 1).start, wants: Rights::Read, hint: 0, cpu: 0 };
    region.fail(&[Errno::ENOMEM]);
    assert_eq!((region.fault(fault), region.read(fault.addr)), (Outcome::Failed(Errno::ENOMEM), Found::Missing));
    region.fail(&[Errno::ENOMEM]);
    assert_eq!(region.last_fault(fault), Outcome::Lost(Errno::ENOMEM));
    assert_eq!((region.read(fault.addr), region.counted(Counter::RegionPgfault)), (Found::Poisoned, 1));
}

/// Buffers are made when they are first needed, and may not be had then. That page alone is an error in the end.
#[test]
fn a_page_that_needs_a_buffer_is_an_error_where_none_can_be_had() {
    let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 0, most: 0 });
    region.map(span(0, 8), BACKED, 0).unwrap();
    let fault = Fault { addr: span(1, 1).start, wants: Rights::Read, hint: 0, cpu: 0 };
    region.fail(&[Errno::ENOMEM]);
    assert_eq!((region.fault(fault), region.read(fault.addr)), (Outcome::Failed(Errno::ENOMEM), Found::Missing));
    region.fail(&[Errno::ENOMEM]);
    assert_eq!(region.last_fault(fault), Outcome::Lost(Errno::ENOMEM));
    assert_eq!(region.read(fault.addr), Found::Poisoned);
    // Others come when there is memory again, and so does this one once it is dropped.
    assert_eq!(access(&region, 2, None), Ok(backing_byte(2 * PAGE)));
    region.advise(span(1, 1), Advice::DontNeed).unwrap();
    assert_eq!(access(&region, 1, None), Ok(backing_byte(PAGE)));
}

/// What the first try has read, the second installs.
#[test]
fn filled_frames_are_kept_for_the_second_try() {
    let region = region_of(FakeMmu::new(|| {}), 10, Orders { first: 0, most: 0 });
    region.map(span(0, 8), BACKED, 0).unwrap();
    access(&region, 0, None).unwrap();
    assert_eq!(region.fills(), 1);
    // The fill works, the installing that follows is interrupted.
    region.fail(&[WORKS, Errno::EAGAIN]);
    let before = region.counted(Counter::SpfVmaChanged);
    // More often than the speculative fault asks again.
    region.fail(&[Errno::EAGAIN; 1100]);
    assert_eq!(access(&region, 5, None), Ok(backing_byte(5 * PAGE)));
    assert_eq!(region.counted(Counter::SpfVmaChanged), before + 1);
    assert_eq!(region.fills(), 2, "read once for both tries");
}

#[test]
fn each_other_reason_to_give_up() {
    let region = region_of(FakeMmu::new(|| {}).with_slow_backing(), 10, Orders { first: 0, most: 0 });
    region.map(span(0, 8), BACKED, 0).unwrap();
    assert_eq!(access(&region, 0, None), Ok(backing_byte(0)));
    assert_eq!(region.counted(Counter::SpfVmaNotsup), 1);
    region.protect(span(0, 8), Rights::Read).unwrap();
    let write = Fault { addr: span(1, 1).start, wants: Rights::Write, hint: 0, cpu: 0 };
    assert_eq!(region.fault(write), Outcome::Forbidden);
    assert_eq!(region.counted(Counter::SpfVmaNotsup), 2);
    region.map(span(100, 8), Attributes { rights: Rights::Read, ..ANONYMOUS }, 0).unwrap();
    assert_eq!(region.fault(Fault { addr: span(100, 1).start, ..write }), Outcome::Forbidden);
    assert_eq!(region.counted(Counter::SpfVmaAccess), 1);
    assert_eq!(region.fault(Fault { addr: span(500, 1).start, ..write }), Outcome::Forbidden);
    assert_eq!(region.counted(Counter::SpfVmaChanged), 1);
}
