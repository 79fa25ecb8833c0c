//! Regions whose pages go to a store, over a simulated memory: random operations in any order, against what each page has
//! to be.

mod access;
mod changes;
mod made;

use access::{access, span};
use changes::{Change, Oracle};
use faultless_base::sys::mmu::Rights;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES};
use faultless_fake::mmu::{FakeMmu, Found};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::{Advice, Refused};
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Counter;
use proptest::prelude::*;

const SLOTS: usize = 4;
const PAGES: usize = SLOTS * SLOT_PAGES;
/// Pages in memory.
const BUDGET: usize = 256;
const ANONYMOUS: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };

fn unmapped(most: u32) -> Region<FakeMmu> {
    with_budget(most, BUDGET)
}

fn with_budget(most: u32, pages: usize) -> Region<FakeMmu> {
    let plan = Plan { areas: 200, orders: Orders { first: 0, most } };
    let knobs = Box::leak(Box::<Values>::default());
    // So little patience that areas would be left to the kernel.
    made::region(FakeMmu::new(|| {}), SLOTS, plan, knobs).with_patience(5).with_swap(pages * PAGE).unwrap()
}

fn region() -> Region<FakeMmu> {
    let region = unmapped(0);
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    region
}

fn write(region: &Region<FakeMmu>, page: usize, byte: u8) -> u8 {
    access(region, page, Some(byte)).unwrap().0
}

fn read(region: &Region<FakeMmu>, page: usize) -> u8 {
    access(region, page, None).unwrap().0
}

/// Never zero.
fn byte_of(page: usize) -> u8 {
    (page % 251) as u8 + 1
}

/// All pages written, so that most of them are in the store.
fn filled() -> Region<FakeMmu> {
    let region = region();
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, byte_of(page)), 0));
    region
}

/// The first page that is only in the store.
fn stored(region: &Region<FakeMmu>) -> usize {
    (0..PAGES)
        .find(|page| region.read(span(*page, 1).start) == Found::Missing && region.corrupt(page * PAGE))
        .inspect(|page| assert!(region.corrupt(page * PAGE), "and back"))
        .unwrap()
}

fn fault(page: usize) -> Fault {
    Fault { addr: span(page, 1).start, wants: Rights::Read, hint: 1, cpu: 1 }
}

fn assert_pages_count(region: &Region<FakeMmu>) {
    assert_eq!(region.pages_in_memory(), region.present_pages() + region.aside());
}

#[derive(Clone, Debug)]
enum Op {
    One(Change),
    WriteAll(usize, usize, u8),
    ReadAll(usize, usize),
    KeepRoom,
    FailStore(usize),
    Pin(usize, usize),
}

fn ops() -> impl Strategy<Value = Op> {
    let part = (0..PAGES, prop_oneof![1..20usize, 400..1200usize]);
    let rights = prop_oneof![Just(Rights::None), Just(Rights::Read), Just(Rights::Write)];
    let advice = prop_oneof![Just(Advice::DontNeed), Just(Advice::Random), Just(Advice::Normal)];
    prop_oneof![
        2 => part.clone().prop_map(|(a, n)| Op::One(Change::Map(a, n, None))),
        1 => part.clone().prop_map(|(a, n)| Op::One(Change::Unmap(a, n))),
        1 => (part.clone(), rights).prop_map(|((a, n), r)| Op::One(Change::Protect(a, n, r))),
        1 => (part.clone(), 0..PAGES).prop_map(|((a, n), to)| Op::One(Change::Remap(a, n, to))),
        1 => (part.clone(), advice).prop_map(|((a, n), x)| Op::One(Change::Advise(a, n, x))),
        1 => (0..SLOTS, 0..480usize, 1..20usize).prop_map(|(slot, a, n)| Op::One(Change::Populate(slot * SLOT_PAGES + a, n))),
        4 => (0..PAGES).prop_map(|a| Op::One(Change::Read(a))),
        10 => (0..PAGES, 0..=255u8).prop_map(|(a, b)| Op::One(Change::Write(a, b))),
        3 => (part.clone(), 0..=255u8).prop_map(|((a, n), b)| Op::WriteAll(a, n, b)),
        2 => part.clone().prop_map(|(a, n)| Op::ReadAll(a, n)),
        2 => Just(Op::KeepRoom),
        1 => (1..4usize).prop_map(Op::FailStore),
        1 => (0..PAGES, 1..4usize).prop_map(|(a, n)| Op::Pin(a, n)),
    ]
}

fn step(region: &Region<FakeMmu>, oracle: &mut Oracle, op: Op) {
    let each = |at: usize, n: usize| at..(at + n).min(PAGES);
    match op {
        // Pages of one slot, in one area or more. Room for those of the next one is made of those of the last.
        Op::One(Change::Populate(at, n)) => {
            if region.populate(span(at, n)).is_ok() {
                assert!(matches!(region.read(span(at + n - 1, 1).start), Found::Byte(_)));
            }
        }
        Op::One(change) => oracle.step(region, change),
        Op::WriteAll(at, n, byte) => each(at, n).for_each(|at| oracle.step(region, Change::Write(at, byte))),
        Op::ReadAll(at, n) => each(at, n).for_each(|at| oracle.step(region, Change::Read(at))),
        Op::KeepRoom => while region.keep_room() {},
        // Of writes: a read that fails for good is a lost page.
        Op::FailStore(n) => {
            region.fail_store(&vec![Errno::ENOSPC; n]);
            while region.keep_room() {}
            region.heal_store();
        }
        Op::Pin(at, n) => region.pin(span(at, n)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each page is what was last written to it, wherever it was meanwhile.
    #[test]
    fn pages_come_back_as_they_were(ops in prop::collection::vec(ops(), 1..100), most in 0..9u32) {
        let region = unmapped(most);
        let mut oracle = Oracle::new(PAGES, ANONYMOUS);
        oracle.step(&region, Change::Map(0, PAGES, None));
        for op in ops {
            step(&region, &mut oracle, op);
            region.areas().check();
            assert_pages_count(&region);
        }
        (0..PAGES).for_each(|at| oracle.step(&region, Change::Read(at)));
        assert_pages_count(&region);
    }
}

#[test]
fn memory_stays_below_the_budget() {
    let region = region();
    for round in 0..3 {
        for page in 0..PAGES {
            let at = if round == 1 { page * 1021 % PAGES } else { page };
            assert_eq!(write(&region, at, byte_of(at)), if round == 0 { 0 } else { byte_of(at) });
        }
    }
    assert!(region.most() <= BUDGET, "{} pages", region.most());
    assert_pages_count(&region);
    let count = |counter| region.counted(counter);
    assert!(count(Counter::SwapDirect) > 0 && count(Counter::SwapOut) > 0 && count(Counter::SwapIn) > 0);
    assert_eq!(count(Counter::SwapErrors) + count(Counter::SwapCorrupt), 0);
    // In a circle through all pages, each one has seen go nearly all others.
    let distance = count(Counter::SwapRefaultDistance) / count(Counter::SwapRefaults) / PAGE as u64;
    assert!((PAGES as u64 / 2..PAGES as u64).contains(&distance), "{distance} pages");
    assert!((BUDGET + PAGES / 2..=PAGES).contains(&(region.working_set() / PAGE)));
}

/// Room is made before pages come, whole windows and populated parts as well.
#[test]
fn windows_take_no_more_than_there_is_room_for() {
    let region = unmapped(6);
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    for round in 0..3 {
        (0..PAGES).for_each(|page| assert_eq!(write(&region, page, 7), if round == 0 { 0 } else { 7 }));
        (0..PAGES).for_each(|page| assert_eq!(read(&region, page), 7));
        region.populate(region.span()).unwrap();
        assert!(region.most() <= BUDGET, "{} pages in round {round}", region.most());
    }
    assert_pages_count(&region);
    assert!(region.counted(Counter::RegionWindowHits) > 0);
}

#[test]
fn what_was_only_read_goes_without_a_write() {
    let region = filled();
    let read_all = || (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    // What was written last goes, and all comes and goes as the store has it.
    read_all();
    let written = region.counted(Counter::SwapOut);
    read_all();
    let read_again = region.counted(Counter::SwapIn);
    read_all();
    assert_eq!(region.counted(Counter::SwapOut), written);
    assert!(region.counted(Counter::SwapIn) > read_again);
    assert!(region.counted(Counter::SwapClean) > (PAGES * PAGE) as u64);
    // A write to such a page takes it to the store again, and what the store had before does not come back.
    (0..PAGES).step_by(50).for_each(|page| assert_eq!(write(&region, page, 0xEE), byte_of(page)));
    (0..PAGES).filter(|page| page % 50 != 0).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    (0..PAGES).step_by(50).for_each(|page| assert_eq!(read(&region, page), 0xEE));
    assert!(region.counted(Counter::SwapOut) >= written + (PAGES / 50 * PAGE) as u64);
    assert_pages_count(&region);
}

/// The kernel says nothing of some pages: they count as written to.
#[test]
fn what_is_not_known_to_be_clean_is_written() {
    let region = filled();
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    let written = region.counted(Counter::SwapOut);
    for page in 0..PAGES {
        region.fail(&[Errno::EPERM]);
        assert_eq!(read(&region, page), byte_of(page));
    }
    assert!(region.counted(Counter::SwapOut) > written);
}

/// The program looks for writes by the kernel's notes itself, and has them begin anew.
#[test]
fn writes_whose_notes_are_lost_are_not() {
    let region = filled();
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    for page in 0..PAGES {
        assert_eq!(read(&region, page), byte_of(page));
        assert_eq!(write(&region, page, 0xEE), byte_of(page));
        region.note_again(region.span());
    }
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), 0xEE));
}

/// Pages that may not be written to stay aside. Others go in their place.
#[test]
fn what_is_closed_while_it_is_aside_leaves_the_rest_its_budget() {
    // Windows leave more aside than single pages do.
    const PAGES_MOST: usize = PAGES - 2 * 64;
    let region = with_budget(5, PAGES_MOST);
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, byte_of(page)), 0));
    let is_stored = |page: &usize| region.corrupt(page * PAGE) && region.corrupt(page * PAGE);
    let is_missing = |page: &usize| region.read(span(*page, 1).start) == Found::Missing;
    let closed: Vec<_> = (0..PAGES).filter(|page| is_missing(page) && !is_stored(page)).collect();
    assert!(closed.len() >= 192, "{} pages are aside", closed.len());
    closed.iter().for_each(|page| region.protect(span(*page, 1), Rights::Read).unwrap());
    for i in 0..4 * PAGES {
        let page = (i * 97) % PAGES;
        if !closed.contains(&page) {
            write(&region, page, 1);
        }
    }
    let in_memory = region.pages_in_memory();
    assert!(in_memory <= PAGES_MOST, "{in_memory} pages");
    closed.iter().for_each(|page| assert_eq!(read(&region, *page), byte_of(*page)));
}

#[test]
fn the_background_keeps_the_room_between_the_marks() {
    let region = region();
    let mut page = 0;
    while !region.wants_room() {
        assert_eq!(write(&region, page, 1), 0);
        page += 1;
    }
    assert_eq!(page, BUDGET - BUDGET * 2 / 100 + 1);
    while region.keep_room() {}
    assert!(region.pages_in_memory() <= BUDGET * 96 / 100 && !region.wants_room());
    assert_eq!(region.counted(Counter::SwapDirect), 0);
    (0..page).for_each(|page| assert_eq!(read(&region, page), 1));
    // Other marks.
    region.set(Knob::SwapLow, 0);
    assert!(!region.wants_room());
    region.set(Knob::SwapLow, 40);
    region.set(Knob::SwapHigh, 50);
    assert!(region.wants_room());
    while region.keep_room() {}
    assert!(region.pages_in_memory() <= BUDGET / 2, "{} pages", region.pages_in_memory());
}

/// Faults that bring single pages need less room than the mark says.
#[test]
fn room_is_kept_for_what_faults_bring() {
    let pages = PAGES * 3 / 4;
    for (most, expected) in [(0, pages - 64), (6, pages * 60 / 100)] {
        let region = with_budget(most, pages);
        region.map(region.span(), ANONYMOUS, 0).unwrap();
        region.set(Knob::SwapLow, 40);
        region.set(Knob::SwapHigh, 50);
        let wants = (0..PAGES).find(|page| {
            assert_eq!(write(&region, *page, 1), 0);
            region.wants_room()
        });
        assert!((expected - 64..=expected + 64).contains(&wants.unwrap()), "{wants:?} in place of {expected}");
        while region.keep_room() {}
        let free = if most == 0 { 128 } else { pages / 2 };
        assert!((pages - free - 64..=pages - free).contains(&region.pages_in_memory()));
    }
}

#[test]
fn a_page_that_is_used_meanwhile_stays() {
    let region = region();
    // One page is used all the time, and all others once.
    for page in 1..PAGES {
        assert_eq!(write(&region, page, byte_of(page)), 0);
        assert_eq!(write(&region, 0, 7), if page == 1 { 0 } else { 7 });
    }
    // Nothing was aside before the first round, so that one gives no second chance.
    assert!(region.counted(Counter::SwapIn) <= PAGE as u64, "it went to the store");
    assert!(region.counted(Counter::SwapBack) > 0);
}

#[test]
fn zeroes_take_no_store() {
    let region = region();
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, 0), 0));
    assert_eq!((region.stored(), region.counted(Counter::SwapOut)), (0, 0));
    assert!(region.pages_in_memory() <= BUDGET);
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), 0));
}

#[test]
fn a_store_that_is_full_loses_nothing() {
    let region = region();
    region.fail_store(&vec![Errno::ENOSPC; 1000]);
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, byte_of(page)), 0));
    assert!(region.counted(Counter::SwapErrors) > 0);
    assert_eq!((region.pages_in_memory(), region.stored()), (PAGES, 0));
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    // It has room again, and a while later the region is below its budget.
    region.heal_store();
    for _ in 0..100 {
        region.populate(span(0, 1)).unwrap();
    }
    assert!(region.pages_in_memory() <= BUDGET, "{} pages", region.pages_in_memory());
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
}

/// A write that fails may leave anything in the store, where pages lay that were clean: they are written again.
#[test]
fn a_write_that_fails_half_way_leaves_no_clean_page() {
    let region = filled();
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    // Every third page has changed: those between are written along with them.
    for page in (0..PAGES).step_by(3) {
        assert_eq!(read(&region, page + 1 - (page + 1) / PAGES), byte_of(page + 1 - (page + 1) / PAGES));
        assert_eq!(write(&region, page, 0xEE), byte_of(page));
        region.fail_store(&[Errno::ENOSPC]);
        while region.keep_room() {}
        region.heal_store();
    }
    assert!(region.counted(Counter::SwapErrors) > 0);
    // The store is asked again after a while.
    (0..200).for_each(|_| _ = region.populate(span(0, 1)).unwrap());
    let expected = |page: usize| if page % 3 == 0 { 0xEE } else { byte_of(page) };
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), expected(page)));
    assert_eq!(region.counted(Counter::SwapCorrupt), 0);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_others_are_not() {
    let region = filled();
    while region.keep_room() {}
    let page = stored(&region);
    // Once may pass. The last fault makes it an error.
    region.fail_store(&[Errno::EIO]);
    assert_eq!(region.fault(fault(page)), Outcome::Failed(Errno::EIO));
    assert_eq!(read(&region, page), byte_of(page));
    // No write meets an error that is for a read.
    while region.keep_room() {}
    let page = stored(&region);
    region.fail_store(&[Errno::EIO, Errno::EIO]);
    assert_eq!(region.fault(fault(page)), Outcome::Failed(Errno::EIO));
    assert_eq!(region.last_fault(fault(page)), Outcome::Lost(Errno::EIO));
    assert_eq!(region.read(span(page, 1).start), Found::Poisoned);
    (0..PAGES).filter(|other| *other != page).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    // What is dropped is as new.
    region.advise(span(page, 1), Advice::DontNeed).unwrap();
    assert_eq!(read(&region, page), 0);
    assert_eq!(region.counted(Counter::SwapErrors), 3);
}

#[test]
fn wrong_bytes_are_noticed() {
    let region = filled();
    let page = stored(&region);
    assert!(region.corrupt(page * PAGE));
    assert_eq!(region.fault(fault(page)), Outcome::Failed(Errno::EBADMSG));
    assert_eq!(region.last_fault(fault(page)), Outcome::Lost(Errno::EBADMSG));
    assert_eq!(region.read(span(page, 1).start), Found::Poisoned);
    assert_eq!(region.counted(Counter::SwapCorrupt), 2);
    (0..PAGES).filter(|other| *other != page).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
}

/// A window brings what it can: the fault's own page counts.
#[test]
fn a_wrong_page_in_a_window_costs_only_itself() {
    let region = unmapped(5);
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, byte_of(page)), 0));
    let bad = 40;
    assert!(region.corrupt(bad * PAGE));
    (0..bad).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
    assert_eq!(region.last_fault(fault(bad)), Outcome::Lost(Errno::EBADMSG));
    (bad + 1..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
}

#[test]
fn what_a_device_uses_or_may_not_be_written_to_stays() {
    let region = region();
    region.pin(span(3, 2));
    (0..PAGES).for_each(|page| assert_eq!(write(&region, page, byte_of(page)), 0));
    assert_eq!([3, 4].map(|page| region.read(span(page, 1).start)), [3, 4].map(|page| Found::Byte(byte_of(page))));
    assert!(region.pages_in_memory() <= BUDGET);
    // A part that is closed meanwhile comes back as it was.
    for rights in [Rights::Read, Rights::None, Rights::Write] {
        region.protect(span(0, PAGES / 2), rights).unwrap();
        for page in (0..PAGES).step_by(5) {
            let closed = rights == Rights::None && page < PAGES / 2;
            let expected = if closed { Err(Outcome::Forbidden) } else { Ok(byte_of(page)) };
            assert_eq!(access(&region, page, None).map(|(byte, _)| byte), expected, "page {page}, {rights:?}");
        }
        assert_pages_count(&region);
    }
}

#[test]
fn what_is_dropped_takes_no_store() {
    let region = filled();
    assert!(region.stored() > PAGES / 2);
    region.advise(span(0, PAGES / 2), Advice::DontNeed).unwrap();
    region.unmap(span(PAGES / 2, PAGES / 2)).unwrap();
    assert_eq!((region.stored(), region.aside(), region.pages_in_memory()), (0, 0, 0));
    region.map(span(PAGES / 2, PAGES / 2), ANONYMOUS, 0).unwrap();
    (0..PAGES).for_each(|page| assert_eq!(read(&region, page), 0));
}

#[test]
fn moves_and_snapshots_are_refused() {
    let region = filled();
    region.unmap(span(0, SLOT_PAGES)).unwrap();
    let from = span(SLOT_PAGES, 4);
    assert_eq!(region.remap(from, region.span().start), Err(Refused::Swapped));
    assert_eq!(region.snapshot(region.span()), Err(Refused::Swapped));
    assert_eq!(region.span().bytes(), SLOTS * SLOT);
    (SLOT_PAGES..PAGES).for_each(|page| assert_eq!(read(&region, page), byte_of(page)));
}
