//! One interface for all that zeroes memory: instructions of this processor, the kernel, a device beside it.
//!
//! States: idle, working. `submit` makes an idle driver work, `poll` lets it go on and makes it idle again with
//! [`Poll::Done`] or [`Poll::Failed`], `cancel` makes it idle at once. The extent belongs to the driver while it
//! works. Afterwards it is zero if it was done, and has any content otherwise.

use crate::{SLOT, Span};

use super::Engine;
#[cfg(feature = "dsa")]
use super::dsa::{Dsa, Queue};

/// How far a driver has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Ask again.
    Working,
    /// All of it is zero.
    Done,
    /// It will not be: the content is unknown.
    Failed,
}

/// What zeroing costs: something for each extent, and something for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds before the first byte.
    pub setup_ns: u32,
    /// Picoseconds for each byte.
    pub byte_ps: u32,
}

impl Cost {
    /// Nanoseconds for `bytes` bytes.
    pub fn ns(self, bytes: usize) -> u64 {
        self.setup_ns as u64 + bytes as u64 * self.byte_ps as u64 / 1000
    }
}

/// Whatever zeroes memory, one extent at a time.
pub trait Driver {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// What it promises to cost.
    fn cost(&self) -> Cost;
    /// The most bytes that it takes at a time.
    fn largest(&self) -> usize;
    /// Starts zeroing; whether it took the extent.
    ///
    /// # Safety
    /// The memory must be writable, and the driver's alone until it is idle again. It is aligned to 64 bytes, as is
    /// its length; to pages for [`Engine::Kernel`].
    unsafe fn submit(&mut self, extent: Span) -> bool;
    /// Lets it go on.
    fn poll(&mut self) -> Poll;
    /// Stops it. When this returns nothing is written any more.
    fn cancel(&mut self);
}

/// Bytes that [`Processor`] zeroes between two looks at whether it is to go on.
pub const PIECE: usize = SLOT;

/// An [`Engine`] as a driver: it works while it is polled, a piece at a time.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    engine: Engine,
    promised: Cost,
    rest: Span,
}

impl Processor {
    /// Of an engine that is available, with what it was seen to cost.
    pub fn new(engine: Engine, promised: Cost) -> Self {
        debug_assert!(engine.is_available());
        Self { engine, promised, rest: Span::new(0, 0) }
    }

    /// The engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// What is left to be zeroed; all before it is zero already.
    pub fn rest(&self) -> Span {
        self.rest
    }
}

impl Driver for Processor {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn cost(&self) -> Cost {
        self.promised
    }

    fn largest(&self) -> usize {
        usize::MAX
    }

    unsafe fn submit(&mut self, extent: Span) -> bool {
        debug_assert!(self.rest.is_empty(), "still at work");
        self.rest = extent;
        true
    }

    fn poll(&mut self) -> Poll {
        let piece = Span::new(self.rest.start, self.rest.bytes().min(PIECE));
        // SAFETY: what was submitted is writable, the driver's alone and aligned, and so is its part.
        if !unsafe { self.engine.zero(piece.start as *mut u8, piece.bytes()) } {
            self.cancel();
            return Poll::Failed;
        }
        self.rest.start = piece.end;
        if self.rest.is_empty() { Poll::Done } else { Poll::Working }
    }

    fn cancel(&mut self) {
        self.rest = Span::new(0, 0);
    }
}

/// Whatever was picked for an extent.
#[derive(Debug)]
pub enum Picked {
    /// An engine that works while it is polled.
    Processor(Processor),
    /// The device.
    #[cfg(feature = "dsa")]
    Device(Dsa<&'static Queue>),
}

macro_rules! either {
    ($picked:expr, $driver:ident => $call:expr) => {
        match $picked {
            Picked::Processor($driver) => $call,
            #[cfg(feature = "dsa")]
            Picked::Device($driver) => $call,
        }
    };
}

impl Picked {
    /// The driver of an engine that is available, with what it was seen to cost.
    pub fn new(engine: Engine, promised: Cost) -> Self {
        #[cfg(feature = "dsa")]
        if let Some(queue) = Queue::opened().filter(|_| engine.is_device()) {
            return Self::Device(Dsa::new(queue));
        }
        Self::Processor(Processor::new(engine, promised))
    }

    /// The engine.
    pub fn engine(&self) -> Engine {
        match self {
            Self::Processor(driver) => driver.engine(),
            #[cfg(feature = "dsa")]
            Self::Device(_) => Engine::Dsa,
        }
    }

    /// What is left to be zeroed; all before it is zero already.
    pub fn rest(&self) -> Span {
        either!(self, driver => driver.rest())
    }
}

impl Driver for Picked {
    fn name(&self) -> &'static str {
        either!(self, driver => driver.name())
    }

    fn cost(&self) -> Cost {
        either!(self, driver => driver.cost())
    }

    fn largest(&self) -> usize {
        either!(self, driver => driver.largest())
    }

    unsafe fn submit(&mut self, extent: Span) -> bool {
        // SAFETY: the caller's promise.
        either!(self, driver => unsafe { driver.submit(extent) })
    }

    fn poll(&mut self) -> Poll {
        either!(self, driver => driver.poll())
    }

    fn cancel(&mut self) {
        either!(self, driver => driver.cancel())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    fn memory(pieces: usize) -> (Vec<u8>, Span) {
        let bytes = pieces * PIECE;
        let mut memory = vec![7u8; bytes + 64];
        let start = memory.as_mut_ptr() as usize;
        (memory, Span::new(start.next_multiple_of(64), bytes))
    }

    fn driver() -> Processor {
        Processor::new(Engine::StringStore, Cost { setup_ns: 10, byte_ps: 500 })
    }

    #[test]
    fn it_works_piece_by_piece_while_it_is_polled() {
        let (memory, extent) = memory(2);
        let mut driver = driver();
        // SAFETY: the vector's own memory, whole lines.
        assert!(unsafe { driver.submit(extent) });
        assert_eq!(driver.poll(), Poll::Working);
        assert_eq!(memory.iter().filter(|b| **b == 0).count(), PIECE);
        assert_eq!(driver.rest(), Span::new(extent.start + PIECE, PIECE));
        assert_eq!(driver.poll(), Poll::Done);
        assert_eq!(memory.iter().filter(|b| **b == 0).count(), 2 * PIECE);
    }

    #[test]
    fn what_is_cancelled_is_left_alone() {
        let (memory, extent) = memory(2);
        let mut driver = driver();
        // SAFETY: the vector's own memory, whole lines.
        assert!(unsafe { driver.submit(extent) });
        driver.cancel();
        assert!(memory.iter().all(|b| *b == 7));
        // SAFETY: the same; it is idle again.
        assert!(unsafe { driver.submit(Span::new(extent.start, 64)) });
        assert_eq!(driver.poll(), Poll::Done);
        assert_eq!(memory.iter().filter(|b| **b == 0).count(), 64);
    }

    #[test]
    fn the_cost_has_a_part_for_each_extent_and_one_for_each_byte() {
        assert_eq!(driver().cost().ns(0), 10);
        assert_eq!(driver().cost().ns(1000), 510);
    }
}
