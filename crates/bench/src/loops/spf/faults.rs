//! Threads that fault, and one beside them that changes the address space.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::field::{Field, PART, Part};
use super::samples::Samples;
use super::{Beside, Reached, Spf, Work};
use crate::loops::memory::PAGE;

/// Bytes of a block that is allocated, used and freed.
const BLOCK: usize = 512 << 10;

/// Runs it.
pub fn run(what: &Spf) -> io::Result<Reached> {
    beside(what, |part, samples, over| Worker { part, what, samples }.round(&|| over.load(Ordering::Relaxed)))
}

/// Has threads do rounds of their work, beside one that changes the address space, for as long as was asked for. A round has a part that
/// is its thread's, may end early when it is over, and says how much was done.
pub fn beside(
    what: &Spf,
    round: impl Fn(&Part<'_>, &mut Samples, &AtomicBool) -> io::Result<u64> + Sync,
) -> io::Result<Reached> {
    let field = Field::new(what, what.threads + 1)?;
    let line_up = Barrier::new(what.threads + 1);
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || over.load(Ordering::Relaxed);
    let worker = |index: usize| -> io::Result<Samples> {
        let (part, mut samples) = (field.part(index), Samples::default());
        line_up.wait();
        // At least once: it may be over before this thread has a processor.
        loop {
            done.fetch_add(round(&part, &mut samples, &over)?, Ordering::Relaxed);
            if is_over() {
                return Ok(samples);
            }
        }
    };
    let (samples, changes, time) = thread::scope(|scope| {
        let beside = scope.spawn(|| change(what.beside, field.part(what.threads), &is_over));
        let worker = &worker;
        let workers: Vec<_> = (0..what.threads).map(|i| scope.spawn(move || worker(i))).collect();
        line_up.wait();
        let start = Instant::now();
        thread::sleep(Duration::from_secs_f64(what.seconds));
        over.store(true, Ordering::Relaxed);
        let mut all = Samples::default();
        for worker in workers {
            all.merge(worker.join().expect("it does not panic")?);
        }
        let time = start.elapsed();
        let changes = beside.join().expect("it does not panic")?;
        io::Result::Ok((all, changes, time.as_secs_f64()))
    })?;
    let (rate, changes) = (done.into_inner() as f64 / time, changes as f64 / time);
    Ok(Reached { rate, changes, latency: samples.latency(), ..Reached::default() })
}

/// What goes on beside, until it is over; how many changes that were.
fn change(what: Beside, part: Part<'_>, is_over: &impl Fn() -> bool) -> io::Result<u64> {
    let mut changes = 0;
    while what != Beside::Nobody && !is_over() {
        let at = part.map(0, PART)?;
        if what == Beside::Unmaps {
            part.populate(0, at, PART)?;
        }
        part.unmap(0, at, PART)?;
        changes += 2;
    }
    Ok(changes)
}

struct Worker<'a> {
    part: &'a Part<'a>,
    what: &'a Spf,
    samples: &'a mut Samples,
}

impl Worker<'_> {
    /// Some of the work; how much of it was done.
    fn round(&mut self, is_over: &impl Fn() -> bool) -> io::Result<u64> {
        match self.what.work {
            Work::Touch => {
                let at = self.part.map(0, PART)?;
                let mut pages = 0;
                loop {
                    pages += self.touch(at, PART, is_over)?;
                    self.part.drop_pages(at)?;
                    if is_over() {
                        break;
                    }
                }
                self.part.unmap(0, at, PART)?;
                Ok(pages)
            }
            Work::Blocks => {
                let blocks = PART / BLOCK;
                for from in (0..blocks).map(|block| block * BLOCK) {
                    let at = self.part.map(from, BLOCK)?;
                    self.touch(at, BLOCK, &|| false)?;
                    self.part.unmap(from, at, BLOCK)?;
                    if is_over() {
                        return Ok((from / BLOCK) as u64 + 1);
                    }
                }
                Ok(blocks as u64)
            }
            _ => {
                let at = self.part.map(0, PART)?;
                let pages = self.touch(at, PART, &|| false)?;
                self.part.unmap(0, at, PART)?;
                Ok(pages)
            }
        }
    }

    /// Touches each page, and the first one in any case; how many.
    fn touch(&mut self, at: usize, bytes: usize, is_over: &impl Fn() -> bool) -> io::Result<u64> {
        let mut pages = 0;
        for offset in (0..bytes).step_by(PAGE) {
            if self.what.timed {
                self.samples.time(|| self.part.touch(at, offset))?;
            } else {
                self.part.touch(at, offset)?;
            }
            pages += 1;
            if is_over() {
                break;
            }
        }
        Ok(pages)
    }
}
