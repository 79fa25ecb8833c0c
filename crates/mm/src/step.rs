//! The background work as a whole: one step after the other, the most urgent kind first.
//!
//! The thread has the lowest priority. When it is preempted in the middle of a step the processors are busy: then
//! memory that it has taken out of the lists is missing, and what it touches it touches at the program's expense. So
//! it rests after such a step, the longer the more often it happens, and only gives back what is due.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::Sys;

use crate::progress::{Progress, sooner};
use crate::space::Space;

/// A step was preempted when it took longer than the time it had a processor for by this much.
const PREEMPTED_NS: u64 = 500_000;
/// How long the rest is, at first and at most.
const REST_MS: u32 = 10;
const REST_MAX_MS: u32 = 160;

impl<S: Sys> Space<S> {
    /// One background step. It takes a fraction of a millisecond of processor time.
    pub fn step(&self) -> Progress {
        let _working = self.working.lock();
        let rested = self.now_ms().wrapping_sub(self.rest_since.load(Relaxed));
        let rest = self.rest.load(Relaxed);
        if rested < rest {
            let later = Progress::Wait((rest - rested) as u64 * 1000);
            return sooner(later, self.decay_step());
        }
        let (wall, cpu) = (self.sys.now_ns(), self.sys.thread_ns());
        let progress = self.useful_step();
        if progress == Progress::Worked {
            let waited = (self.sys.now_ns() - wall).saturating_sub(self.sys.thread_ns() - cpu);
            let rest = if waited < PREEMPTED_NS { 0 } else { (rest * 2).clamp(REST_MS, REST_MAX_MS) };
            self.rest.store(rest, Relaxed);
            self.rest_since.store(self.now_ms(), Relaxed);
        }
        progress
    }

    fn useful_step(&self) -> Progress {
        let ahead = self.ahead_step();
        if ahead == Progress::Worked {
            return ahead;
        }
        let scrub = if self.knobs.scrub { self.scrub_step() } else { Progress::Idle };
        if scrub == Progress::Worked {
            return scrub;
        }
        sooner(sooner(ahead, scrub), sooner(self.advice_step(), self.decay_step()))
    }
}
