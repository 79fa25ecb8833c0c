//! The slots that the background thread is in, against threads that take them back or taint them, and against calls
//! that replace them. All interleavings are tried, with every value that the orderings let a load see.

use std::sync::Arc;

use faultless_base::{SLOT, Slot, Span};
use faultless_mm::frame::busy::Busy;
use faultless_mm::frame::slot::{Slots, State, flag};
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};

const BASE: usize = 1 << 40;
const N: usize = 2;

/// Slots, and for each whether the background thread is in it and whether the program counts on its absence. All
/// relaxed: only the handshake orders anything.
struct World {
    busy: Busy,
    slots: Slots,
    inside: [AtomicBool; N],
    gone: [AtomicBool; N],
}

impl World {
    /// All slots are the program's, in that state.
    fn new(state: State) -> Arc<Self> {
        let slots = Slots::new(faultless_base::sync::words(N + 1).unwrap());
        for i in 0..N {
            slots.set(Slot::new(i), State::InTransit);
            slots.set(Slot::new(i), state);
        }
        let no = || [false; N].map(AtomicBool::new);
        Arc::new(Self { busy: Busy::new(), slots, inside: no(), gone: no() })
    }

    fn span(i: usize) -> Span {
        Span::new(BASE + i * SLOT, SLOT)
    }

    /// The background thread comes to slot `i`.
    fn touch(&self, i: usize) {
        let is_lent = || {
            matches!(self.slots.state(Slot::new(i)), State::Mapped | State::Block)
                && !self.slots.has(Slot::new(i), flag::TAINTED | flag::FORKED)
        };
        self.busy.enter(Self::span(i), is_lent, || {
            self.inside[i].store(true, Relaxed);
            assert!(!self.gone[i].load(Relaxed), "slot {i} is touched after it was taken back");
            self.inside[i].store(false, Relaxed);
        });
    }

    /// The program has changed the state of slot `i`, and waits until that counts.
    fn leave_alone(&self, i: usize) {
        while !self.busy.is_left(Self::span(i)) {
            thread::yield_now();
        }
        self.gone[i].store(true, Relaxed);
        assert!(!self.inside[i].load(Relaxed), "slot {i} is still being touched");
    }
}

/// The background thread, on its way through `order`.
fn background(world: &Arc<World>, order: &'static [usize]) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || order.iter().for_each(|&i| world.touch(i)))
}

/// The background thread goes through `order`, while the program does something to slot 0.
fn check(state: State, order: &'static [usize], take: fn(&World)) {
    loom::model(move || {
        let world = World::new(state);
        let background = background(&world, order);
        take(&world);
        world.leave_alone(0);
        background.join().unwrap();
    });
}

#[test]
fn a_slot_that_is_unmapped_is_not_touched() {
    check(State::Mapped, &[0], |w| assert!(w.slots.detach(Slot::new(0), State::Mapped)));
}

#[test]
fn a_block_that_is_freed_is_not_touched() {
    check(State::Block, &[0], |w| w.slots.set(Slot::new(0), State::InTransit));
}

#[test]
fn a_slot_whose_attributes_change_is_not_touched() {
    check(State::Mapped, &[0], |w| {
        w.slots.mark(Slot::new(0), flag::TAINTED);
    });
}

#[test]
fn a_slot_that_a_fork_shares_is_not_touched() {
    check(State::Mapped, &[0], |w| {
        w.slots.mark(Slot::new(0), flag::FORKED);
    });
}

/// The announced range changes while another thread reads it, to higher and to lower addresses.
#[test]
fn one_slot_after_the_other_is_told_apart() {
    let detach = |w: &World| assert!(w.slots.detach(Slot::new(0), State::Mapped));
    check(State::Mapped, &[0, 1], detach);
    check(State::Mapped, &[1, 0], detach);
    let detach_upper = |w: &World| {
        assert!(w.slots.detach(Slot::new(1), State::Mapped));
        w.leave_alone(1);
        assert!(w.slots.detach(Slot::new(0), State::Mapped));
    };
    check(State::Mapped, &[1, 0], detach_upper);
}

/// The program replaces what is mapped there; what is noted of it is dropped afterwards.
#[test]
fn a_slot_is_not_touched_while_it_is_replaced() {
    loom::model(|| {
        let world = World::new(State::Mapped);
        let background = background(&world, &[0, 0]);
        let replaced = world.busy.replace(World::span(0));
        world.leave_alone(0);
        assert!(world.slots.detach(Slot::new(0), State::Mapped));
        drop(replaced);
        background.join().unwrap();
    });
}

/// Tries what happens with two preemptions at most: all interleavings would take minutes.
fn check_bounded(world: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(world);
}

/// Two threads that come to one slot are both waited for.
#[test]
fn every_thread_that_is_there_is_waited_for() {
    check_bounded(|| {
        let world = World::new(State::Mapped);
        let others = [1, 0].map(|i| {
            let world = world.clone();
            thread::spawn(move || {
                let is_lent = || world.slots.state(Slot::new(i)) == State::Mapped;
                world.busy.enter(World::span(i), is_lent, || {
                    world.inside[i].store(true, Relaxed);
                    assert!(!world.gone[i].load(Relaxed), "slot {i} is used after it was replaced");
                    world.inside[i].store(false, Relaxed);
                });
            })
        });
        let replaced = world.busy.replace(World::span(0));
        world.leave_alone(0);
        assert!(world.slots.detach(Slot::new(0), State::Mapped));
        drop(replaced);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Two threads take different slots back at the same time.
#[test]
fn two_threads_wait_for_one() {
    check_bounded(|| {
        let world = World::new(State::Mapped);
        let take = |i: usize| {
            let world = world.clone();
            move || {
                assert!(world.slots.detach(Slot::new(i), State::Mapped));
                world.leave_alone(i);
            }
        };
        let other = thread::spawn(take(1));
        let background = background(&world, &[1, 0]);
        take(0)();
        other.join().unwrap();
        background.join().unwrap();
    });
}

/// A slot that comes back and is handed out again may be entered again.
#[test]
fn a_slot_that_is_handed_out_again_is_the_programs_again() {
    loom::model(|| {
        let world = World::new(State::Mapped);
        let background = background(&world, &[0, 0]);
        assert!(world.slots.detach(Slot::new(0), State::Mapped));
        world.leave_alone(0);
        world.gone[0].store(false, Relaxed);
        world.slots.set(Slot::new(0), State::Mapped);
        background.join().unwrap();
    });
}
