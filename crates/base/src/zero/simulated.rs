//! A device beside the processor that does not exist: what zeroing costs the processor when something else does it.
//!
//! It has a latency and a bandwidth, and takes one extent at a time. The Altix had such a device, its block transfer
//! engine; the prezeroing patches of 2005 left the zeroing to it. An extent is zero when its time has come, and costs
//! the waiting thread no more than asking. The processor stores the zeroes in the end. Only submitting and asking are
//! the work that a device would leave to it.

use crate::Span;

use super::driver::{Cost, Driver, Poll};
use super::string_store;

/// The device.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    cost: Cost,
    clock: fn() -> u64,
    /// Asks after which it fails; `None`: it does not.
    fails_after: Option<u32>,
    asked: u32,
    extent: Span,
    done_at: u64,
}

impl Simulated {
    /// A device of such a cost, by a clock in nanoseconds.
    pub fn new(cost: Cost, clock: fn() -> u64) -> Self {
        Self { cost, clock, fails_after: None, asked: 0, extent: Span::new(0, 0), done_at: 0 }
    }

    /// The same that fails when it is asked for the `asks`th time.
    pub fn failing_after(self, asks: u32) -> Self {
        Self { fails_after: Some(asks), ..self }
    }

    /// Whether its time has come: the next poll stores the zeroes.
    pub fn is_due(&self) -> bool {
        (self.clock)() >= self.done_at
    }
}

impl Driver for Simulated {
    fn name(&self) -> &'static str {
        "simulated device"
    }

    fn cost(&self) -> Cost {
        self.cost
    }

    fn largest(&self) -> usize {
        2 << 30
    }

    unsafe fn submit(&mut self, extent: Span) -> bool {
        if !self.extent.is_empty() || extent.bytes() > self.largest() {
            return false;
        }
        self.extent = extent;
        self.asked = 0;
        self.done_at = (self.clock)() + self.cost.ns(extent.bytes());
        true
    }

    fn poll(&mut self) -> Poll {
        self.asked += 1;
        if self.fails_after.is_some_and(|asks| self.asked >= asks) {
            self.cancel();
            return Poll::Failed;
        }
        if !self.is_due() {
            return Poll::Working;
        }
        // SAFETY: what was submitted is writable and the driver's alone.
        unsafe { string_store(self.extent.start as *mut u8, self.extent.bytes()) };
        self.extent = Span::new(0, 0);
        Poll::Done
    }

    fn cancel(&mut self) {
        self.extent = Span::new(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::vec;

    use super::*;

    const COST: Cost = Cost { setup_ns: 100, byte_ps: 1000 };

    #[test]
    fn it_is_done_when_its_time_has_come_and_not_before() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let mut device = Simulated::new(COST, || NOW.load(Ordering::Relaxed));
        let mut memory = vec![7u8; 64];
        let extent = Span::new(memory.as_mut_ptr() as usize, 64);
        // SAFETY: the vector's own memory.
        unsafe {
            assert!(device.submit(extent));
            assert!(!device.submit(extent), "it takes one extent at a time");
        }
        NOW.store(163, Ordering::Relaxed);
        assert_eq!(device.poll(), Poll::Working);
        assert!(memory.iter().all(|b| *b == 7));
        NOW.store(164, Ordering::Relaxed);
        assert_eq!(device.poll(), Poll::Done);
        assert!(memory.iter().all(|b| *b == 0));
    }

    #[test]
    fn a_failure_and_a_cancel_leave_it_ready_for_the_next_extent() {
        let mut device = Simulated::new(COST, || 0).failing_after(2);
        let mut memory = vec![7u8; 64];
        let extent = Span::new(memory.as_mut_ptr() as usize, 64);
        // SAFETY: the vector's own memory, here and below.
        assert!(unsafe { device.submit(extent) });
        assert_eq!((device.poll(), device.poll()), (Poll::Working, Poll::Failed));
        // SAFETY: as above.
        assert!(unsafe { device.submit(extent) });
        device.cancel();
        // SAFETY: as above.
        assert!(unsafe { device.submit(extent) });
        assert!(memory.iter().all(|b| *b == 7));
    }
}
