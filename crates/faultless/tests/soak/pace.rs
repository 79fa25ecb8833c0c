//! How long workers go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use faultless_testkit::rng::Rng;

/// Until a moment, or for some rounds; all of them end when one has failed.
pub struct Pace {
    end: Option<Instant>,
    rounds: usize,
    failed: AtomicBool,
}

/// Says which round failed.
struct Round<'a> {
    pace: &'a Pace,
    seed: u64,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}: round with seed {}", thread::current().name().unwrap_or("a worker"), self.seed);
            self.pace.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Pace {
    /// Until `end`, or else for that many rounds.
    pub fn new(end: Option<Instant>, rounds: usize) -> Self {
        Self { end, rounds, failed: AtomicBool::new(false) }
    }

    /// Whether the run is one of a few rounds.
    pub fn is_short(&self) -> bool {
        self.end.is_none()
    }

    /// Runs rounds; how many.
    pub fn run(&self, mut round: impl FnMut(&mut Rng)) -> usize {
        let mut done = 0;
        let goes_on = |done| self.end.map_or(done < self.rounds, |end| Instant::now() < end);
        while goes_on(done) && !self.failed.load(Ordering::Relaxed) {
            let seed = done as u64 + 1;
            let _round = Round { pace: self, seed };
            round(&mut Rng::new(seed));
            done += 1;
        }
        done
    }
}
