//! Files that fit into memory, as IOzone uses them: a file for each thread, all of its records once in each test.

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use clap::ValueEnum;

use super::target::{Access, Target, View, Way};
use super::{RECORD, Record, check, disk, first_word, record, shuffled};

/// Which tests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// First touches, and what is already mapped.
    First,
    /// The seven of IOzone, mapped.
    Mapped,
    /// The seven of IOzone, by calls.
    Calls,
}

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Inside {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    set: Set,
    /// Where the files are made.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of all files together.
    #[arg(long)]
    size: usize,
    /// Threads, each with a file of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Whether huge pages are made before anything is timed.
    #[arg(long)]
    ready: bool,
}

/// What a test took.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Timed {
    /// The test.
    pub test: String,
    /// Seconds, of all threads together.
    pub seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Reverse,
    Random,
}

/// Whether a test has a mapping of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapped {
    Anew,
    Still,
}

#[derive(Clone, Copy)]
enum Step {
    Records(Access, Order, Mapped),
    Flush,
}

const WRITE: Step = Step::Records(Access::Write, Order::Forward, Mapped::Anew);

/// The names are those of the tables.
const FIRST: [(&str, Step); 8] = [
    ("initial write", WRITE),
    ("flush", Step::Flush),
    ("rewrite after the flush", Step::Records(Access::Write, Order::Forward, Mapped::Still)),
    ("flush again", Step::Flush),
    ("first random read in a new mapping", Step::Records(Access::Read, Order::Random, Mapped::Anew)),
    ("everything mapped: random read", Step::Records(Access::Read, Order::Random, Mapped::Still)),
    ("first random write in a new mapping", Step::Records(Access::Write, Order::Random, Mapped::Anew)),
    ("everything mapped: random write", Step::Records(Access::Write, Order::Random, Mapped::Still)),
];

const IOZONE: [(&str, Step); 9] = [
    ("initial write", WRITE),
    ("flush", Step::Flush),
    ("rewrite", WRITE),
    ("flush again", Step::Flush),
    ("read", Step::Records(Access::Read, Order::Forward, Mapped::Anew)),
    ("re-read", Step::Records(Access::Read, Order::Forward, Mapped::Anew)),
    ("reverse read", Step::Records(Access::Read, Order::Reverse, Mapped::Anew)),
    ("random read", Step::Records(Access::Read, Order::Random, Mapped::Anew)),
    ("random write", Step::Records(Access::Write, Order::Random, Mapped::Anew)),
];

impl Set {
    fn steps(self) -> &'static [(&'static str, Step)] {
        match self {
            Self::First => &FIRST,
            Self::Mapped | Self::Calls => &IOZONE,
        }
    }

    /// The names of its tests, in their order.
    pub fn tests(self) -> Vec<&'static str> {
        self.steps().iter().map(|(name, _)| *name).collect()
    }
}

/// One thread and its file.
struct Worker<'a> {
    what: &'a Inside,
    target: Target,
    view: Option<View>,
    records: usize,
    random: Vec<u32>,
    /// Of who wrote last.
    pass: u64,
}

impl<'a> Worker<'a> {
    fn new(what: &'a Inside, dir: &Path, index: usize) -> io::Result<Self> {
        let records = what.size / what.threads / RECORD;
        let path = dir.join(format!("{index}"));
        let target = Target::create(what.way, &path, records * RECORD, what.set != Set::Calls)?;
        Ok(Self { what, target, view: None, records, random: shuffled(0..records, index as u64), pass: 0 })
    }

    /// From when to when it took.
    fn step(&mut self, step: Step) -> io::Result<(Instant, Instant)> {
        let start = Instant::now();
        match step {
            Step::Flush => self.target.flush()?,
            Step::Records(access, order, mapped) => {
                self.pass += (access == Access::Write) as u64;
                if self.what.set != Set::Calls && mapped == Mapped::Anew {
                    self.view = Some(self.target.map(self.records * RECORD, access)?);
                }
                let n = self.records;
                match order {
                    Order::Forward => self.each(access, 0..n)?,
                    Order::Reverse => self.each(access, (0..n).rev())?,
                    Order::Random => {
                        let random = std::mem::take(&mut self.random);
                        self.each(access, random.iter().map(|number| *number as usize))?;
                        self.random = random;
                    }
                }
            }
        }
        Ok((start, Instant::now()))
    }

    fn each(&mut self, access: Access, order: impl Iterator<Item = usize>) -> io::Result<()> {
        let pass = self.pass;
        let mut bytes: Record = record(0, pass);
        for number in order {
            match (access, &mut self.view) {
                (Access::Read, Some(view)) => {
                    // SAFETY: a record of the mapping, which no other thread writes to.
                    bytes = black_box(unsafe { view.record(number).read() });
                }
                (Access::Read, None) => self.target.read(number, &mut bytes)?,
                (Access::Write, view) => {
                    bytes[..8].copy_from_slice(&super::word(number, pass).to_le_bytes());
                    match view {
                        // SAFETY: as above; no other thread uses it.
                        Some(view) => unsafe { view.record(number).write(bytes) },
                        None => self.target.write(number, &bytes)?,
                    }
                }
            }
            if access == Access::Read {
                check(number, pass, first_word(&bytes))?;
            }
        }
        Ok(())
    }
}

/// Runs all tests. Threads begin each of them together. Opening a mapping counts, its end does not.
pub(super) fn run(what: &Inside) -> io::Result<Vec<Timed>> {
    let dir = match what.way {
        Way::Tmpfs => disk::mount_huge_tmpfs(&what.dir)?,
        _ => what.dir.clone(),
    };
    if what.ready && what.way == Way::Huge && faultless::reserve(what.size)?.wait()? < what.size {
        return Err(io::Error::other("not enough memory for huge pages beforehand"));
    }
    let steps = what.set.steps();
    let barrier = Barrier::new(what.threads);
    let one = |index: usize| -> io::Result<Vec<(Instant, Instant)>> {
        let mut worker = Worker::new(what, &dir, index);
        let mut times = Vec::new();
        for (at, (_, step)) in steps.iter().enumerate() {
            // The end of the last mapping is no part of a test.
            let is_anew = matches!(step, Step::Records(_, _, Mapped::Anew));
            if let Ok(worker) = worker.as_mut()
                && is_anew
            {
                worker.view = None;
            }
            barrier.wait();
            let taken = worker.as_mut().map_err(|error| io::Error::new(error.kind(), error.to_string()));
            match taken.and_then(|worker| worker.step(*step)) {
                Ok(time) => times.push(time),
                Err(error) => worker = Err(error),
            }
            barrier.wait();
            debug_assert!(worker.is_err() || times.len() == at + 1);
        }
        let worker = worker?;
        drop(worker.view);
        worker.target.abandon();
        Ok(times)
    };
    let all: io::Result<Vec<Vec<(Instant, Instant)>>> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..what.threads).map(|index| scope.spawn(move || one(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics abort")).collect()
    });
    let all = all?;
    let timed = steps.iter().enumerate().map(|(at, (name, _))| {
        let start = all.iter().map(|times| times[at].0).min().expect("there is a thread");
        let end = all.iter().map(|times| times[at].1).max().expect("there is a thread");
        Timed { test: (*name).into(), seconds: (end - start).as_secs_f64() }
    });
    Ok(timed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record is checked as it is read, so a cache that lost one would be an error.
    #[test]
    fn every_way_reads_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        for way in [Way::Kernel, Way::Advised, Way::Small, Way::Huge] {
            for set in [Set::First, Set::Mapped, Set::Calls] {
                let what = Inside {
                    way,
                    set,
                    dir: dir.path().into(),
                    size: 8 << 20,
                    threads: 2,
                    ready: way == Way::Huge,
                };
                let timed = run(&what).unwrap_or_else(|error| panic!("{way:?} {set:?}: {error}"));
                let names: Vec<&str> = timed.iter().map(|timed| timed.test.as_str()).collect();
                assert_eq!(names, set.tests());
                assert!(timed.iter().all(|timed| timed.seconds > 0.0));
            }
        }
    }
}
