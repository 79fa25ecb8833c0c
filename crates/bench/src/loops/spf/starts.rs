//! Threads that start others, while one more unmaps memory: what applications do when they come up.

use std::io;
use std::thread;

use super::field::Part;
use super::samples::Samples;
use super::{Reached, Spf, Work, faults};
use crate::loops::memory::PAGE;

/// Threads of an application, and what each touches first.
const MEMBERS: usize = 4;
const FIRST: usize = 1 << 20;

/// Runs it.
pub fn run(what: &Spf) -> io::Result<Reached> {
    faults::beside(what, |part, samples, _| {
        match what.work {
            Work::Starts => samples.time(|| application(part))?,
            _ => create(samples)?,
        }
        Ok(1)
    })
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
