//! A model under shuttle's schedulers.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::stopping::Stopping;

/// Preemptions that a bug may need, for the scheduler that looks for those few.
const PREEMPTIONS: usize = 3;

/// Runs `model` so often under each scheduler, or as often as `MODEL_RUNS` says.
pub fn check_runs(model: impl Fn() + Copy + Send + Sync + 'static, runs: usize) {
    let runs = std::env::var("MODEL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(runs);
    run(RandomScheduler::new(runs), model);
    run(PctScheduler::new(PREEMPTIONS, runs), model);
}

/// Runs `model`, which starts `threads` threads, while one of them stops for ever at any point; see
/// [`crate::stopping`].
pub fn check_stopping(model: fn(), runs: usize, threads: usize) {
    let runs = std::env::var("MODEL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(runs);
    run(Stopping::new(runs, threads), model);
}

/// This many threads of a model do the same with what they share, and end.
pub fn run_threads<T: Clone + Send + 'static>(threads: usize, shared: T, work: fn(T)) {
    let start = |_| {
        let shared = shared.clone();
        thread::spawn(move || work(shared))
    };
    let threads: Vec<_> = (0..threads).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model);
}
