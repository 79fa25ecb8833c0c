//! The background work as a whole: one step after the other, the most urgent kind first.
//!
//! The thread has the lowest priority. A step that is preempted shows that the processors are busy. Then memory that
//! the step has taken out of the lists is missing, and its touches take time from the program. So the thread rests
//! after such a step, longer each time it happens again. While it rests it only gives back what is due, and moves
//! memory that is zeroed already to where the program needs it.

pub mod ahead;
pub mod decay;
pub mod files;
pub mod scrub;
pub mod stock;

use faultless_base::sys::Sys;

use crate::background::ahead::Effort;
use crate::space::Space;
use crate::space::progress::{Progress, sooner};
use crate::state::worker::Rest;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

impl<S: Sys> Space<S> {
    /// One background step. It takes a fraction of a millisecond of processor time.
    pub fn step(&self) -> Progress {
        self.look_for_program();
        self.all_shards().filter(|shard| !shard.later.is_empty()).for_each(|shard| self.take_in(shard));
        if let Some(left_ms) = self.worker.rest.left(self.now_ms()) {
            let later = Progress::Wait(left_ms as u64 * 1000);
            let moves = if self.moves() { self.ahead_step(Effort::Moves) } else { Progress::Idle };
            return sooner(sooner(later, moves), self.decay_step());
        }
        // It may wait for a device, which says nothing about the processors.
        let files = self.files_step();
        self.keep_away();
        self.worker.rest.begin_step();
        let (wall, cpu) = (self.sys.now_ns(), self.sys.thread_ns());
        let progress = self.useful_step();
        if progress == Progress::Worked {
            let (cpu, wall) = (self.sys.thread_ns() - cpu, self.sys.now_ns() - wall);
            let rest_ms = self.worker.rest.end_step(wall, cpu, self.now_ms());
            if Rest::is_again(rest_ms) {
                // Where we are is no better: let the scheduler choose, for a while.
                self.worker.cpus.note_crowd(self.now_ms());
                self.sys.avoid_cpu(None);
            }
            self.program().count(Counter::WorkerRests, (rest_ms > 0) as usize);
        }
        sooner(files, progress)
    }

    /// Runs on another processor than the program: left to itself the kernel often wakes the thread where the program
    /// is, although another processor is idle.
    fn keep_away(&self) {
        if let Some(cpu) = self.worker.cpus.choose(|| self.now_ms()) {
            self.sys.avoid_cpu(Some(cpu));
        }
    }

    /// At the beginning of a burst of zeroing: which processor is idle may have changed since the last one.
    pub(crate) fn choose_cpu(&self) {
        if let Some(cpu) = self.worker.cpus.avoided() {
            self.sys.avoid_cpu(Some(cpu));
        }
    }

    /// A new background thread has no such habits yet.
    pub fn new_worker(&self) {
        self.worker.cpus.avoid_none();
    }

    fn useful_step(&self) -> Progress {
        let ahead = self.ahead_step(Effort::Full);
        if ahead == Progress::Worked {
            return ahead;
        }
        let scrub = if self.knobs.is_on(Knob::Scrub) { self.scrub_step() } else { Progress::Idle };
        if scrub == Progress::Worked {
            return scrub;
        }
        if self.supply_step() == Progress::Worked {
            return Progress::Worked;
        }
        sooner(sooner(ahead, scrub), sooner(self.advice_step(), self.decay_step()))
    }
}
