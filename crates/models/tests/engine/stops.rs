//! Threads that stop for ever at any point, with whatever lock they have: every other thread ends its call.
//!
//! With any lock of the engine made one that waits, these fail.

use std::sync::Arc;

use faultless_models::check_stopping;
use faultless_models::stopping::{resume, stop_all_others, stopping_thread};
use faultless_page::stats::Counter;
use shuttle::rand::{Rng, thread_rng};

use crate::world::World;
use crate::{BUDGETS, CALLS, assert_counted, join, start};

const PROGRAMS: usize = 2;
const RUNS: usize = 2000;

#[test]
fn no_thread_waits_for_one_that_has_stopped() {
    check_stopping(
        || {
            let world = Arc::new(World::with_room(&BUDGETS));
            let mut threads = start(&world, PROGRAMS, CALLS, World::call);
            let stops = threads.swap_remove(order(stopping_thread()));
            join(threads);
            // The program's only thread by now.
            (0..CALLS).for_each(|_| world.call());
            resume();
            stops.join().unwrap();
            world.end();
            world.check_account();
        },
        RUNS,
        PROGRAMS + 1,
    );
    assert_counted(Counter::BackLater);
}

/// The background thread is started first and stands last.
fn order(started: usize) -> usize {
    if started == 0 { PROGRAMS } else { started - 1 }
}

/// A fork copies memory while other threads are anywhere, and have any lock.
#[test]
fn a_child_waits_for_no_thread_that_is_not_there() {
    check_stopping(
        || {
            let world = Arc::new(World::with_room(&BUDGETS));
            let _threads = start(&world, PROGRAMS, CALLS, World::call);
            for _ in 0..thread_rng().gen_range(0..60) {
                world.sys.step();
            }
            stop_all_others();
            world.space.fork_child();
            world.go_on_alone();
            // The threads are not joined: they end with the run.
        },
        RUNS,
        PROGRAMS + 1,
    );
}
