//! Zeroing in the background, as the processor or a device does it, piece by piece.

use super::{Job, raw};
use crate::units::{SLOT, Span};
use crate::zero::driver::{Driver, Picked, Poll};
use crate::zero::{COLD, Engine};

/// The largest job.
pub const BYTES: usize = 8 * SLOT;
/// How long a device is left alone between two looks: it zeroes a piece in a tenth of a millisecond.
const DEVICE_LOOK_NS: u64 = 20_000;
/// The longest such sleep where a processor is free: timers of threads like this one are 50 µs late.
const DEVICE_SLEEP_NS: u64 = 100_000;

/// As [`super::Sys::scrub_start`].
pub fn start(span: Span) -> Option<Job> {
    debug_assert!(span.bytes() <= BYTES);
    let engine = COLD.pick();
    let mut driver = Picked::new(engine, COLD.promised(engine));
    // SAFETY: whole pages of the engine's own, which no other thread reaches until the job has ended.
    let taken = unsafe { driver.submit(span) };
    let since_ns = clock_ns(engine);
    let job = Job { span, is_hole: false, done: 0, dropped: false, slept_ns: 0, driver, since_ns };
    if taken {
        Some(job)
    } else {
        end(job);
        None
    }
}

/// The clock for an engine's speed: the thread's processor time, or for a device the time that passes.
fn clock_ns(engine: Engine) -> u64 {
    if engine.is_device() { raw::now_ns() } else { raw::thread_ns() }
}

/// As [`super::Sys::scrub_poll`].
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

/// As [`super::Sys::scrub_end`].
pub fn end(mut job: Job) {
    job.driver.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::sys::Sys;
    use crate::sys::linux::{self, Linux};

    #[test]
    fn what_was_done_is_zero_and_the_rest_is_as_it_was() {
        let whole = linux::reserve(BYTES, SLOT).unwrap();
        assert!(Linux.open_first(whole));
        // SAFETY: memory of the test's own, readable while it looks.
        let bytes = |span: Span| unsafe { core::slice::from_raw_parts(span.start as *const u8, span.bytes()) };
        for polls in [1, usize::MAX] {
            Linux.poison(whole);
            let mut job = start(whole).expect("memory of ours");
            let _ = (0..polls).find(|_| poll(&mut job) != Poll::Working);
            let done = job.done;
            end(job);
            assert_eq!(done, if polls == 1 { SLOT } else { BYTES });
            assert!(bytes(Span::new(whole.start, done)).iter().all(|b| *b == 0));
            let rest = Span { start: whole.start + done, end: whole.end };
            assert!(bytes(rest).iter().step_by(PAGE).all(|b| *b != 0));
        }
    }
}
