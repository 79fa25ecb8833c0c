//! A machine with several nodes. Whatever a program asks for and gives back, and wherever, its memory lies on the node
//! of the thread that asked for it and touched it first.

mod calls;

use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_mm::frame::buddy::Kind;
use faultless_mm::frame::store::Store;
use faultless_mm::{Need, Progress, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block, Counter};
use proptest::prelude::*;

/// The budget, in slots.
const LIMIT: usize = 64;

struct Machine {
    fake: Fake,
    space: Space<Fake>,
    counters: &'static [Block],
    nodes: usize,
}

impl Machine {
    /// As many shards as processors, which are on the nodes in turn.
    fn new(nodes: usize, shards: usize) -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (LIMIT * SLOT) as u64);
        knobs.set(Knob::Mapped, 1);
        let fake = Fake::default();
        fake.set_nodes(nodes);
        let counters: &'static [Block] = Box::leak((0..shards).map(|_| Block::new()).collect());
        let space = Space::new(fake.clone(), 1024 * SLOT, shards, counters, knobs).unwrap();
        Self { fake, space, counters, nodes }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.iter().map(|block| block.get(counter as usize)).sum()
    }

    /// Maps memory in a thread on `cpu`, and writes to all of it there.
    fn map(&self, cpu: usize, slots: usize, has_policy: bool) -> Span {
        self.fake.run_on(cpu % self.nodes, has_policy);
        let span = calls::map(&self.space, &self.fake, cpu, slots * SLOT);
        self.fake.write(span, 7);
        span
    }

    fn unmap(&self, cpu: usize, span: Span) {
        self.fake.run_on(cpu % self.nodes, false);
        calls::unmap(&self.space, &self.fake, cpu, span);
    }

    /// The background thread runs on the first node.
    fn rest(&self) {
        self.fake.run_on(0, false);
        (0..50).take_while(|_| self.space.step() != Progress::Idle).for_each(drop);
    }

    fn all_lies_on(&self, node: usize, span: Span) -> bool {
        (span.start..span.end).step_by(PAGE * 64).all(|at| self.fake.page(at).node == node)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Map { cpu: usize, slots: usize, has_policy: bool },
    Unmap { cpu: usize, which: usize },
    Rest,
}

fn steps(cpus: usize) -> impl Strategy<Value = Vec<Step>> {
    let map = (0..cpus, 1usize..6, prop::bool::weighted(0.2));
    let step = prop_oneof![
        4 => map.prop_map(|(cpu, slots, has_policy)| Step::Map { cpu, slots, has_policy }),
        3 => (0..cpus, 0usize..8).prop_map(|(cpu, which)| Step::Unmap { cpu, which }),
        1 => Just(Step::Rest),
    ];
    prop::collection::vec(step, 1..60)
}

fn check(nodes: usize, shards: usize, steps: Vec<Step>) {
    let machine = Machine::new(nodes, shards);
    // What the kernel alone would do: each mapping lies where it was written to.
    let mut all: Vec<(Span, usize)> = Vec::new();
    for step in steps {
        match step {
            Step::Map { cpu, slots, has_policy } => {
                all.push((machine.map(cpu, slots, has_policy), cpu % nodes));
            }
            Step::Unmap { cpu, which } if which < all.len() => machine.unmap(cpu, all.swap_remove(which).0),
            Step::Unmap { .. } => {}
            Step::Rest => machine.rest(),
        }
        for (span, node) in &all {
            assert!(machine.all_lies_on(*node, *span), "{span:x?} is not on node {node}");
        }
        let (idle, charged) = (machine.space.budget().idle(), machine.space.budget().charged());
        assert!(idle + charged <= LIMIT, "{idle} idle, {charged} charged");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn on_two_nodes_all_lies_where_it_was_asked_for(steps in steps(4)) {
        check(2, 4, steps);
    }

    /// More nodes than shards: those that have none do without frames.
    #[test]
    fn on_64_nodes_too(steps in steps(64)) {
        check(64, 8, steps);
    }
}

#[test]
fn frames_of_a_node_serve_its_own_threads_alone() {
    let machine = Machine::new(2, 2);
    let give_back = || machine.unmap(0, machine.map(0, 4, false));
    give_back();
    assert_eq!(machine.space.budget().idle(), 4, "what came back is kept");
    let moved = machine.count(Counter::BytesMoved);
    machine.map(1, 4, false);
    assert_eq!(machine.count(Counter::BytesMoved), moved, "a thread of the other node takes none");
    machine.map(0, 4, true);
    assert_eq!(machine.count(Counter::BytesMoved), moved, "nor one with a policy");
    machine.map(0, 4, false);
    assert_eq!(machine.count(Counter::BytesMoved), moved + 4 * SLOT as u64);
}

#[test]
fn what_lies_on_another_node_goes_to_a_shard_of_that_node() {
    let machine = Machine::new(2, 2);
    let span = machine.map(1, 4, false);
    machine.unmap(0, span);
    let moved = machine.count(Counter::BytesMoved);
    let again = machine.map(1, 4, false);
    assert_eq!(machine.count(Counter::BytesMoved), moved + 4 * SLOT as u64);
    let mut parts = Vec::new();
    machine.space.each_brought(again, |part| parts.push(part));
    assert_eq!(
        parts.iter().map(|part| part.bytes()).sum::<usize>(),
        4 * SLOT,
        "a policy that comes later finds them"
    );
}

/// A machine with two nodes, on which regions alone have frames.
fn lender() -> (Fake, Space<Fake>) {
    let (fake, knobs): (_, &'static Values) = (Fake::default(), Box::leak(Box::default()));
    knobs.set(Knob::Budget, (LIMIT * SLOT) as u64);
    fake.set_nodes(2);
    let counters = Box::leak(Box::new(Block::new()));
    let space = Space::without_arena(fake.clone(), counters, knobs).unwrap().with_pool(LIMIT * SLOT).unwrap();
    (fake, space)
}

/// Frames that fill the budget keep nothing out of it, also where they are of no use.
#[test]
fn idle_frames_of_another_node_make_way() {
    let (fake, space) = lender();
    fake.run_on(1, false);
    space.ask(LIMIT);
    while space.answer_requests() {}
    assert_eq!((space.frames_ready(), space.room()), (LIMIT, 0));
    fake.run_on(0, false);
    assert_eq!((space.take(Need::Any), Store::idle(&space)), (None, LIMIT));
    for gone in 1..=LIMIT {
        assert!(space.drop_idle());
        assert_eq!((space.frames_ready(), space.room()), (LIMIT - gone, gone));
    }
    assert!(!space.drop_idle());
    // What the program has reserved stays.
    assert!(space.reserve_frame() && !space.drop_idle());
    assert_eq!(space.frames_ready(), 1);
}

/// Regions ask for frames on one node; the background thread, on another, makes them there.
#[test]
fn frames_are_made_where_a_region_asks_for_them() {
    let (fake, space) = lender();
    let ask = |node: usize, has_policy: bool, frames: usize| {
        fake.run_on(node, has_policy);
        space.ask(frames);
        fake.run_on(0, false);
        while space.answer_requests() {}
        space.frames_ready()
    };
    let take = |node: usize, has_policy: bool| {
        fake.run_on(node, has_policy);
        space.take(Need::Zero)
    };
    assert_eq!((ask(1, false, 3), ask(0, false, 5)), (3, 5));
    assert_eq!(take(1, true), None, "a thread with a policy takes none");
    assert_eq!(ask(1, true, 9), 5, "nor are any made for it");
    // Those of the other node are found behind the first ones, and no others.
    let near: Vec<_> = std::iter::from_fn(|| take(0, false)).collect();
    assert_eq!(near.len(), 2);
    let others: Vec<_> = std::iter::from_fn(|| take(1, false)).collect();
    assert_eq!(others.len(), 3);
    for (frames, node) in [(near, 0), (others, 1)] {
        assert!(frames.iter().all(|frame| fake.page(frame.at).node == node && frame.kind == Kind::Zeroed));
    }
    // A background thread with a policy of its own makes none.
    fake.run_on(1, false);
    space.ask(4);
    fake.run_on(0, true);
    assert!(!space.answer_requests());
    assert_eq!(space.frames_ready(), 0);
}
