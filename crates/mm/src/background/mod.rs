//! The background work as a whole: one step after the other, the most urgent kind first.
//!
//! The thread has the lowest priority. A step that is preempted shows that the processors are busy. Then memory that
//! the step has taken out of the lists is missing, and its touches take time from the program. So the thread rests
//! after such a step, longer each time it happens again. While it rests it only gives back what is due, and moves
//! memory that is zeroed already to where the program needs it.

pub mod ahead;
pub mod decay;
pub mod scrub;
pub mod stock;

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::Sys;

use crate::background::ahead::Effort;
use crate::space::Space;
use crate::space::progress::{Progress, sooner};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

/// A step was preempted when it took longer than the time it had a processor for by this much.
const PREEMPTED_NS: u64 = 500_000;
/// How long the rest is, at first and at most.
const REST_MS: u32 = 1;
const REST_MAX_MS: u32 = 160;

/// Other processors that were busy are taken to be so for this long.
const CROWDED_MS: u32 = 8_000;

impl<S: Sys> Space<S> {
    /// One background step. It takes a fraction of a millisecond of processor time.
    pub fn step(&self) -> Progress {
        self.look_for_program();
        self.all_shards().filter(|shard| !shard.later.is_empty()).for_each(|shard| self.take_in(shard));
        let rested = self.now_ms().wrapping_sub(self.rest_since.load(Relaxed));
        let rest = self.rest.load(Relaxed);
        if rested < rest {
            let later = Progress::Wait((rest - rested) as u64 * 1000);
            let moves = if self.moves() { self.ahead_step(Effort::Moves) } else { Progress::Idle };
            return sooner(sooner(later, moves), self.decay_step());
        }
        self.keep_away();
        self.slept.store(0, Relaxed);
        let (wall, cpu) = (self.sys.now_ns(), self.sys.thread_ns());
        let progress = self.useful_step();
        if progress == Progress::Worked {
            let accounted = self.sys.thread_ns() - cpu + self.slept.load(Relaxed) as u64;
            let waited = (self.sys.now_ns() - wall).saturating_sub(accounted);
            let rest = if waited < PREEMPTED_NS { 0 } else { (rest * 2).clamp(REST_MS, REST_MAX_MS) };
            if rest > REST_MS {
                // Where we are is no better: let the scheduler choose, for a while.
                self.avoided_cpu.store(0, Relaxed);
                self.crowded.store(self.now_ms() | 1, Relaxed);
                self.sys.avoid_cpu(None);
            }
            self.shard(0).count(Counter::WorkerRests, (rest > 0) as usize);
            self.rest.store(rest, Relaxed);
            self.rest_since.store(self.now_ms(), Relaxed);
        }
        progress
    }

    /// Runs on another processor than the program: left to itself the kernel often wakes the thread where the program
    /// is, although another processor is idle. Where the others were seen to be busy it may run anywhere: the program's
    /// is free whenever the program rests.
    fn keep_away(&self) {
        let cpu = self.program_cpu.swap(0, Relaxed);
        let crowded = self.crowded.load(Relaxed);
        if crowded != 0 && self.now_ms().wrapping_sub(crowded).wrapping_add(1) <= CROWDED_MS {
            return;
        }
        if cpu != 0 && cpu != self.avoided_cpu.swap(cpu, Relaxed) {
            self.sys.avoid_cpu(Some(cpu - 1));
        }
    }

    /// At the beginning of a burst of zeroing: which processor is idle may have changed since the last one.
    pub(crate) fn choose_cpu(&self) {
        let cpu = self.avoided_cpu.load(Relaxed);
        if cpu != 0 {
            self.sys.avoid_cpu(Some(cpu - 1));
        }
    }

    /// A new background thread has no such habits yet.
    pub fn new_worker(&self) {
        self.avoided_cpu.store(0, Relaxed);
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
