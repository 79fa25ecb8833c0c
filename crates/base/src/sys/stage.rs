//! Zeroing in the background, as the kernel and the processor do it.
//!
//! Memory that can be accessed is zeroed where it is. Memory that must stay out of reach at its own address is moved to
//! the stage by page tables, zeroed there and moved back: a stale pointer never gets at memory that will be handed out
//! as zero. One job at a time uses the stage.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::linux::{self, Linux};
use super::{Door, Job, Sys, raw};
use crate::units::{SLOT, Span};
use crate::zero::driver::{Driver, Picked, Poll};
use crate::zero::{COLD, Engine, HOT};

/// Where it is; 0 before first use.
static STAGE: AtomicUsize = AtomicUsize::new(0);
/// The largest job.
pub const BYTES: usize = 8 * SLOT;
/// What the second-level cache of every processor of the last ten years holds.
const INSIDE: usize = 128 << 10;
/// How long a device is left alone between two looks: it zeroes a piece in a tenth of a millisecond.
const DEVICE_LOOK_NS: u64 = 20_000;
/// What such a sleep takes at most where a processor is free: timers of threads like this one are 50 µs late.
const DEVICE_SLEEP_NS: u64 = 100_000;

/// Reserves the stage, if it is not there; its address.
pub fn reserve() -> Option<usize> {
    let known = STAGE.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    let at = linux::reserve(BYTES, SLOT)?.start;
    STAGE.store(at, Ordering::Release);
    Some(at)
}

/// Gives it back.
pub fn retire() {
    let stage = STAGE.swap(0, Ordering::AcqRel);
    if stage != 0 {
        Linux.release(Span::new(stage, BYTES));
    }
}

/// As [`Sys::scrub_start`].
pub fn start(span: Span, door: Door) -> Option<Job> {
    debug_assert!(span.bytes() <= BYTES);
    let place = match door {
        Door::Open => span,
        Door::Closed => {
            let staged = Span::new(reserve()?, span.bytes());
            if !Linux.migrate(span, staged.start) {
                return None;
            }
            if !Linux.open(staged) {
                // The content stays behind: the place in the arena is empty now, and so must the stage be.
                Linux.reset(staged);
                return None;
            }
            staged
        }
    };
    let engine = COLD.pick();
    let mut driver = Picked::new(engine, COLD.promised(engine));
    // SAFETY: whole pages of the engine's own, which nobody else reaches until the job has ended.
    let taken = unsafe { driver.submit(place) };
    let since_ns = clock_ns(engine);
    let job = Job { span, door, is_hole: false, done: 0, dropped: false, slept_ns: 0, place, driver, since_ns };
    if taken {
        Some(job)
    } else {
        end(job);
        None
    }
}

/// What an engine's speed is measured by: the processor's time that it takes, or that of a device.
fn clock_ns(engine: Engine) -> u64 {
    if engine.is_device() { raw::now_ns() } else { raw::thread_ns() }
}

/// As [`Sys::scrub_poll`].
pub fn poll(job: &mut Job) -> Poll {
    let (engine, before) = (job.engine(), job.driver.rest().bytes());
    if !engine.is_device() {
        job.since_ns = clock_ns(engine);
    }
    let poll = job.driver.poll();
    if poll == Poll::Failed {
        return poll;
    }
    let bytes = before - job.driver.rest().bytes();
    if bytes > 0 {
        let now = clock_ns(engine);
        job.done += bytes;
        job.dropped |= !job.is_hole && COLD.took(engine, bytes, now - job.since_ns).is_some();
        job.since_ns = now;
    } else {
        // The device works by itself.
        let start = raw::now_ns();
        raw::sleep_ns(DEVICE_LOOK_NS);
        job.slept_ns += (raw::now_ns() - start).min(DEVICE_SLEEP_NS) as usize;
    }
    poll
}

/// As [`Sys::scrub_end`].
pub fn end(mut job: Job) -> bool {
    job.driver.cancel();
    if job.done >= INSIDE && !HOT.is_settled() {
        try_hot(Span::new(job.place.start, INSIDE));
    }
    match job.door {
        Door::Open => true,
        Door::Closed => {
            let back = Linux.close(job.place) && Linux.migrate(job.place, job.span.start);
            if !back {
                Linux.reset(job.place);
            }
            back
        }
    }
}

/// Finds out which engine is best for memory that is wanted at once, on memory that is zero already.
fn try_hot(span: Span) {
    let zero = |engine: Engine| {
        let start = raw::now_ns();
        // SAFETY: part of a job's memory, which nobody else reaches.
        let done = unsafe { engine.zero(span.start as *mut u8, span.bytes()) };
        done.then(|| raw::now_ns() - start)
    };
    // Now it is in the cache.
    zero(Engine::Memset);
    while !HOT.is_settled() {
        let engine = HOT.pick();
        match zero(engine) {
            Some(ns) => _ = HOT.took(engine, span.bytes(), ns),
            None => _ = HOT.failed(engine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    /// All of a job, by as many polls as `polls` allows; what it did.
    fn scrub(span: Span, door: Door, polls: usize) -> usize {
        let mut job = start(span, door).expect("the kernel moves memory of ours");
        for _ in 0..polls {
            if poll(&mut job) != Poll::Working {
                break;
            }
        }
        let done = job.done;
        assert!(end(job));
        done
    }

    fn bytes(span: Span) -> &'static [u8] {
        // SAFETY: memory of the test's own, readable while it looks.
        unsafe { core::slice::from_raw_parts(span.start as *const u8, span.bytes()) }
    }

    /// One test, because there is one stage.
    #[test]
    fn what_was_done_is_zero_and_the_rest_is_as_it_was() {
        let whole = linux::reserve(BYTES, SLOT).unwrap();
        assert!(Linux.open_first(whole));
        for door in [Door::Open, Door::Closed] {
            for polls in [1, usize::MAX] {
                Linux.poison(whole);
                assert!(door == Door::Open || Linux.close(whole));
                let done = scrub(whole, door, polls);
                assert_eq!(done, if polls == 1 { SLOT } else { BYTES });
                assert!(Linux.open(whole));
                assert!(bytes(Span::new(whole.start, done)).iter().all(|b| *b == 0));
                let rest = Span { start: whole.start + done, end: whole.end };
                assert!(bytes(rest).iter().step_by(PAGE).all(|b| *b != 0), "{door:?}");
            }
        }
        assert!(HOT.is_settled());
    }
}
