//! Windows of regions over a simulated memory: which pages a fault brings, of which kind, and when a region gives up.

mod access;
mod made;

use access::span;
use faultless_base::sys::mmu::Rights;
use faultless_base::{Errno, PAGE, SLOT};
use faultless_fake::mmu::{FakeMmu, Found};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::Advice;
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;
use made::BASE;

const SLOTS: usize = 16;
const PAGES: usize = SLOTS * SLOT / PAGE;
const ANONYMOUS: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: true, random: false, kernel: false };

type Memory = Region<FakeMmu>;

fn region() -> Memory {
    region_of(SLOTS)
}

fn region_of(slots: usize) -> Memory {
    region_on(FakeMmu::new(|| {}), slots)
}

fn region_on(mmu: FakeMmu, slots: usize) -> Memory {
    let plan = Plan { areas: 50, orders: Orders { first: 0, most: 14 } };
    let region = made::region(mmu, slots, plan, Box::leak(Box::default()));
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    region
}

/// The program accesses a page; how many faults that took.
fn access(region: &Memory, page: usize, write: Option<u8>) -> usize {
    let addr = span(page, 1).start;
    let (byte, brought) = access::access(region, page, write).unwrap();
    assert!(brought.iter().all(|there| there.contains(addr)), "page {page} is not in {brought:?}");
    assert!(write.is_some() || byte == 0 || byte == 1, "page {page} holds {byte}");
    brought.len()
}

/// Writes to pages in an order; how many faults that took.
fn write(region: &Memory, pages: impl IntoIterator<Item = usize>) -> usize {
    pages.into_iter().map(|page| access(region, page, Some(1))).sum()
}

#[test]
fn forward_and_backward_walks_take_few_faults_and_huge_pages() {
    for backward in [false, true] {
        let region = region();
        let faults = match backward {
            false => write(&region, 0..PAGES),
            true => write(&region, (0..PAGES).rev()),
        };
        assert!(faults <= 15, "{faults} faults");
        assert_eq!((region.resident(), region.splits()), (PAGES, 0));
        assert_eq!(region.counted(Counter::RegionPages), PAGES as u64);
    }
}

/// Where the kernel keeps tables, the 2 MiB of a fault is made of small pages.
#[test]
fn no_huge_page_goes_where_a_table_stays() {
    let region = region();
    region.keep_tables();
    write(&region, 0..PAGES);
    assert_eq!((region.resident(), region.splits()), (PAGES, 0));
    region.advise(region.span(), Advice::DontNeed).unwrap();
    write(&region, 0..PAGES);
    assert_eq!((region.resident(), region.splits()), (PAGES, 0));
}

/// What was dropped as a whole is as good as new.
#[test]
fn huge_pages_come_again_where_all_was_dropped() {
    let region = region();
    write(&region, 0..PAGES);
    region.advise(region.span(), Advice::DontNeed).unwrap();
    assert_eq!(region.resident(), 0);
    let faults = write(&region, 0..PAGES);
    assert!(faults <= 15, "{faults} faults");
    assert_eq!((region.resident(), region.splits()), (PAGES, 0));
}

#[test]
fn pages_apart_come_and_none_between_them() {
    let region = region();
    let faults = write(&region, (0..PAGES).step_by(7));
    assert_eq!(region.resident(), PAGES.div_ceil(7));
    assert!(faults < PAGES / 7 / 20, "{faults} faults");
}

#[test]
fn streams_in_turns_and_streams_of_several_threads_grow() {
    let region = region();
    let each = PAGES / 4;
    let faults = write(&region, (0..each).flat_map(|page| (0..4).map(move |part| part * each + page)));
    assert!(faults <= 4 * 13, "{faults} faults");
    assert_eq!(region.resident(), PAGES);
}

#[test]
fn the_knob_limits_windows_at_once() {
    let region = region();
    region.set(Knob::PrefaultMaxOrder, 0);
    assert_eq!(write(&region, 0..100), 100);
    region.set(Knob::PrefaultMaxOrder, 3);
    assert_eq!(write(&region, 100..508), 2 + (408usize - 2 - 4).div_ceil(8));
    region.set(Knob::PrefaultMaxOrder, 14);
    assert!(write(&region, 508..PAGES) < 16);
}

/// In another area the thread goes on where it was, if threads alone are told apart.
#[test]
fn the_knob_says_whose_faults_follow_each_other() {
    for (by, expected) in [(0, 3), (1, 1)] {
        let region = region();
        region.set(Knob::PrefaultBy, by);
        // Two areas, side by side.
        region.advise(span(4, PAGES - 4), Advice::NoHuge).unwrap();
        assert_eq!(write(&region, 0..4), 3, "1, 2, and the last of this area");
        assert_eq!(write(&region, 4..8), expected);
    }
}

/// With one stream for each thread, as in the patches of 2004, sequences in turns break each other, and one that goes
/// down is none.
#[test]
fn a_thread_may_have_one_stream_alone() {
    for (by, follows) in [(1, true), (2, false)] {
        let region = region();
        region.set(Knob::PrefaultBy, by);
        assert!(write(&region, 0..64) < 12, "one sequence is followed in any case");
        let in_turns = write(&region, (0..64).flat_map(|page| [128 + page, 256 + page]));
        assert_eq!(in_turns < 64, follows, "{in_turns} faults");
        let down = write(&region, (400..464).rev());
        assert_eq!(down < 32, follows, "{down} faults");
    }
}

/// More areas in turns than a thread has streams are on a line: each fault follows the one before, to no avail. The
/// kernel gets them.
#[test]
fn a_line_from_area_to_area_saves_nothing() {
    const AREAS: usize = 24;
    const EACH: usize = SLOT / PAGE;
    let region = region_of(AREAS);
    region.set(Knob::PrefaultBy, 1);
    (1..=AREAS).for_each(|area| region.unmap(span(area * EACH - 1, 1)).unwrap());
    let faults = write(&region, (0..EACH - 1).flat_map(|page| (0..AREAS).map(move |area| area * EACH + page)));
    assert!(faults < AREAS * EACH / 4, "{faults} faults");
    assert!(region.counted(Counter::RegionGivenUp) > 0);
}

#[test]
fn a_window_ends_with_its_area() {
    let region = region();
    region.protect(span(20, 4), Rights::Read).unwrap();
    region.unmap(span(40, 4)).unwrap();
    write(&region, 0..20);
    assert!((20..24).all(|page| region.read(span(page, 1).start) == Found::Missing));
    write(&region, 24..40);
    assert_eq!(region.resident(), 36);
    assert_eq!(region.read(span(44, 1).start), Found::Missing);
}

/// Pages of a window that another thread has brought stay as they are.
#[test]
fn pages_that_are_there_are_skipped() {
    let region = region();
    for page in [9, 12, 13, 40] {
        access(&region, page, Some(7));
    }
    let before = (region.counted(Counter::RegionPages), region.resident() as u64);
    assert_eq!(before.0, before.1);
    write(&region, (0..64).filter(|page| ![9, 12, 13, 40].contains(page)));
    for page in [9, 12, 13, 40] {
        assert_eq!(region.read(span(page, 1).start), Found::Byte(7));
    }
    assert_eq!(region.counted(Counter::RegionPages), region.resident() as u64);
}

/// At the end of memory what there is, is there, the page of the fault first.
#[test]
fn a_window_without_memory_installs_what_there_is() {
    for backward in [false, true] {
        let region = region();
        let page = |i| if backward { PAGES - 1 - i } else { i };
        write(&region, (0..31).map(page));
        let before = region.resident();
        // The next window cannot be brought, but its first page may be.
        region.fail(&[Errno::ENOMEM]);
        let addr = span(page(31), 1).start;
        let outcome = region.fault(Fault { addr, wants: Rights::Write, hint: 1, cpu: 1 });
        match backward {
            false => assert_eq!(outcome, Outcome::Failed(Errno::ENOMEM)),
            true => assert!(matches!(outcome, Outcome::Installed(_)), "{outcome:?}"),
        }
        assert_eq!(region.resident(), before + backward as usize);
        assert_eq!(region.counted(Counter::RegionPages), region.resident() as u64);
    }
}

#[test]
fn reads_bring_the_page_of_zeroes_and_nobody_writes_to_it() {
    let region = region();
    let faults: usize = (0..PAGES).map(|page| access(&region, page, None)).sum();
    assert!(faults <= 15, "{faults} faults");
    assert_eq!((region.resident(), region.zero_pages()), (0, PAGES), "reading takes no memory");
    // Writing takes no fault of ours, and changes one page each.
    assert_eq!(write(&region, (0..PAGES).step_by(3)), 0);
    assert_eq!(region.resident(), PAGES.div_ceil(3));
    for page in 0..PAGES {
        let expected = if page % 3 == 0 { 1 } else { 0 };
        assert_eq!(region.read(span(page, 1).start), Found::Byte(expected), "page {page}");
    }
}

/// A program that reads each page and then writes to it gets pages of its own, and few faults.
#[test]
fn reads_before_writes_bring_memory() {
    let region = region();
    let mut faults = 0;
    for page in 0..PAGES {
        faults += access(&region, page, None) + access(&region, page, Some(1));
    }
    assert!(faults <= 15, "{faults} faults");
    assert_eq!(region.resident(), PAGES);
    assert!(region.copied() < 10, "{} pages of zeroes were copied", region.copied());
}

/// Faults that follow nothing are the kernel's in the end, and ours again when the area begins anew.
#[test]
fn an_area_without_a_pattern_is_left_to_the_kernel() {
    let region = region();
    let scattered = |i: usize| i * i * i * 7919 % (PAGES - 1);
    let faults: usize = (0..300).map(|i| access(&region, scattered(i), Some(1))).sum();
    assert!(faults < 100, "{faults} faults");
    assert_eq!(region.counted(Counter::RegionGivenUp), 1);
    assert!(region.resident() < 300 + 20, "{} pages for 300", region.resident());
    // Changes work as before.
    region.protect(span(0, 10), Rights::None).unwrap();
    assert_eq!(region.read(BASE), Found::Forbidden);
    region.protect(span(0, 10), Rights::Write).unwrap();
    region.unmap(span(100, 700)).unwrap();
    region.map(span(100, 700), ANONYMOUS, 0).unwrap();
    assert_eq!(region.read(span(105, 1).start), Found::Missing, "mapped anew, it is ours");
    assert_eq!(access(&region, 105, Some(1)), 1);
    region.remap(span(2000, 8), span(100, 1).start).expect_err("mapped");
    region.unmap(span(100, 8)).unwrap();
    write(&region, 2000..2008);
    region.remap(span(2000, 8), span(100, 1).start).unwrap();
    assert!((100..108).all(|page| region.read(span(page, 1).start) == Found::Byte(1)));
    region.populate(span(3000, 100)).unwrap();
    assert!((3000..3100).all(|page| matches!(region.read(span(page, 1).start), Found::Byte(_))));
    region.advise(span(0, 100), Advice::DontNeed).unwrap();
    assert_eq!(region.read(BASE), Found::Missing);
    region.areas().check();
}

/// Short runs, each of which leaves most of its last window behind: in the end windows are so small that little is.
#[test]
fn windows_become_smaller_when_much_of_them_stays_unused() {
    const RUN: usize = 140;
    let slots = 200;
    let region = region_of(slots);
    let runs = |slots: std::ops::Range<usize>| {
        let before = region.resident();
        slots.for_each(|slot| _ = write(&region, (0..RUN).map(|page| slot * SLOT / PAGE + page)));
        region.resident() - before
    };
    assert!(runs(0..5) > 5 * RUN * 3 / 2);
    runs(5..slots - 20);
    assert!(region.counted(Counter::RegionUnused) > 0);
    let resident = runs(slots - 20..slots);
    assert!(resident < 20 * RUN * 5 / 4, "{resident} pages for {}", 20 * RUN);
    // One long run, and they are as large as ever.
    let long = self::region();
    write(&long, 0..PAGES);
    assert_eq!(long.counted(Counter::RegionUnused), 0);
}

/// A thread that serves faults for others leaves it to them to look.
#[test]
fn windows_that_were_left_are_looked_at_later() {
    const RUN: usize = 140;
    let region = region_on(FakeMmu::new(|| {}).with_handler(), 100);
    let runs = |slots: std::ops::Range<usize>| {
        slots.for_each(|slot| _ = write(&region, (0..RUN).map(|page| slot * SLOT / PAGE + page)));
    };
    runs(0..40);
    assert!(region.has_left_windows());
    assert_eq!(region.counted(Counter::RegionUnused), 0);
    while region.look_back() {}
    let seen = region.counted(Counter::RegionUnused);
    assert!(seen > 0 && !region.has_left_windows());
    // What was looked at counts, as it does elsewhere.
    (40..95).for_each(|slot| {
        runs(slot..slot + 1);
        while region.look_back() {}
    });
    let before = region.resident();
    runs(95..100);
    assert!(region.resident() - before < 5 * RUN * 5 / 4);
}
