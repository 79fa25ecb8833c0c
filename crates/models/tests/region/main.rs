//! Regions as a whole, over a simulated memory: threads that fault, and threads that unmap, protect, move and drop,
//! in an order that chance says.
//!
//! Each thread has a part of its own and knows what must be there; windows, entries, areas and places in tables are
//! shared by all. The memory itself panics at a page without access, and an area at a use after it was freed.

mod fork;
mod part;
mod snapshot;
mod swap;

use std::sync::Arc;

use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::{FakeMmu, Found, backing_byte};
use faultless_mm::Space;
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::{Advice, Refused};
use faultless_mm::region::{Plan, Region};
use faultless_models::{accessed, check_runs};
use faultless_page::knobs::Values;
use faultless_page::listing::{Counted, Line, Place};
use faultless_page::stats::{Block, Counter};
use part::run;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const BASE: usize = 1 << 40;
const SLOTS: usize = 2;
/// Pages of a thread's part; the parts of all begin in one slot, one after the other.
const PART: usize = 12;
const ATTRIBUTES: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };

/// What was counted in all runs.
static PLACE: Place = Place::new();
static LINES: [Line; 1] = [Line::new()];

fn check(model: fn()) {
    check_runs(model, 2000);
}

fn chance(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

type Memory = Region<FakeMmu>;

fn region(areas: usize, mmu: FakeMmu) -> Arc<Memory> {
    Arc::new(region_of(areas, mmu))
}

/// One that has huge pages.
fn region_with_frames(areas: usize) -> Arc<Memory> {
    let (counters, knobs) = (Box::leak(Box::new(Block::new())), Box::leak(Box::<Values>::default()));
    let memory = Fake::default();
    let space = Space::without_arena(memory.clone(), counters, knobs);
    let space: &Space<Fake> = Box::leak(Box::new(space.unwrap().with_pool(SLOTS * SLOT).unwrap()));
    let mmu = FakeMmu::new(thread::yield_now).with_frames(memory);
    Arc::new(region_of(areas, mmu).with_frames(space, 0))
}

fn region_of(areas: usize, mmu: FakeMmu) -> Memory {
    let knobs = Box::leak(Box::<Values>::default());
    // Into the parts of others, too.
    let orders = [(0, 0), (0, 2), (3, 4), (3, 3), (0, 11)][chance(5)];
    let orders = Orders { first: orders.0, most: orders.1 };
    let span = Span::new(BASE, SLOTS * SLOT);
    // In some runs areas are soon left to the kernel.
    let patience = [2, 100][chance(2)];
    let counted = Counted::new(&PLACE, &LINES);
    let region = Region::new(mmu, span, Plan { areas, orders }, counted, knobs).unwrap();
    region.with_patience(patience)
}

fn memory() -> FakeMmu {
    FakeMmu::new(thread::yield_now)
}

fn page(first: usize, pages: usize) -> Span {
    Span::new(BASE + first * PAGE, pages * PAGE)
}

/// An access to page `at`; the parts are threads.
fn access(region: &Memory, at: usize, write: Option<u8>) -> Option<u8> {
    accessed(region, page(at, 1).start, write, at / PART)
}

fn assert_counted(counter: Counter) {
    assert!(Counted::new(&PLACE, &LINES).get(counter) > Some(0), "{counter:?}: in no run");
}

/// One area at first: what a thread cuts out of it is the others', too.
#[test]
fn faults_go_on_beside_changes() {
    check(|| {
        let region = region(100, memory());
        region.map(region.span(), ATTRIBUTES, 0).unwrap();
        run(&region, 3, 5);
    });
    assert_counted(Counter::SpeculativePgfault);
    assert_counted(Counter::SpfVmaChanged);
    assert_counted(Counter::SpfPmdChanged);
    assert_counted(Counter::RegionGivenUp);
}

/// Two threads walk through each other's windows, and write to every other page each; in some runs memory ends
/// meanwhile.
#[test]
fn windows_of_two_threads_overlap() {
    check(|| {
        let region = region(10, memory());
        // Also where a window meets the end of the area.
        let pages = 6 + chance(30);
        region.map(page(0, pages), Attributes { huge: true, ..ATTRIBUTES }, 0).unwrap();
        let walk = |id: usize| {
            let region = region.clone();
            thread::spawn(move || {
                for at in (id..pages).step_by(2) {
                    let addr = page(at, 1).start;
                    let mut tries = 0..100;
                    while region.write(addr, id as u8 + 1) == Found::Missing {
                        assert!(tries.next().is_some(), "a page that does not come");
                        if chance(8) == 0 {
                            region.fail(&[Errno::ENOMEM]);
                        }
                        let outcome = region.fault(Fault { addr, wants: Rights::Write, hint: id, cpu: id });
                        let short = outcome == Outcome::Failed(Errno::ENOMEM);
                        assert!(short || matches!(outcome, Outcome::Installed(_)), "{outcome:?}");
                    }
                }
            })
        };
        let threads = [walk(0), walk(1)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for at in 0..pages {
            assert_eq!(region.read(page(at, 1).start), Found::Byte(at as u8 % 2 + 1), "page {at}");
        }
        assert_eq!(region.present_pages(), region.present(region.span()));
    });
    assert_counted(Counter::RegionWindowHits);
}

/// One thread reads a window, and another one writes to it: each write is to a page of its own.
#[test]
fn a_window_that_is_read_is_written_to() {
    check(|| {
        let region = region(10, memory());
        region.map(page(0, 20), ATTRIBUTES, 0).unwrap();
        let reader = {
            let region = region.clone();
            thread::spawn(move || {
                (0..12).for_each(|at| assert!(access(&region, at, None).is_some_and(|byte| byte < 2)))
            })
        };
        for at in (0..12).step_by(3) {
            assert_eq!(access(&region, at, Some(1)), Some(0));
        }
        reader.join().unwrap();
        for at in 0..12 {
            assert_eq!(access(&region, at, None), Some((at % 3 == 0) as u8), "page {at}");
        }
        assert_eq!(region.present_pages(), region.present(region.span()));
    });
}

/// The window of a fault reaches into what another thread changes, once: every place to switch threads has its turn.
#[test]
fn one_fault_beside_one_change() {
    check(|| {
        let region = region(10, memory());
        let backed = chance(2) == 1;
        region.map(page(0, 64), Attributes { backed, ..ATTRIBUTES }, 0).unwrap();
        if backed {
            region.populate(page(63, 1)).unwrap();
        }
        let fault = {
            let region = region.clone();
            let at = chance(3);
            thread::spawn(move || {
                region.fault(Fault { addr: page(at, 1).start, wants: Rights::Read, hint: 1, cpu: 1 })
            })
        };
        let part = page(chance(3), 1 + chance(3));
        match chance(3) {
            0 => region.unmap(part).unwrap(),
            1 => region.protect(part, Rights::None).unwrap(),
            _ => region.remap(part, page(100, 1).start).unwrap(),
        }
        assert!(!matches!(fault.join().unwrap(), Outcome::Failed(_)));
        region.areas().check();
    });
}

/// So few places that each is used again and again.
#[test]
fn places_of_areas_are_used_again() {
    check(|| {
        let region = region(8, memory());
        for id in 0..2 {
            region.map(page(id * 2 * PART, 1), ATTRIBUTES, 0).unwrap();
        }
        let change = |id: usize| {
            let region = region.clone();
            thread::spawn(move || {
                let first = id * 2 * PART;
                for round in 0..4 {
                    assert_eq!(access(&region, first, Some(round as u8 + 1)), Some(round as u8));
                    let other = page(first + 2 + round, 1);
                    match region.map(other, Attributes { rights: Rights::Read, ..ATTRIBUTES }, 0) {
                        Ok(()) => {
                            assert_eq!(access(&region, first + 2 + round, None), Some(0));
                            region.unmap(other).unwrap();
                        }
                        Err(refused) => assert_eq!(refused, Refused::Full),
                    }
                    assert_eq!(access(&region, first + 2 + round, None), None);
                }
            })
        };
        let threads = [change(0), change(1)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        region.areas().check();
    });
}

/// All threads on the same pages: one brings each, all see it.
#[test]
fn threads_fault_on_the_same_pages() {
    check(|| {
        let backed = chance(2) == 1;
        let region = region(10, memory());
        region.map(region.span(), Attributes { backed, huge: true, ..ATTRIBUTES }, 0).unwrap();
        let work = || {
            let region = region.clone();
            thread::spawn(move || {
                for at in 0..4 {
                    let expected = if backed { backing_byte(at * PAGE) } else { 0 };
                    assert_eq!(access(&region, at, None), Some(expected));
                }
            })
        };
        let threads = [work(), work(), work()];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_counted(Counter::SpfVmaNoanon);
}

/// The backing ends earlier than before, and the pages beyond are dropped: no thread finds them afterwards.
#[test]
fn what_was_truncated_does_not_come_back() {
    check(|| {
        let region = region(10, memory());
        let backed = Attributes { backed: true, ..ATTRIBUTES };
        region.map(page(0, 8), backed, 0).unwrap();
        // So that there are buffers for speculative faults.
        region.populate(page(7, 1)).unwrap();
        let work = |from: usize| {
            let region = region.clone();
            thread::spawn(move || {
                for at in from..from + 3 {
                    let found = access(&region, at, None).unwrap();
                    assert!(found == 0 || found == backing_byte(at * PAGE), "{found} in page {at}");
                }
            })
        };
        let threads = [work(0), work(1)];
        // Else no thread has read anything yet.
        (0..chance(60)).for_each(|_| thread::yield_now());
        region.truncate(2 * PAGE);
        region.advise(page(2, 6), Advice::DontNeed).unwrap();
        assert!((2..8).all(|at| access(&region, at, None) == Some(0)), "it came back");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!((2..8).all(|at| access(&region, at, None) == Some(0)), "it came back later");
        assert!((0..2).all(|at| access(&region, at, None) == Some(backing_byte(at * PAGE))));
    });
}

/// A backing that may not be read while the region changes, and rights that come and go.
#[test]
fn slow_backings_and_rights_send_faults_the_other_way() {
    check(|| {
        let region = region(10, memory().with_slow_backing());
        let backed = Attributes { backed: true, ..ATTRIBUTES };
        region.map(page(0, 4), backed, 0).unwrap();
        region.map(page(4, 4), ATTRIBUTES, 0).unwrap();
        let other = {
            let region = region.clone();
            thread::spawn(move || {
                // Also beside the first change.
                let first = chance(8);
                for at in (0..8).map(|i| (first + i) % 8) {
                    let fresh = if at < 4 { backing_byte(at * PAGE) } else { 0 };
                    let before = access(&region, at, Some(77));
                    assert!(before.is_none_or(|byte| byte == fresh), "{before:?} in page {at}");
                }
            })
        };
        region.protect(page(5, 2), Rights::Read).unwrap();
        assert!(matches!(access(&region, 5, None), Some(0 | 77)));
        assert_eq!(access(&region, 6, Some(1)), None, "written without right");
        region.remap(page(1, 2), page(20, 1).start).unwrap();
        assert_eq!(access(&region, 1, None), None);
        for (at, offset) in [(20, PAGE), (21, 2 * PAGE)] {
            let found = access(&region, at, None).unwrap();
            assert!(found == backing_byte(offset) || found == 77, "{found} in page {at}");
        }
        other.join().unwrap();
        region.areas().check();
    });
    assert_counted(Counter::SpfVmaNotsup);
    assert_counted(Counter::SpfVmaAccess);
}

/// Huge pages against unmaps and populating of what is around.
#[test]
fn huge_pages_go_where_nothing_is() {
    check(|| {
        let region = region_with_frames(100);
        let huge = Attributes { huge: true, ..ATTRIBUTES };
        region.map(region.span(), huge, 0).unwrap();
        let one = {
            let region = region.clone();
            thread::spawn(move || {
                region.populate(page(0, SLOT / PAGE)).unwrap();
                assert_eq!(access(&region, 5, Some(1)), Some(0));
                region.advise(page(5, 1), Advice::DontNeed).unwrap();
                assert_eq!(access(&region, 5, None), Some(0));
            })
        };
        let two = {
            let region = region.clone();
            thread::spawn(move || {
                region.unmap(page(SLOT / PAGE + 3, 9)).unwrap();
                assert_eq!(access(&region, SLOT / PAGE + 4, None), None);
                assert_eq!(access(&region, 7, None), Some(0));
                region.prepare_huge(1);
            })
        };
        one.join().unwrap();
        two.join().unwrap();
    });
}
