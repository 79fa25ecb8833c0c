//! Blocks, mappings, regions, what is reserved and what is made ahead: one owner has the frames of all, under one
//! budget, and one place answers pressure.

mod calls;
mod owner;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::frame::buddy::Kind;
use faultless_mm::frame::store::Store;
use faultless_mm::{Need, Progress, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_testkit::limit::limit;
use proptest::prelude::*;

/// The budget, in slots.
const LIMIT: usize = 40;

struct Process {
    fake: Fake,
    space: &'static Space<Fake>,
    knobs: &'static Values,
}

impl Process {
    fn new(budget: usize) -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (budget * SLOT) as u64);
        knobs.set(Knob::Check, 1);
        let fake = Fake::default();
        let space = owner::owner(&fake, 256, knobs);
        Self { fake, space, knobs }
    }

    /// A region takes a frame for one of its slots; where that is, and whether it had to make the frame.
    fn lend(&self, need: Need) -> Option<(Span, bool)> {
        let taken = self.space.take(need);
        let at = taken.map(|frame| frame.at).or_else(|| self.space.place())?;
        let frame = Span::new(at, SLOT);
        if taken.is_none() {
            self.fake.touch(at);
        }
        let is_zero = frame_bytes(&self.fake, frame).all(|byte| byte == 0);
        assert!(is_zero || need == Need::Any, "old bytes where zeroes must be");
        if let Some(taken) = taken {
            assert!(is_zero || taken.kind == Kind::Dirty);
        }
        let slot = self.fake.map(SLOT);
        let moved = self.fake.move_pages(frame, slot.start);
        assert_eq!(moved, Some(SLOT), "a frame that is not whole");
        self.space.give(at, Kind::Unbacked);
        self.fake.write(slot, 9);
        Some((slot, taken.is_none()))
    }

    /// A region drops the frame of a slot; whether it was kept.
    fn take_back(&self, slot: Span) -> bool {
        let place = self.space.place_to_keep();
        if let Some(place) = place {
            assert_eq!(self.fake.move_pages(slot, place), Some(SLOT));
            self.space.give(place, Kind::Dirty);
        }
        self.fake.unmap(slot);
        place.is_some()
    }

    /// Background steps until there is nothing to do, or a second has passed.
    fn rest(&self) {
        for _ in 0..300 {
            let works = self.space.answer_requests() || self.space.step() == Progress::Worked;
            if !works {
                self.fake.advance_ms(5);
            }
        }
    }

    /// A block that the program has used, all over.
    fn block(&self, slots: usize) -> Option<usize> {
        let at = self.space.allocate(0, slots * SLOT, PAGE, Need::Zero)?.addr;
        let span = Span::new(at, slots * SLOT);
        assert!(frame_bytes(&self.fake, span).all(|byte| byte == 0), "old bytes where zeroes must be");
        self.fake.write(span, 7);
        Some(at)
    }

    fn mapping(&self, slots: usize) -> Span {
        let span = calls::map(self.space, &self.fake, 0, slots * SLOT);
        assert!(frame_bytes(&self.fake, span).all(|byte| byte == 0), "old bytes where zeroes must be");
        self.fake.write(span, 8);
        span
    }

    /// Idle frames of each client: what a block, a mapping and a region left, what was asked for ahead, and what is
    /// reserved.
    fn leave_some_of_each(&self) {
        let block = self.block(5).unwrap();
        let mapping = self.mapping(6);
        let slots: Vec<_> = (0..4).map(|_| self.lend(Need::Any).unwrap().0).collect();
        self.space.free(block);
        calls::unmap(self.space, &self.fake, 0, mapping);
        slots.into_iter().for_each(|slot| assert!(self.take_back(slot)));
        self.space.ask(3 + self.space.ready(Need::Zero));
        while self.space.answer_requests() {}
        (0..2).for_each(|_| assert!(self.space.reserve_frame()));
    }

    fn idle(&self) -> usize {
        self.space.budget().idle()
    }
}

fn frame_bytes(fake: &Fake, span: Span) -> impl Iterator<Item = u8> {
    (span.start..span.end).step_by(PAGE).map(|at| fake.page(at).byte)
}

/// Beside arenas of the library there is no C library that could serve a block for which the budget has no room.
#[test]
fn a_strict_budget_refuses_no_block() {
    let refused = |is_strict: bool| {
        let process = Process::new(1);
        if is_strict {
            process.space.budget().be_strict();
        }
        let bytes = [SLOT / 3, SLOT + SLOT / 2, SLOT / 2, 3 * SLOT, SLOT + 1];
        let blocks = bytes.repeat(8).into_iter().map(|bytes| process.space.allocate(0, bytes, 1, Need::Zero));
        let (there, refused): (Vec<_>, Vec<_>) = blocks.partition(Option::is_some);
        there.into_iter().flatten().for_each(|block| assert!(process.space.free(block.addr)));
        refused.len()
    };
    assert!(refused(false) > 0);
    assert_eq!(refused(true), 0);
}

#[test]
fn pressure_reaches_every_client() {
    let p = Process::new(LIMIT);
    p.leave_some_of_each();
    assert!(p.idle() >= 5 + 6 + 3 && p.space.budget().reserved() == 2, "{} idle", p.idle());
    p.fake.fail(Failing::Memory);
    p.rest();
    assert_eq!((p.idle(), p.space.budget().reserved(), p.fake.resident()), (0, 0, 0));
}

#[test]
fn a_lowered_budget_reaches_every_client_but_what_the_program_has_reserved() {
    let p = Process::new(LIMIT);
    p.leave_some_of_each();
    p.knobs.set(Knob::Budget, 0);
    p.rest();
    assert_eq!((p.idle(), p.space.budget().reserved(), p.fake.resident()), (0, 2, 2 * SLOT_PAGES));
    assert!(p.space.take(Need::Zero).is_some(), "it is there for regions");
}

#[test]
fn idle_frames_of_one_client_serve_another() {
    let p = Process::new(LIMIT);
    let block = p.block(5).unwrap();
    let most = p.fake.resident();
    p.space.free(block);
    let slots: Vec<_> = (0..5).map(|_| p.lend(Need::Zero).unwrap()).collect();
    assert!(slots.iter().all(|(_, made)| !made) && p.fake.resident() == most, "from blocks to regions");
    slots.into_iter().for_each(|(slot, _)| assert!(p.take_back(slot)));
    let mapping = p.mapping(4);
    assert_eq!(p.fake.resident(), most, "from regions to mappings");
    calls::unmap(p.space, &p.fake, 0, mapping);
    let slots: Vec<_> = (0..5).map(|_| p.lend(Need::Any).unwrap()).collect();
    assert!(slots.iter().all(|(_, made)| !made) && p.fake.resident() == most, "from mappings to regions");
    slots.into_iter().for_each(|(slot, _)| assert!(p.take_back(slot)));
    let block = p.block(4).unwrap();
    assert_eq!(p.fake.resident(), most, "from regions to blocks");
    p.space.free(block);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Block(usize),
    Free(usize),
    Map(usize),
    Unmap(usize),
    Lend(Need),
    TakeBack(usize),
    Reserve,
    Ask(usize),
    Steps(usize),
    Wait(u64),
    Budget(usize),
    Pressure(bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (2usize..6).prop_map(Op::Block),
        3 => (0usize..8).prop_map(Op::Free),
        3 => (1usize..6).prop_map(Op::Map),
        3 => (0usize..8).prop_map(Op::Unmap),
        4 => prop_oneof![Just(Need::Zero), Just(Need::Any)].prop_map(Op::Lend),
        4 => (0usize..8).prop_map(Op::TakeBack),
        1 => Just(Op::Reserve),
        1 => (0usize..8).prop_map(Op::Ask),
        3 => (1usize..30).prop_map(Op::Steps),
        1 => prop::sample::select(vec![1u64, 6, 600, 11_000]).prop_map(Op::Wait),
        1 => prop::sample::select(vec![0usize, 4, LIMIT]).prop_map(Op::Budget),
        1 => any::<bool>().prop_map(Op::Pressure),
    ];
    prop::collection::vec(op, 1..80)
}

fn pick<T>(of: &mut Vec<T>, i: usize) -> Option<T> {
    (!of.is_empty()).then(|| of.swap_remove(i % of.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Zeroes where they were promised, no frame in two hands, and an account that says what is there.
    #[test]
    fn frames_are_in_one_place_and_the_account_is_right(ops in ops()) {
        limit();
        let p = Process::new(LIMIT);
        let (mut blocks, mut mappings, mut slots) = (vec![], vec![], vec![]);
        for op in ops {
            match op {
                Op::Block(n) => blocks.extend(p.block(n).map(|at| (at, n))),
                Op::Free(i) => if let Some((at, n)) = pick(&mut blocks, i) {
                    prop_assert!(frame_bytes(&p.fake, Span::new(at, n * SLOT)).all(|byte| byte == 7));
                    p.space.free(at);
                },
                Op::Map(n) => mappings.push(p.mapping(n)),
                Op::Unmap(i) => if let Some(span) = pick(&mut mappings, i) {
                    prop_assert!(frame_bytes(&p.fake, span).all(|byte| byte == 8));
                    calls::unmap(p.space, &p.fake, 0, span);
                },
                Op::Lend(need) => slots.extend(p.lend(need).map(|(slot, _)| slot)),
                Op::TakeBack(i) => if let Some(slot) = pick(&mut slots, i) {
                    prop_assert!(frame_bytes(&p.fake, slot).all(|byte| byte == 9));
                    p.take_back(slot);
                },
                Op::Reserve => _ = p.space.reserve_frame(),
                Op::Ask(n) => p.space.ask(n),
                Op::Steps(n) => (0..n).for_each(|_| _ = p.space.answer_requests() || p.space.step() == Progress::Worked),
                Op::Wait(ms) => p.fake.advance_ms(ms),
                Op::Budget(n) => p.knobs.set(Knob::Budget, (n * SLOT) as u64),
                Op::Pressure(true) => p.fake.fail(Failing::Memory),
                Op::Pressure(false) => p.fake.heal(),
            }
            let budget = p.space.budget();
            prop_assert_eq!(budget.idle() + budget.reserved(), p.space.ready(Need::Any), "{:?}", op);
            let own: usize = blocks.iter().map(|(_, n)| n).sum::<usize>() + slots.len()
                + mappings.iter().map(|span| span.bytes() / SLOT).sum::<usize>();
            let all = own + budget.idle() + budget.reserved();
            prop_assert_eq!(p.fake.resident(), all * SLOT_PAGES, "{:?}: {} of the program's", op, own);
        }
        p.fake.heal();
        p.space.press();
        prop_assert_eq!((p.idle(), p.space.budget().reserved()), (0, 0));
    }
}
