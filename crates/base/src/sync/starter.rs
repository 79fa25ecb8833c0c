//! A service that one thread starts for all of its process, and that may be called off before.

use super::atomic::{AtomicI32, AtomicU8, Ordering};

/// Nobody has begun.
const NEW: u8 = 0;
/// A thread is at it.
const BEGUN: u8 = 1;
const ON: u8 = 2;
/// A thread is at it in vain.
const CALLED_OFF: u8 = 3;
const OFF: u8 = 4;

/// Whether something was started, and by which process.
pub struct Starter {
    /// The process whose thread became the starter; 0: none has.
    process: AtomicI32,
    state: AtomicU8,
}

impl Starter {
    const_unless_loom! {
        /// Nothing is started.
        #[expect(clippy::new_without_default, reason = "for a static")]
        pub fn new() -> Self {
            Self { process: AtomicI32::new(0), state: AtomicU8::new(NEW) }
        }
    }

    /// Whether it was started; then all that `build` did is seen.
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) == ON
    }

    /// Whether it will never be started.
    pub fn is_off(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), CALLED_OFF | OFF)
    }

    /// Whether a thread of this process is at it, also in vain. `process` says which this is.
    pub fn is_under_way(&self, process: impl FnOnce() -> i32) -> bool {
        matches!(self.state.load(Ordering::Acquire), BEGUN | CALLED_OFF)
            && self.process.load(Ordering::Relaxed) == process()
    }

    /// Has the first caller `build` it, which may fail, and `undo` it where it was called off meanwhile. Other callers go
    /// on without it, because that thread may have stopped. A fork may also have left that thread behind in the
    /// middle of it; then the child goes without for good. Whether it was started.
    pub fn start(&self, process: i32, build: impl FnOnce() -> bool, undo: impl FnOnce()) -> bool {
        match self.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if self.step(NEW, BEGUN) => {
                let end = if build() { ON } else { OFF };
                if !self.step(BEGUN, end) {
                    undo();
                    self.state.store(OFF, Ordering::Release);
                }
            }
            Err(starter) if starter != process => {
                let off = |state| (state != ON).then_some(OFF);
                let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, off);
            }
            Ok(_) | Err(_) => {}
        }
        self.is_on()
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes sure that it will never be started; false when it was already. A thread may be at it still, to undo it.
    pub fn call_off(&self) -> bool {
        self.step(NEW, OFF) || self.step(BEGUN, CALLED_OFF) || self.is_off()
    }
}
