//! The engine as a whole, over a simulated address space: two threads of a program and the background thread. Each of
//! them does random calls, in a random order.
//!
//! A failure prints its schedule; `SHUTTLE_RANDOM_SEED` repeats a run, `MODEL_RUNS` asks for more.

mod program;
mod stops;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use faultless_models::{LeftBehind, check_runs};
use faultless_page::stats::Counter;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};
use world::{COUNTERS, World};

/// Calls of each thread of the program, and steps of the background thread.
const CALLS: usize = 6;
const STEPS: usize = 14;

/// Slots that may be kept or charged.
const BUDGETS: [usize; 4] = [0, 1, 4, PLENTY];
const PLENTY: usize = 1000;

fn check(model: impl Fn() + Copy + Send + Sync + 'static) {
    check_runs(model, 2000);
}

/// Runs in a world of this budget's, where all is as it has to be in the end.
fn check_world(budgets: &'static [usize], run: impl Fn(&Arc<World>) + Copy + Send + Sync + 'static) {
    check(move || {
        let world = Arc::new(World::new(budgets));
        run(&world);
        world.end();
        world.check_account();
    });
}

/// The same with `programs` threads, each with `calls` of these calls, and the background thread.
fn check_calls(budgets: &'static [usize], programs: usize, calls: usize, call: fn(&World)) {
    check_world(budgets, move |world| join(start(world, programs, calls, call)));
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Threads of the program that make such calls, and the background thread.
fn start(world: &Arc<World>, programs: usize, calls: usize, call: fn(&World)) -> Vec<JoinHandle<()>> {
    let spawn = |turns: usize, f: fn(&World)| {
        let world = world.clone();
        let turns = move || (0..turns).take_while(|_| !world.sys.is_leaving()).for_each(|_| f(&world));
        thread::spawn(move || {
            if let Err(end) = catch_unwind(AssertUnwindSafe(turns))
                && !end.is::<LeftBehind>()
            {
                resume_unwind(end);
            }
        })
    };
    let background = spawn(STEPS, World::background_step);
    (0..programs).map(|_| spawn(calls, call)).chain([background]).collect()
}

/// The runs reached what they are about.
fn assert_counted(counter: Counter) {
    let sum: u64 = COUNTERS.iter().map(|block| block.get(counter as usize)).sum();
    assert!(sum > 0, "{counter:?}: in no run");
}

#[test]
fn threads_share_the_engine() {
    check_calls(&BUDGETS, 2, CALLS, World::call);
}

/// What is unmapped, protected, replaced or moved is not touched ahead of the program any more.
#[test]
fn the_background_thread_keeps_out_of_what_the_program_has_no_longer() {
    check_calls(&[PLENTY], 1, 3, program::grow);
    assert_counted(Counter::BytesTouchedAhead);
    assert_counted(Counter::BytesMoved);
}

/// A thread that maps where another one unmaps has its mapping, and both are counted.
#[test]
fn a_range_is_mapped_again_while_its_last_use_ends() {
    check_calls(&[PLENTY], 2, 2, program::map_where_others_unmap);
    assert_counted(Counter::BytesMoved);
}

/// A thread that unmaps what another one maps or unmaps at that moment ends notes of its own alone.
#[test]
fn a_range_is_unmapped_while_it_is_mapped() {
    check_world(&[PLENTY], |world| {
        program::recycle(world);
        join(start(world, 3, 4, program::unmap_under_way));
        while let Some(span) = world.unseen.take() {
            world.unmap(0, span);
        }
    });
}

/// Frames that a program drops and uses again leave and come back as zeroes.
#[test]
fn what_is_dropped_is_zero_whoever_zeroes_it() {
    check_calls(&[PLENTY], 2, 2, program::drop_again);
    assert_counted(Counter::BytesRecycled);
}

/// No thread has memory that is zeroed in the background.
#[test]
fn the_background_thread_zeroes_what_comes_back() {
    check_calls(&[PLENTY], 2, 3, program::recycle);
    assert_counted(Counter::BytesScrubbed);
}

/// Memory that is being zeroed is called back by the thread that needs it; what is zero by then is handed out as
/// such, the rest is not. Engines fail meanwhile.
#[test]
fn what_is_being_zeroed_is_called_back() {
    check_world(&[PLENTY], |world| {
        join(start(world, 2, 3, program::recycle_under_failures));
        world.sys.step().heal();
    });
    assert_counted(Counter::ScrubRecalls);
    assert_counted(Counter::EnginesDropped);
}

/// The same where a device zeroes by itself, while the background thread looks on: it writes until the job has ended.
#[test]
fn a_device_zeroes_while_the_program_goes_on() {
    check_world(&[PLENTY], |world| {
        world.sys.begin_device();
        let device = {
            let sys = world.sys.clone();
            thread::spawn(move || sys.work_as_device())
        };
        join(start(world, 2, 3, program::recycle_under_failures));
        world.sys.end_device();
        device.join().unwrap();
        world.sys.step().heal();
    });
    assert_counted(Counter::BytesScrubbed);
}

/// A background thread that stands still in the middle of zeroing holds no thread up, and nothing is handed out
/// twice.
#[test]
fn nobody_waits_for_a_background_thread_that_stands_still() {
    check_world(&[PLENTY], |world| {
        program::recycle(world);
        world.sys.stall(true);
        let mut threads = start(world, 2, 3, program::recycle);
        let background = threads.pop().expect("the last one");
        join(threads);
        world.sys.stall(false);
        background.join().unwrap();
    });
}

/// A slot goes back when its last part does, not while another thread is still at work in it.
#[test]
fn parts_of_one_slot_come_back_from_two_threads() {
    check_calls(&BUDGETS, 2, 3, program::give_back_parts);
}

/// Threads that a fork left behind had slots on their way, anywhere; no lock is held. What the account says of such
/// slots is lost, the slots are not.
#[test]
fn a_child_goes_on_without_the_other_threads() {
    check(|| {
        let world = Arc::new(World::new(&BUDGETS).with_threads_left_behind());
        let threads = start(&world, 2, CALLS, World::call);
        for _ in 0..thread_rng().gen_range(0..40) {
            world.sys.step();
        }
        world.sys.leave_behind();
        join(threads);
        world.sys.go_on();
        world.space.fork_prepare();
        world.space.fork_child();
        world.end();
    });
}

/// The program lays a mapping of its own over free memory of the engine. It stays as it is, also in a child, whatever
/// other threads and the background thread do to that memory at the moment.
#[test]
fn what_lies_where_memory_was_free_stays() {
    check(|| {
        let world = Arc::new(World::new(&[4, PLENTY]));
        program::recycle(&world);
        let threads = start(&world, 2, 3, program::recycle_or_press);
        let laid: Vec<_> = (0..3).map(|part| world.lay(part)).collect();
        laid.iter().for_each(|thing| world.check(*thing));
        join(threads);
        world.space.fork_prepare();
        world.space.fork_child();
        laid.iter().for_each(|thing| world.check(*thing));
    });
}
