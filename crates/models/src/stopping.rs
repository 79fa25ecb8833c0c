//! A scheduler under which threads stop for ever at a random point. A thread stops so that a signal handler or a
//! debugger holds, or that a fork leaves behind. Its locks stay taken.

use std::cell::Cell;

use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};

/// Turns of a thread, at most, before it stops.
const TURNS: u64 = 600;

thread_local! {
    /// The thread that stops, counted from the first one that the model starts.
    static STOPS: Cell<usize> = const { Cell::new(usize::MAX) };
    /// What is left of its turns.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static REST: Cell<Rest> = const { Cell::new(Rest::GoesOn) };
}

/// What becomes of the threads that are not the model's first one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// One of them stops.
    GoesOn,
    /// That one goes on, too.
    Resumes,
    /// All of them have stopped.
    Stopped,
}

/// Which thread stops in this run, counted from 0 in the order in which the model starts them.
pub fn stopping_thread() -> usize {
    STOPS.get()
}

/// All other threads have ended: the stopped thread goes on.
pub fn resume() {
    REST.set(Rest::Resumes);
}

/// All threads but the model's own stop where they are.
pub fn stop_all_others() {
    REST.set(Rest::Stopped);
}

/// One of `threads` threads stops; the others go on, in any order.
pub struct Stopping {
    order: RandomScheduler,
    threads: u64,
}

impl Stopping {
    /// `runs` runs of a model that starts `threads` threads.
    pub fn new(runs: usize, threads: usize) -> Self {
        Self { order: RandomScheduler::new(runs), threads: threads as u64 }
    }
}

impl Scheduler for Stopping {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.order.new_execution();
        STOPS.set((self.order.next_u64() % self.threads) as usize);
        LEFT.set(self.order.next_u64() % TURNS);
        REST.set(Rest::GoesOn);
        schedule
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        // The model itself is number 0.
        let stops = |id: TaskId| usize::from(id) == STOPS.get() + 1;
        if current.is_some_and(stops) {
            LEFT.set(LEFT.get().saturating_sub(1));
        }
        let goes_on = |task: &&&Task| match REST.get() {
            Rest::Resumes => true,
            Rest::GoesOn => LEFT.get() > 0 || !stops(task.id()),
            Rest::Stopped => usize::from(task.id()) == 0,
        };
        let going: Vec<&Task> = runnable.iter().filter(goes_on).copied().collect();
        if going.is_empty() && REST.get() == Rest::Stopped {
            // The model has ended without them.
            return None;
        }
        assert!(!going.is_empty(), "a thread waits for one that has stopped");
        self.order.next_task(&going, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.order.next_u64()
    }
}
