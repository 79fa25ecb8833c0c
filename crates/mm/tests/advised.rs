//! Memory that the program has at addresses of its own, of which the engine advises as much as its budget allows.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_mm::Space;
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block;

struct Program {
    fake: Fake,
    space: Space<Fake>,
    knobs: &'static Values,
}

impl Program {
    fn new() -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (256 * SLOT) as u64);
        knobs.set(Knob::Mapped, 1);
        knobs.set(Knob::Check, 1);
        let (fake, counters): (_, &'static [Block]) = (Fake::default(), Box::leak(Box::new([Block::new()])));
        let space = Space::new(fake.clone(), 1024 * SLOT, 1, counters, knobs).unwrap();
        Self { fake, space, knobs }
    }
}

#[test]
fn content_that_is_being_dropped_is_no_use_of_what_comes_after_it() {
    let p = Program::new();
    p.knobs.set(Knob::Budget, (2 * SLOT) as u64);
    let span = p.fake.map(16 * SLOT);
    p.space.committed(span);
    p.fake.write(span, 7);
    let huge = || (span.start..span.end).step_by(SLOT).filter(|&at| p.fake.page(at).huge).count();
    (0..4).for_each(|_| _ = p.space.step());
    assert_eq!(huge(), 16, "it is used throughout");
    let emptying = p.space.emptied(span);
    (0..4).for_each(|_| _ = p.space.step());
    assert!(huge() <= 2, "{} slots while the content goes", huge());
    p.fake.empty(span);
    drop(emptying);
    (0..4).for_each(|_| _ = p.space.step());
    assert!(huge() <= 2, "{} slots after it went", huge());
    p.fake.write(span, 7);
    (0..4).for_each(|_| _ = p.space.step());
    assert_eq!(huge(), 16, "it is used throughout again");
}

/// Each part is areas to the kernel, and a program has so many.
#[test]
fn parts_that_are_dropped_one_by_one_are_few_areas() {
    const SLOTS: usize = 600;
    let p = Program::new();
    let span = p.fake.map(SLOTS * SLOT);
    p.space.committed(span);
    p.fake.write(span, 7);
    (0..4).for_each(|_| _ = p.space.step());
    let huge = |i: usize| p.fake.page(span.start + i * SLOT).huge;
    assert!((0..SLOTS).all(huge), "it is used throughout");
    for i in (0..SLOTS).step_by(2) {
        let part = Span::new(span.start + i * SLOT, SLOT);
        let emptying = p.space.emptied(part);
        p.fake.empty(part);
        drop(emptying);
        assert!(!huge(i) || p.space.budget().charged() > 0, "slot {i} begins anew");
    }
    let areas = (1..SLOTS).filter(|&i| huge(i) != huge(i - 1)).count();
    assert!(areas <= 16, "{areas} borders");
}

/// A part begins anew however often it is dropped.
#[test]
fn a_part_that_is_dropped_again_and_again_gets_no_more_than_the_budget() {
    const SLOTS: usize = 400;
    let p = Program::new();
    p.knobs.set(Knob::Budget, (8 * SLOT) as u64);
    let span = p.fake.map(SLOTS * SLOT);
    p.space.committed(span);
    p.fake.write(span, 7);
    (0..4).for_each(|_| _ = p.space.step());
    let part = Span::new(span.start + 50 * SLOT, 300 * SLOT);
    let huge = || (part.start..part.end).step_by(SLOT).filter(|&at| p.fake.page(at).huge).count();
    assert_eq!(huge(), 300, "it is used throughout");
    for round in 0..4 {
        let emptying = p.space.emptied(part);
        p.fake.empty(part);
        drop(emptying);
        assert!(huge() <= 8, "{} slots, round {round}", huge());
        p.fake.write(part, 7);
        (0..4).for_each(|_| _ = p.space.step());
        assert_eq!(huge(), 300, "it is used throughout again, round {round}");
    }
}

/// More mappings than are known at a time: none keeps advice of which nothing is known. Those that lie side by side
/// are known as one.
#[test]
fn mappings_beyond_those_that_are_known_are_the_kernels() {
    for gap in [0, 1] {
        let p = Program::new();
        p.knobs.set(Knob::Budget, (8 * SLOT) as u64);
        let all = p.fake.map(40 * (16 + gap) * SLOT);
        let spans: Vec<_> = (0..40).map(|i| Span::new(all.start + i * (16 + gap) * SLOT, 16 * SLOT)).collect();
        for span in &spans {
            p.space.committed(*span);
            p.fake.write(*span, 7);
            (0..4).for_each(|_| _ = p.space.step());
        }
        let huge = |span: &Span| (span.start..span.end).step_by(SLOT).filter(|&at| p.fake.page(at).huge).count();
        let advised = spans.iter().filter(|span| huge(span) == 16).count();
        assert_eq!(advised, if gap == 0 { 40 } else { 16 });
        for span in &spans {
            let emptying = p.space.emptied(*span);
            p.fake.empty(*span);
            drop(emptying);
        }
        (0..4).for_each(|_| _ = p.space.step());
        let left: usize = spans.iter().map(huge).sum();
        // What was used so far is trusted with eight times as much.
        assert!(left <= 9 * 8, "{left} slots are advised, gap {gap}");
    }
}

/// What the program touches in some places says nothing of how it uses the rest.
#[test]
fn a_mapping_that_is_used_densely_at_first_gets_no_more_than_the_budget() {
    const SLOTS: usize = 1024;
    let p = Program::new();
    p.knobs.set(Knob::Budget, (64 * SLOT) as u64);
    let span = p.fake.map(SLOTS * SLOT);
    p.space.committed(span);
    p.fake.write(Span::new(span.start, 64 * SLOT), 7);
    (0..10).for_each(|_| _ = p.space.step());
    let unused = |i: &usize| p.fake.page(span.start + i * SLOT).huge;
    let advised = (64..SLOTS).filter(unused).count();
    assert!((1..=64).contains(&advised), "{advised} slots without use are advised");
    // Page by page here and there, where a huge page would be mostly unused.
    for i in (64..SLOTS).filter(|i| !unused(i)) {
        p.fake.write(Span::new(span.start + i * SLOT, PAGE), 7);
        (0..2).for_each(|_| _ = p.space.step());
    }
    let advised = (64..SLOTS).filter(unused).count();
    assert!(advised <= 64, "{advised} slots are advised afterwards");
}

/// As the memory of a program that uses much of it in a row throughout is trusted beyond the budget.
#[test]
fn a_mapping_of_which_much_is_used_densely_is_advised_throughout() {
    for (slots, used, is_trusted) in [(400, 100, false), (400, 140, true), (1024, 140, false)] {
        let p = Program::new();
        p.knobs.set(Knob::Budget, (48 * SLOT) as u64);
        let span = p.fake.map(slots * SLOT);
        p.space.committed(span);
        p.fake.write(Span::new(span.start, used * SLOT), 7);
        (0..10).for_each(|_| _ = p.space.step());
        let advised = (used..slots).filter(|i| p.fake.page(span.start + i * SLOT).huge).count();
        assert_eq!(advised == slots - used, is_trusted, "{advised} of {slots}, {used} used");
    }
}

/// What a program commits beside memory that it uses throughout counts as a part of that: it is trusted where the row of
/// both is, and not for a few slots.
#[test]
fn what_continues_dense_memory_is_trusted_as_that_is() {
    const BUDGET: usize = 32;
    for (steps, is_trusted) in [(1, false), (2, false), (9, true)] {
        let p = Program::new();
        p.knobs.set(Knob::Budget, (BUDGET * SLOT) as u64);
        let all = p.fake.map(1024 * SLOT);
        let mut begin = all.start;
        for _ in 0..steps {
            let span = Span::new(begin, 16 * SLOT);
            p.space.committed(span);
            p.fake.write(span, 7);
            (0..10).for_each(|_| _ = p.space.step());
            begin = span.end;
        }
        let next = Span::new(begin, 200 * SLOT);
        p.space.committed(next);
        let advised = (0..200).filter(|i| p.fake.page(next.start + i * SLOT).huge).count();
        assert_eq!(advised > BUDGET, is_trusted, "{advised} after {steps}");
        assert!(advised > 0);
    }
}

/// However many mappings there are, all of them together have no more on trust.
#[test]
fn several_mappings_of_which_much_is_used_densely_share_the_trust() {
    const BUDGET: usize = 48;
    const USED: usize = 140;
    let p = Program::new();
    p.knobs.set(Knob::Budget, (BUDGET * SLOT) as u64);
    let mut advised = 0;
    for _ in 0..4 {
        let span = p.fake.map(400 * SLOT);
        p.space.committed(span);
        p.fake.write(Span::new(span.start, USED * SLOT), 7);
        (0..10).for_each(|_| _ = p.space.step());
        advised += (USED..400).filter(|i| p.fake.page(span.start + i * SLOT).huge).count();
    }
    assert!((400 - USED..=9 * BUDGET).contains(&advised), "{advised}");
}

/// The program's own advice stands, whatever the library had in mind.
#[test]
fn what_the_program_advises_itself_gets_no_advice_any_more() {
    let p = Program::new();
    let span = p.fake.map(64 * SLOT);
    p.space.committed(span);
    p.space.advised_by_program(span);
    p.fake.huge(span, Huge::Refused);
    p.fake.write(span, 7);
    (0..10).for_each(|_| _ = p.space.step());
    assert!((0..64).all(|i| !p.fake.page(span.start + i * SLOT).huge));
}

/// Where it advises a part, the rest is not left with advice of ours that nobody looks after.
#[test]
fn beside_what_the_program_advises_itself_nothing_stays_advised() {
    let p = Program::new();
    p.knobs.set(Knob::Budget, (8 * SLOT) as u64);
    let span = p.fake.map(200 * SLOT);
    p.space.committed(span);
    p.fake.write(span, 7);
    (0..4).for_each(|_| _ = p.space.step());
    let huge = |i: &usize| p.fake.page(span.start + i * SLOT).huge;
    assert_eq!((0..200).filter(huge).count(), 200, "it is used throughout");
    let part = Span::new(span.start + 50 * SLOT, SLOT);
    p.fake.huge(part, Huge::Advised);
    p.space.advised_by_program(part);
    assert_eq!((0..200).filter(huge).collect::<Vec<_>>(), [50]);
    p.fake.empty(span);
    (0..10).for_each(|_| _ = p.space.step());
    assert_eq!((0..200).filter(huge).collect::<Vec<_>>(), [50]);
}

/// Zeroes that the program writes show nothing. What is used sparsely afterwards is still seen.
#[test]
fn what_is_filled_with_zeroes_is_not_taken_for_memory_that_is_used_sparsely() {
    const SLOTS: usize = 2048;
    let p = Program::new();
    p.knobs.set(Knob::Budget, (4 * SLOTS * SLOT) as u64);
    let span = p.fake.map(SLOTS * SLOT);
    p.space.committed(span);
    let part = |from: usize, n: usize| Span::new(span.start + from * SLOT, n * SLOT);
    let advised = |from: usize| (from..SLOTS).filter(|i| p.fake.page(span.start + i * SLOT).huge).count();
    p.fake.write(part(0, 64), 7);
    (0..10).for_each(|_| _ = p.space.step());
    assert_eq!(advised(0), SLOTS, "it is used throughout");
    p.fake.write(part(64, 448), 0);
    (0..10).for_each(|_| _ = p.space.step());
    let left_out = (SLOTS - 512) / 32;
    assert!(advised(512) >= SLOTS - 512 - left_out, "{} of {}", advised(512), SLOTS - 512);
    for i in 512..1024 {
        p.fake.write(Span::new(span.start + i * SLOT, PAGE), 7);
        _ = p.space.step();
    }
    (0..10).for_each(|_| _ = p.space.step());
    assert_eq!(advised(1024), 0, "a page of each slot was used");
}

/// Slots left out may all lie where the program does not come.
#[test]
fn every_second_slot_with_one_page_gets_no_more_than_the_budget() {
    const SLOTS: usize = 1024;
    const BUDGET: usize = 32;
    for odd in [0, 1] {
        let p = Program::new();
        p.knobs.set(Knob::Budget, (BUDGET * SLOT) as u64);
        let span = p.fake.map(SLOTS * SLOT);
        p.space.committed(span);
        let at = |i: usize| span.start + i * SLOT;
        p.fake.write(Span::new(at(0), 60 * SLOT), 7);
        (0..10).for_each(|_| _ = p.space.step());
        let mut huge = 0;
        for i in (60 + odd..SLOTS).step_by(2) {
            huge += p.fake.page(at(i)).huge as usize;
            p.fake.write(Span::new(at(i), PAGE), 7);
            _ = p.space.step();
        }
        assert!(huge <= BUDGET, "{huge} slots for a page each, {odd}");
    }
}
