//! Threads that start others, while one more unmaps memory: what applications do when they come up.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::field::{Field, Part};
use super::samples::{Latency, Samples};
use super::{Spf, Work, faults};
use crate::bench::loops::memory::PAGE;

/// Threads of an application, and what each touches first.
const MEMBERS: usize = 4;
const FIRST: usize = 1 << 20;

/// Runs it: how many a second, and times.
pub fn run(what: &Spf) -> io::Result<(f64, Option<Latency>)> {
    let field = Field::new(what, what.threads + 1)?;
    let line_up = Barrier::new(what.threads + 1);
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || over.load(Ordering::Relaxed);
    let starter = |part: Part<'_>| -> io::Result<Samples> {
        let mut samples = Samples::default();
        line_up.wait();
        while !is_over() {
            match what.work {
                Work::Starts => samples.time(|| application(&part))?,
                _ => create(&mut samples)?,
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(samples)
    };
    let (samples, time) = thread::scope(|scope| {
        let beside = scope.spawn(|| faults::change(what.beside, field.part(what.threads), &is_over));
        let part = |i| field.part(i);
        let starters: Vec<_> = (0..what.threads).map(|i| scope.spawn(move || starter(part(i)))).collect();
        line_up.wait();
        let start = Instant::now();
        thread::sleep(Duration::from_secs_f64(what.seconds));
        over.store(true, Ordering::Relaxed);
        let mut all = Samples::default();
        for starter in starters {
            all.merge(starter.join().expect("it does not panic")?);
        }
        let time = start.elapsed();
        beside.join().expect("it does not panic")?;
        io::Result::Ok((all, time))
    })?;
    Ok((done.into_inner() as f64 / time.as_secs_f64(), samples.latency()))
}

/// Some threads come up, each with memory of its own.
fn application(part: &Part<'_>) -> io::Result<()> {
    thread::scope(|scope| {
        let member = |i: usize| {
            let at = part.map(i * FIRST, FIRST)?;
            (0..FIRST).step_by(PAGE).try_for_each(|offset| part.touch(at, offset))?;
            part.unmap(i * FIRST, at, FIRST)
        };
        let members: Vec<_> = (0..MEMBERS).map(|i| scope.spawn(move || member(i))).collect();
        members.into_iter().try_for_each(|member| member.join().expect("it does not panic"))
    })
}

/// A thread that does nothing: its stack is mapped, and unmapped by the next.
fn create(samples: &mut Samples) -> io::Result<()> {
    let thread = samples.time(|| thread::Builder::new().stack_size(1 << 20).spawn(|| ()))?;
    thread.join().expect("it does not panic");
    Ok(())
}
