//! What the program was seen to do, also before the engine starts.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::runtime::engine;
use crate::runtime::inside::aside;

/// Whether the program will watch memory by a userfaultfd.
static WATCHES: AtomicBool = AtomicBool::new(false);

/// The program will watch memory by a userfaultfd. When this returns, no thread of ours looks at its memory any more.
pub fn watch() {
    WATCHES.store(true, Ordering::SeqCst);
    if let Some(engine) = engine::settled() {
        aside(|| engine.space.note_watch());
    }
}

/// Whether the kernel may use memory of the program's by a ring, or later than in a call.
static REFERENCES: AtomicBool = AtomicBool::new(false);

/// The kernel may use any memory of the program's from now on, also after the program is done with it.
pub fn refer() {
    if !references() {
        REFERENCES.store(true, Ordering::SeqCst);
    }
    if let Some(engine) = engine::settled() {
        aside(|| engine.space.reference_all());
    }
}

/// Whether it may, as far as known.
pub fn references() -> bool {
    REFERENCES.load(Ordering::SeqCst)
}

/// Whether it will, as far as known.
pub fn watches() -> bool {
    WATCHES.load(Ordering::SeqCst)
}

/// Whether the program has refused huge pages itself.
static REFUSES_HUGE: AtomicBool = AtomicBool::new(false);

/// It refuses huge pages somewhere, or may do so.
pub fn refuse_huge() {
    REFUSES_HUGE.store(true, Ordering::Relaxed);
}

/// Whether it does.
pub fn refuses_huge() -> bool {
    REFUSES_HUGE.load(Ordering::Relaxed)
}
