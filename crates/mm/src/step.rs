//! The background work as a whole: one step after the other, the most urgent kind first.

use faultless_base::sys::Sys;

use crate::progress::{Progress, sooner};
use crate::space::Space;

impl<S: Sys> Space<S> {
    /// One background step. It takes a fraction of a millisecond.
    pub fn step(&self) -> Progress {
        let _working = self.working.lock();
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
