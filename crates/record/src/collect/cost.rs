//! What a fault costs here, and what the two records of one add to it.
//!
//! The time between the records of a fault's beginning and its end is longer than the fault by the cost of the first
//! record. It is shorter by the way into the kernel and back. Both are found on faults of this process, by turns: their
//! time without events, and between their records.

use std::io;

use super::{Options, Recorder};
use crate::file::{Cost, Head};
use crate::pairs::{Pairs, middle};
use crate::sys;
use crate::sys::event::Whose;
use crate::sys::memory::Memory;
use crate::wire::{Records, Told};

/// Pages of the memory that is touched again and again, and how often.
const PAGES: usize = 512;
const ROUNDS: usize = 4;
/// Timed faults from which their middle is taken.
const ENOUGH: usize = 20;

/// Measures both, by turns: without events, and with them.
pub fn measure(options: Options) -> io::Result<Cost> {
    let mut memory = Memory::new(PAGES)?;
    memory.touch();
    let mut recorder = Recorder::open(&[Whose::Thread(0)], options).ok();
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        figures.push(round(&mut memory));
        if let Some(recorder) = &recorder {
            recorder.enable()?;
            round(&mut memory);
            recorder.disable()?;
        }
    }
    let between = recorder.as_mut().and_then(between);
    Ok(Cost { fault_ns: middle(&mut figures), between_records_ns: between.unwrap_or(0.0) })
}

/// Nanoseconds of a first touch, less those of a second one: of this thread's own time, for others may use its CPU.
fn round(memory: &mut Memory) -> f64 {
    memory.discard();
    let start = sys::thread_time();
    memory.touch();
    let first = sys::thread_time();
    memory.touch();
    let second = sys::thread_time() - first;
    (first - start).saturating_sub(second) as f64 / PAGES as f64
}

/// Nanoseconds between the records of a fault.
fn between(recorder: &mut Recorder) -> Option<f64> {
    let mut head = Head::default();
    recorder.describe(&mut head);
    let mut all = Vec::new();
    for cpu in &mut recorder.cpus {
        cpu.ring.read(|one, two| {
            let bytes = [one, two].concat();
            all.extend(Records::new(&bytes, &head.sources).map_while(Result::ok));
        });
    }
    all.sort_by_key(|record| record.time);
    let (mut pairs, mut times) = (Pairs::default(), Vec::new());
    for record in all {
        if let Told::Sample(sample) = record.told
            && let Some((_, Some(end))) = pairs.add(sample)
        {
            times.push(end.ns as f64);
        }
    }
    (times.len() >= ENOUGH).then(|| middle(&mut times))
}
