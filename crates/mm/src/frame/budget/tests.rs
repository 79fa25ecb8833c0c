//! The account on its own.

use super::*;
use faultless_base::SLOT_PAGES;
use faultless_page::knobs::Knob;

#[test]
fn what_the_program_gave_back_may_be_kept() {
    let knobs: &'static Values = std::boxed::Box::leak(std::boxed::Box::default());
    knobs.set(Knob::Budget, 4 * SLOT as u64);
    let b = Budget::new(knobs);
    assert_eq!(b.charge_up_to(10), 3);
    assert_eq!(b.room(), 1);
    b.discharge(3);
    b.use_slots(64);
    b.unuse(64);
    assert_eq!(b.room(), 68);
    b.keep(60);
    assert_eq!((b.room(), b.above_limit()), (8, 56));
    knobs.set(Knob::Budget, 10 * SLOT as u64 + 1);
    assert_eq!((b.room(), b.above_limit()), (14, 50));
    b.close();
    assert_eq!((b.room(), b.above_limit()), (0, 60));
}

#[test]
fn nothing_is_kept_beyond_the_budget_while_the_kernel_does_not_answer() {
    let b = budget(4);
    b.use_slots(64);
    b.look(|| Some(Pages::of_slots(64)));
    b.unuse(64);
    b.look(|| Some(Pages::NONE));
    b.keep(60);
    assert_eq!((b.room(), b.excess(Pages::NONE)), (8, 0));
    b.look(|| None);
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 56));
    b.look(|| Some(Pages::of_slots(60)));
    assert_eq!((b.room(), b.excess(Pages::NONE)), (8, 0));
}

fn budget(slots: usize) -> Budget {
    let knobs: &'static Values = std::boxed::Box::leak(std::boxed::Box::default());
    knobs.set(Knob::Budget, (slots * SLOT) as u64);
    Budget::new(knobs)
}

#[test]
fn what_the_process_has_beside_counts() {
    let b = budget(4);
    b.use_slots(64);
    b.lose(Pages::of_slots(2));
    b.look(|| Some(Pages::of_slots(80)));
    assert_eq!(b.room(), 2, "two slots of its eighty are nobody's");
    b.regain(Pages::of_slots(2));
    b.unuse(64);
    assert_eq!(b.room(), 66);
    b.keep(60);
    assert_eq!((b.room(), b.excess(Pages::NONE)), (6, 0));
    assert_eq!(b.excess(Pages::of_slots(10)), 4);
    b.promise(Pages::of_slots(10));
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 4));
    b.age_promises();
    assert_eq!(b.excess(Pages::NONE), 4);
    b.end_promise(Pages::of_slots(7));
    assert_eq!(b.excess(Pages::NONE), 0);
    b.age_promises();
    b.look(|| Some(Pages::of_slots(90)));
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 8), "the program itself has grown to thirty");
    b.bound(8);
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 52));
}

#[test]
fn blocks_that_are_to_be_taken_in_are_the_program_s_no_longer() {
    let b = budget(4);
    b.use_slots(64);
    b.defer(Pages::of_slots(10));
    b.look(|| Some(Pages::of_slots(64)));
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 6), "ten of its slots are free");
    b.end_deferral(Pages::of_slots(10));
    b.unuse(64);
    assert_eq!(b.room(), 58, "it had no more than 54");
}

#[test]
fn what_fits_into_the_budget_may_be_kept_whatever_is_promised() {
    let b = budget(4);
    b.look(|| Some(Pages::NONE));
    b.keep(3);
    b.promise(Pages::of_slots(1000));
    assert_eq!((b.room(), b.excess(Pages::NONE)), (1, 0));
    b.keep(3);
    assert_eq!((b.room(), b.excess(Pages::NONE)), (0, 2));
}

#[test]
fn a_program_that_used_all_it_got_is_trusted_with_more() {
    let b = budget(4);
    b.note_use(PROVES, 0);
    b.note_use(20, 0);
    assert_eq!(b.trust(), 4, "it never had that much");
    b.look(|| Some(Pages::of_slots(22)));
    assert_eq!(b.trust(), 24);
    b.charge(20);
    b.lose(Pages::new(SLOT_PAGES / 2));
    assert_eq!(b.trust(), 3);
    b.note_use(1000, 0);
    assert_eq!(b.trust(), 5, "no more than a part of the budget and what it once had");
    b.note_use(0, 1);
    assert_eq!(b.trust(), 0);
}
