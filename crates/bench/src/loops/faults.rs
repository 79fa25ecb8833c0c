//! The program of the prezeroing tables: maps memory, touches some lines of each page, unmaps it. A fault is the
//! first touch of a page, whether the kernel takes one or not.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{Mapping, Place};
use crate::process::{self, Times};

/// What is done.
#[derive(clap::Args, Clone, Copy)]
pub struct Faults {
    /// Bytes of a mapping.
    #[arg(long)]
    size: usize,
    /// Threads that touch it, each a part of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Mappings one after the other, measured as a whole.
    #[arg(long, default_value_t = 1)]
    reps: u64,
    /// Lines of 64 bytes touched in each page.
    #[arg(long, default_value_t = 1)]
    lines: usize,
    /// How often all that is done; before each time such a mapping is used and given back, which is not measured.
    #[arg(long, default_value_t = 5)]
    bursts: u64,
    /// Milliseconds of rest after that.
    #[arg(long, default_value_t = 300)]
    rest: u64,
}

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Taken {
    /// Seconds of processor time in user mode, of the whole process.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Seconds.
    pub wall: f64,
    /// Pages touched for the first time.
    pub faults: u64,
    /// Of what was read and written.
    pub checksum: u64,
}

impl Taken {
    /// Pages touched in a second of processor time.
    pub fn per_cpu_second(&self) -> f64 {
        self.faults as f64 / (self.user + self.system)
    }

    /// Pages touched in a second.
    pub fn per_second(&self) -> f64 {
        self.faults as f64 / self.wall
    }
}

/// Runs it.
pub fn run(what: Faults) -> io::Result<Taken> {
    // What all threads touch next; none: they end.
    let next = Mutex::new(None::<Place>);
    let line_up = Barrier::new(what.threads);
    let checksum = AtomicU64::new(0);
    let touch_part = |index: usize| {
        line_up.wait();
        let place = *next.lock().expect("nobody panics");
        let Some(place) = place else { return false };
        checksum.fetch_add(place.part(index, what.threads).touch_lines(what.lines), Relaxed);
        line_up.wait();
        true
    };
    let set = |place| *next.lock().expect("nobody panics") = place;
    let taken = thread::scope(|scope| {
        for index in 1..what.threads {
            let touch_part = &touch_part;
            scope.spawn(move || while touch_part(index) {});
        }
        let taken = measure(what, || {
            let mapping = Mapping::new(what.size)?;
            set(Some(mapping.place()));
            touch_part(0);
            Ok(())
        });
        set(None);
        touch_part(0);
        taken
    })?;
    Ok(Taken { checksum: checksum.into_inner(), ..taken })
}

fn measure(what: Faults, map_once: impl Fn() -> io::Result<()>) -> io::Result<Taken> {
    let mut taken = Taken::default();
    for _ in 0..what.bursts {
        map_once()?;
        thread::sleep(Duration::from_millis(what.rest));
        let (start, before) = (Instant::now(), process::own_times()?);
        for _ in 0..what.reps {
            map_once()?;
        }
        taken.wall += start.elapsed().as_secs_f64();
        let Times { user, system } = process::own_times()?;
        taken.user += user - before.user;
        taken.system += system - before.system;
        taken.faults += what.reps * (what.size / super::memory::PAGE) as u64;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_counts_once_whoever_touches_it() {
        let one = Faults { size: 1 << 20, threads: 1, reps: 3, lines: 2, bursts: 2, rest: 0 };
        let taken = run(one).unwrap();
        assert_eq!(taken.faults, 2 * 3 * 256);
        assert!(taken.wall > 0.0 && taken.per_second() > 0.0);
        let two = run(Faults { threads: 2, ..one }).unwrap();
        assert_eq!((two.faults, two.checksum), (taken.faults, taken.checksum));
        assert_ne!(run(Faults { lines: 3, ..one }).unwrap().checksum, taken.checksum);
    }
}
