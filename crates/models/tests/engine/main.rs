//! The engine as a whole, over a simulated address space: two threads of a program and the background thread, each
//! of them doing what chance says, in an order that chance says.
//!
//! A failure prints its schedule; `SHUTTLE_RANDOM_SEED` repeats a run, `MODEL_RUNS` asks for more.

mod program;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use faultless_models::LeftBehind;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};
use world::World;

/// Calls of each thread of the program, and steps of the background thread.
const CALLS: usize = 6;
const STEPS: usize = 14;
/// Preemptions that a bug may need, for the scheduler that looks for those few.
const PREEMPTIONS: usize = 3;

/// Runs `model` under both schedulers.
fn check(model: fn()) {
    fn run(scheduler: impl Scheduler + 'static, model: fn()) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(model);
    }
    let runs = std::env::var("MODEL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    run(RandomScheduler::new(runs), model);
    run(PctScheduler::new(PREEMPTIONS, runs), model);
}

/// Two threads of the program and the background thread.
fn start(world: &Arc<World>) -> Vec<JoinHandle<()>> {
    fn program(world: &World) {
        (0..CALLS).take_while(|_| !world.sys.is_leaving()).for_each(|_| world.call());
    }
    fn background(world: &World) {
        (0..STEPS).take_while(|_| !world.sys.is_leaving()).for_each(|_| world.background_step());
    }
    let spawn = |f: fn(&World)| {
        let world = world.clone();
        thread::spawn(move || {
            if let Err(end) = catch_unwind(AssertUnwindSafe(|| f(&world)))
                && !end.is::<LeftBehind>()
            {
                resume_unwind(end);
            }
        })
    };
    [program, program, background].into_iter().map(spawn).collect()
}

#[test]
fn threads_share_the_engine() {
    check(|| {
        let world = Arc::new(World::new());
        start(&world).into_iter().for_each(|thread| thread.join().unwrap());
        world.end();
        world.check_account();
    });
}

/// Threads that a fork left behind had slots on their way, anywhere; nobody holds a lock. What the account says of
/// such slots is lost, the slots are not.
#[test]
fn a_child_goes_on_without_the_other_threads() {
    check(|| {
        let world = Arc::new(World::new());
        let threads = start(&world);
        for _ in 0..thread_rng().gen_range(0..40) {
            world.sys.step();
        }
        world.sys.leave_behind();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        world.sys.go_on();
        world.space.fork_prepare();
        world.sys.step().become_child();
        world.space.fork_child();
        world.end();
    });
}
