//! A service that one thread starts for all of its process, and that may be called off before.

use super::atomic::{AtomicI32, AtomicU8, Ordering};

const NEW: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

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
        self.state.load(Ordering::Acquire) == OFF
    }

    /// Has the first caller `build` it, which may fail. Other callers go on without it meanwhile, because that thread
    /// may have stopped. A fork may also have left that thread behind in the middle of it; then the child goes
    /// without for good. Whether it was started.
    pub fn start(&self, process: i32, build: impl FnOnce() -> bool) -> bool {
        match self.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let end = if !self.is_off() && build() { ON } else { OFF };
                let _ = self.state.compare_exchange(NEW, end, Ordering::AcqRel, Ordering::Relaxed);
            }
            Err(starter) if starter != process => {
                let _ = self.state.compare_exchange(NEW, OFF, Ordering::AcqRel, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        self.is_on()
    }

    /// Makes sure that it will never be started; false when it was already.
    pub fn call_off(&self) -> bool {
        self.state.compare_exchange(NEW, OFF, Ordering::AcqRel, Ordering::Acquire) != Err(ON)
    }
}
