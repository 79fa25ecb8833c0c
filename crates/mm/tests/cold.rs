//! Growth while huge pages are cold: small pages come ahead of the program.

mod calls;
mod resting;

use faultless_base::sys::Usage;
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::Space;
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block, Counter};

/// The budget, in slots.
const LIMIT: usize = 64;
/// What a huge page takes that the host has to find memory for.
const COLD_NS: u64 = 3_000_000;

struct Program {
    fake: Fake,
    space: Space<Fake>,
    counters: &'static [Block],
}

impl Program {
    fn new() -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (LIMIT * SLOT) as u64);
        knobs.set(Knob::Check, 1);
        let (fake, counters): (_, &'static [Block]) = (Fake::default(), Box::leak(Box::new([Block::new()])));
        let space = Space::new(fake.clone(), 1024 * SLOT, 1, counters, knobs).unwrap();
        Self { fake, space, counters }
    }

    fn count(&self, counter: Counter) -> usize {
        self.counters[0].get(counter as usize) as usize
    }

    fn map(&self, slots: usize) -> Span {
        calls::map(&self.space, &self.fake, 0, slots * SLOT)
    }

    fn rest(&self) {
        resting::rest(&self.space, LIMIT);
    }

    /// The program walks through a slot, which must be zero: how many of its pages were there before it came.
    fn walk(&self, slot: Span) -> usize {
        let pages = (slot.start..slot.end).step_by(PAGE);
        assert!(pages.clone().all(|page| self.fake.read(page) == Some(0)));
        let there = pages.filter(|page| self.fake.page(*page).present).count();
        self.fake.write(slot, 7);
        self.rest();
        there
    }
}

fn slots(span: Span) -> impl Iterator<Item = Span> {
    (span.start..span.end).step_by(SLOT).map(|at| Span::new(at, SLOT))
}

/// Whether a slot came as a whole before the program, and how many did.
fn came(there: &[usize]) -> usize {
    assert!(there.iter().all(|pages| [0, SLOT / PAGE].contains(pages)), "{there:?}");
    there.iter().filter(|pages| **pages > 0).count()
}

#[test]
fn small_pages_come_ahead_while_huge_ones_are_cold_and_huge_ones_again_later() {
    let p = Program::new();
    p.fake.set_huge_ns(COLD_NS);
    let span = p.map(40);
    let there: Vec<usize> = slots(span).map(|slot| p.walk(slot)).collect();
    let huge = p.count(Counter::BytesFreshHuge) / SLOT;
    assert!((1..=3).contains(&huge), "{huge} to find out");
    assert!(came(&there[huge..]) >= 15, "{there:?}");
    let slow = p.count(Counter::TouchNs) as u64 / COLD_NS;
    assert_eq!(slow as usize, huge, "what came ahead is of small pages");
    assert!(p.space.budget().charged() <= 1, "all but the last is seen to be used");
    p.fake.set_huge_ns(0);
    p.fake.advance_ms(5_000);
    p.map(20);
    assert_eq!(p.count(Counter::BytesFreshHuge) / SLOT, huge + 20);
}

#[test]
fn growth_that_becomes_cold_goes_on_in_small_pages() {
    let p = Program::new();
    let all: Vec<Span> = slots(p.map(60)).collect();
    let (warm, cold) = all.split_at(20);
    assert!(came(&warm.iter().map(|slot| p.walk(*slot)).collect::<Vec<_>>()) >= 5);
    p.fake.set_huge_ns(COLD_NS);
    let before = p.count(Counter::TouchNs) as u64;
    let there: Vec<usize> = cold.iter().map(|slot| p.walk(*slot)).collect();
    assert!(came(&there) >= 15, "{there:?}");
    assert!((p.count(Counter::TouchNs) as u64 - before) / COLD_NS <= 4, "few of them are huge");
    assert!(p.space.budget().charged() <= 1, "all but the last is seen to be used");
}

/// The prefault budget is used up when it begins: what came ahead before was never used.
#[test]
fn a_slow_programs_cold_memory_is_found_without_prefault_budget() {
    let walk = |ms: u64, huge_ns: u64| {
        let p = Program::new();
        for _ in 0..3 {
            slots(p.map(6)).take(2).for_each(|slot| _ = p.walk(slot));
        }
        p.fake.set_huge_ns(huge_ns);
        let each = |slot| {
            p.fake.advance_ms(ms);
            p.walk(slot)
        };
        let there: Vec<usize> = slots(p.map(40)).map(each).collect();
        (came(&there), p.count(Counter::BytesFreshHuge) / SLOT)
    };
    assert_eq!(walk(0, 0).0, 0, "nothing comes ahead of one that is quick");
    assert!(walk(4, 0).0 > 0, "a slow one that follows is trusted again");
    let (came, huge) = walk(4, COLD_NS);
    assert!(came >= 8, "{came} came in small pages, {huge} slots have huge ones");
}

#[test]
fn what_came_ahead_is_charged_until_the_program_leaves() {
    for failing in [None, Some(Failing::Moves)] {
        let p = Program::new();
        p.fake.set_huge_ns(COLD_NS);
        let span = p.map(40);
        failing.into_iter().for_each(|failing| p.fake.fail(failing));
        slots(span).take(8).for_each(|slot| _ = p.walk(slot));
        calls::unmap(&p.space, &p.fake, 0, span);
        p.fake.advance_ms(60_000);
        p.rest();
        assert_eq!((p.space.budget().charged(), p.space.budget().idle()), (0, 0), "{failing:?}");
    }
}

/// A thread that cannot move frames makes none: the program would never get them.
#[test]
fn nothing_is_made_for_a_mapping_that_it_cannot_move_to() {
    let p = Program::new();
    p.fake.fail(Failing::MovesHere);
    let span = p.map(40);
    slots(span).take(20).for_each(|slot| _ = p.walk(slot));
    assert_eq!(p.count(Counter::BytesTouchedAhead), 0);
    calls::unmap(&p.space, &p.fake, 0, span);
    p.rest();
    assert_eq!((p.space.budget().charged(), p.space.budget().idle()), (0, 0));
}

/// A reserve that gives less than the program takes leaves the rest to the host.
#[test]
fn the_reserve_hears_how_far_a_program_has_come_in_a_large_mapping_of_its_own() {
    const SLOTS: usize = 2048;
    let p = Program::new();
    let span = p.fake.map(SLOTS * SLOT);
    let told = || p.fake.announced() / SLOT;
    p.space.committed(span);
    assert!((1..SLOTS / 2).contains(&told()), "what it reserves is not what it uses");
    for used in [SLOTS / 4, SLOTS / 2, SLOTS * 3 / 4] {
        p.fake.write(Span::new(span.start + (SLOTS - used) * SLOT, SLOTS / 4 * SLOT), 7);
        (0..4).for_each(|_| _ = p.space.step());
        assert!(told() >= SLOTS.min(used * 2) && told() <= SLOTS * 3 / 2, "{} of {used}", told());
    }
}

/// Memory at addresses of the program's own, where huge pages get advice: to see whether they are cold, slots are touched
/// that nobody may need. The program's own faults tell that, too.
#[test]
fn what_the_programs_faults_take_says_whether_memory_is_warm() {
    let touched = |slot_us: Option<u64>| {
        let p = Program::new();
        for i in 0..10 {
            if let Some(us) = slot_us {
                p.fake.set_usage(Usage { major_faults: 0, minor_faults: 0, system_us: i * 20 * us });
            }
            let span = p.fake.map(20 * SLOT);
            p.space.committed(span);
            p.fake.write(span, 7);
            p.fake.advance_ms(50);
        }
        p.count(Counter::BytesTouchedAhead) / SLOT
    };
    assert_eq!(touched(Some(200)), 1, "they were warm");
    assert_eq!((touched(Some(3_000)), touched(None)), (10, 10), "they may be cold, or that is not known");
}
