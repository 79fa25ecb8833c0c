//! Regions as a whole, over a simulated memory: threads that fault, and threads that unmap, protect, move and drop, in an order
//! that chance says.
//!
//! Each thread has a part of its own and knows what must be there; windows, entries, areas and places in tables are everybody's. The memory
//! itself panics at a page that nobody may access, and an area at a use after it was freed.

use std::sync::Arc;

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::mmu::{FakeMmu, Found, backing_byte};
use faultless_mm::area::Attributes;
use faultless_mm::change::{Advice, Refused};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::knobs::Values;
use faultless_mm::region::{Plan, Region};
use faultless_mm::stats::{Block, Counter};
use faultless_mm::window::Orders;
use faultless_models::check_runs;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const BASE: usize = 1 << 40;
const SLOTS: usize = 2;
/// Pages of a thread's part; the parts of all begin in one slot, one after the other.
const PART: usize = 12;
const ATTRIBUTES: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };

/// What was counted in all runs.
static COUNTERS: Block = Block::new();

fn check(model: fn()) {
    check_runs(model, 2000);
}

fn chance(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

type Memory = Region<FakeMmu>;

fn region(areas: usize, mmu: FakeMmu) -> Arc<Memory> {
    let knobs = Box::leak(Box::<Values>::default());
    // Into the parts of others, too.
    let orders = [(0, 0), (0, 2), (3, 4), (3, 3), (0, 11)][chance(5)];
    let orders = Orders { first: orders.0, most: orders.1 };
    let span = Span::new(BASE, SLOTS * SLOT);
    Arc::new(Region::new(mmu, span, Plan { areas, orders }, &COUNTERS, knobs).unwrap())
}

fn memory() -> FakeMmu {
    FakeMmu::new(thread::yield_now)
}

fn page(first: usize, pages: usize) -> Span {
    Span::new(BASE + first * PAGE, pages * PAGE)
}

/// Accesses a page until it is there, or may not be accessed.
fn access(region: &Memory, at: usize, write: Option<u8>) -> Option<u8> {
    let addr = page(at, 1).start;
    let wants = if write.is_some() { Rights::Write } else { Rights::Read };
    for _ in 0..100 {
        match write.map_or_else(|| region.read(addr), |byte| region.write(addr, byte)) {
            Found::Byte(byte) => return Some(byte),
            Found::Forbidden => return None,
            Found::Missing => {
                let outcome = region.fault(Fault { addr, wants, hint: at / PART });
                assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            }
        }
    }
    panic!("a page that does not come");
}

/// What a thread knows of its part, page by page: nothing is mapped, or this byte is there.
struct Part {
    first: usize,
    pages: [Option<u8>; PART],
    rights: Rights,
}

impl Part {
    fn new(id: usize) -> Self {
        Self { first: id * PART, pages: [Some(0); PART], rights: Rights::Write }
    }

    fn span(&self) -> Span {
        page(self.first, PART)
    }

    fn check(&self, region: &Memory, i: usize) {
        let expected = self.pages[i].filter(|_| self.rights > Rights::None);
        assert_eq!(access(region, self.first + i, None), expected, "page {i} of {:x?}", self.span());
    }

    /// One call, or accesses.
    fn step(&mut self, region: &Memory) {
        let i = chance(PART);
        let n = 1 + chance(PART - i);
        let span = page(self.first + i, n);
        let whole = self.pages.iter().all(Option::is_some);
        let pages = &mut self.pages[i..i + n];
        match chance(9) {
            0 => {
                region.unmap(span).unwrap();
                pages.fill(None);
            }
            1 => {
                let free = pages.iter().all(Option::is_none);
                let rights = self.rights;
                let done = region.map(span, Attributes { rights, ..ATTRIBUTES }, 0);
                assert_eq!(done.is_ok(), free, "{done:?}");
                if free {
                    pages.fill(Some(0));
                }
            }
            2 if whole => {
                let rights = [Rights::None, Rights::Read, Rights::Write][chance(3)];
                region.protect(self.span(), rights).unwrap();
                self.rights = rights;
            }
            3 if pages.iter().all(Option::is_some) => {
                region.advise(span, Advice::DontNeed).unwrap();
                pages.fill(Some(0));
            }
            4 => {
                // Within the own part: to where nothing is.
                let to = chance(PART - n + 1);
                let target = page(self.first + to, n);
                if region.remap(span, target.start).is_ok() {
                    let moved: Vec<_> = pages.iter_mut().map(Option::take).collect();
                    self.pages[to..to + n].copy_from_slice(&moved);
                }
            }
            5 if self.rights > Rights::None && pages.iter().all(Option::is_some) => {
                region.populate(span).unwrap();
            }
            6 if self.rights == Rights::Write && self.pages[i].is_some() => {
                let byte = 1 + chance(250) as u8;
                assert_eq!(access(region, self.first + i, Some(byte)), self.pages[i]);
                self.pages[i] = Some(byte);
            }
            _ => self.check(region, i),
        }
    }
}

/// Threads, each with its part and so many steps.
fn run(region: &Arc<Memory>, threads: usize, steps: usize) {
    let work = |id: usize| {
        let region = region.clone();
        thread::spawn(move || {
            let mut part = Part::new(id);
            (0..steps).for_each(|_| part.step(&region));
            (0..PART).for_each(|i| part.check(&region, i));
        })
    };
    let threads: Vec<_> = (0..threads).map(work).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    region.areas().check();
}

fn assert_counted(counter: Counter) {
    assert!(COUNTERS.get(counter as usize) > 0, "{counter:?}: in no run");
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
            thread::spawn(move || region.fault(Fault { addr: page(at, 1).start, wants: Rights::Read, hint: 1 }))
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

/// Huge pages against unmaps and populating of what is around.
#[test]
fn huge_pages_go_where_nothing_is() {
    check(|| {
        let region = region(100, memory());
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
