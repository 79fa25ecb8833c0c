//! Intel's Data Streaming Accelerator: zeroing by a device beside the processor, through the work queues that it has
//! for user space.
//!
//! Written against its specification (`descriptor.rs`) and Linux's driver `idxd` (`queue.rs`); it was tried on a
//! simulated queue, not on a device.
//!
//! A request is one piece of the extent. At a page fault the device has done a part of the piece. The processor
//! zeroes the rest of the missing page, which makes it present, and the device goes on behind it. Where faults are
//! many, or the queue stays full, the processor zeroes the rest of the extent. A request cannot be called back from
//! the device: to cancel is to wait for its end. If the device does not come to an end, the queue is taken away from
//! it. Then the kernel waits until no request is under way.

mod descriptor;
mod queue;
#[cfg(test)]
mod tests;

pub use descriptor::{Descriptor, Outcome, Record};
pub use queue::{Queue, close, forget, is_open, open};

use super::driver::{Cost, Driver, PIECE, Poll};
use super::{stream, string_store};
use crate::{PAGE, Span};

/// A request that takes this long has a device that hangs: 2 MiB take a tenth of a millisecond.
const HUNG_NS: u64 = 100_000_000;
/// Page faults in an extent, from which on it is left to the processor.
const FAULTS: u32 = 16;
/// How often in a row the queue may be full, before the extent is left to the processor.
const FULL: u32 = 32;

/// What became of the attempt to give a request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The device has it.
    Taken,
    /// There was no room for it.
    Full,
    /// The queue is no longer there.
    Refused,
}

/// Where requests go in, with their record, a clock and a pause.
pub trait Portal {
    /// The most bytes of a request; whole pages, one at least.
    fn largest(&self) -> usize;
    /// Gives a request to the device.
    ///
    /// # Safety
    /// The memory that it names must be writable, and the device's alone until the request has an outcome, or the
    /// portal is closed.
    unsafe fn send(&self, request: &Descriptor) -> Sent;
    /// Where the device writes the outcome.
    fn record(&self) -> &Record;
    /// Gives the queue up. When this returns nothing is written any more.
    fn close(&self);
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;
    /// Lets the device, and others, get on.
    fn relax(&self);
}

/// The device as a driver.
#[derive(Debug)]
pub struct Dsa<P> {
    portal: P,
    /// All before it is zero.
    rest: Span,
    /// The part of `rest` that the device has; empty: none.
    piece: Span,
    sent_ns: u64,
    faults: u32,
    full: u32,
}

impl<P: Portal> Dsa<P> {
    /// Behind an open portal that no other driver uses meanwhile.
    pub fn new(portal: P) -> Self {
        Self { portal, rest: Span::new(0, 0), piece: Span::new(0, 0), sent_ns: 0, faults: 0, full: 0 }
    }

    /// What is left to be zeroed; all before it is zero already.
    pub fn rest(&self) -> Span {
        self.rest
    }

    fn is_overdue(&self) -> bool {
        self.portal.now_ns().saturating_sub(self.sent_ns) > HUNG_NS
    }

    /// Whether the request that is under way comes to an end.
    fn ends(&self) -> bool {
        while self.portal.record().outcome() == Outcome::Pending {
            if self.is_overdue() {
                return false;
            }
            self.portal.relax();
        }
        true
    }

    fn send(&mut self) -> Poll {
        let piece = Span::new(self.rest.start, self.rest.bytes().min(PIECE).min(self.portal.largest()));
        if self.faults >= FAULTS || self.full >= FULL {
            // SAFETY: a part of what was submitted, whole lines.
            unsafe { stream(piece.start as *mut u8, piece.bytes()) };
            return self.advance(piece.bytes());
        }
        self.portal.record().clear();
        self.sent_ns = self.portal.now_ns();
        // SAFETY: a part of what was submitted; `poll` and `cancel` wait for its outcome.
        match unsafe { self.portal.send(&Descriptor::fill(piece, self.portal.record())) } {
            Sent::Taken => {
                self.piece = piece;
                self.full = 0;
                Poll::Working
            }
            Sent::Full => {
                self.full += 1;
                Poll::Working
            }
            Sent::Refused => self.fail(),
        }
    }

    /// `bytes` more bytes are zero, and the device has nothing.
    fn advance(&mut self, bytes: usize) -> Poll {
        self.piece = Span::new(0, 0);
        self.rest.start += bytes;
        if self.rest.is_empty() { Poll::Done } else { Poll::Working }
    }

    /// A page was missing behind `bytes` bytes of the piece: the processor zeroes the rest of the page.
    fn go_on_behind(&mut self, bytes: usize) -> Poll {
        self.faults += 1;
        let at = (self.piece.start + bytes.min(self.piece.bytes() - 1)) & !63;
        let end = (at & !(PAGE - 1)) + PAGE;
        let page = Span { start: at, end: end.min(self.piece.end) };
        // SAFETY: a part of what was submitted, and the device has ended its request.
        unsafe { string_store(page.start as *mut u8, page.bytes()) };
        self.advance(page.end - self.piece.start)
    }

    fn fail(&mut self) -> Poll {
        self.cancel();
        Poll::Failed
    }
}

impl<P: Portal> Driver for Dsa<P> {
    fn name(&self) -> &'static str {
        super::Engine::Dsa.name()
    }

    fn cost(&self) -> Cost {
        super::COLD.promised(super::Engine::Dsa)
    }

    fn largest(&self) -> usize {
        usize::MAX
    }

    unsafe fn submit(&mut self, extent: Span) -> bool {
        debug_assert!(self.rest.is_empty(), "still at work");
        (self.rest, self.faults, self.full) = (extent, 0, 0);
        true
    }

    fn poll(&mut self) -> Poll {
        if self.piece.is_empty() {
            return self.send();
        }
        match self.portal.record().outcome() {
            Outcome::Pending if self.is_overdue() => self.fail(),
            Outcome::Pending => Poll::Working,
            Outcome::Done => self.advance(self.piece.bytes()),
            Outcome::Fault(bytes) => self.go_on_behind(bytes),
            Outcome::Failed(_) => self.fail(),
        }
    }

    fn cancel(&mut self) {
        if !self.piece.is_empty() && !self.ends() {
            self.portal.close();
        }
        (self.rest, self.piece) = (Span::new(0, 0), Span::new(0, 0));
    }
}

/// Has the device zero memory, and waits for it; whether it did.
///
/// # Safety
/// The memory must be writable, the caller's alone, and aligned to 64 bytes, as its length; no other request is under
/// way.
pub unsafe fn fill(at: *mut u8, bytes: usize) -> bool {
    if bytes == 0 {
        return true;
    }
    let Some(queue) = Queue::opened() else { return false };
    let mut driver = Dsa::new(queue);
    // SAFETY: the caller's promise.
    let taken = unsafe { driver.submit(Span::new(at as usize, bytes)) };
    taken
        && loop {
            match driver.poll() {
                Poll::Done => break true,
                Poll::Failed => break false,
                Poll::Working => core::hint::spin_loop(),
            }
        }
}
