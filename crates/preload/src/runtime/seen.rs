//! What the program was seen to do, also before the engine starts.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::runtime::engine;

/// Whether the program will look what of its memory is resident.
static LOOKS: AtomicBool = AtomicBool::new(false);

/// The program will look what of its memory is resident.
pub fn look() {
    LOOKS.store(true, Ordering::SeqCst);
    if let Some(engine) = engine::settled() {
        engine.space.note_look();
    }
}

/// Whether the kernel may refer to memory of the program's by a ring.
static REFERENCES: AtomicBool = AtomicBool::new(false);

/// The kernel may refer to any memory of the program's from now on.
pub fn refer() {
    if !references() {
        REFERENCES.store(true, Ordering::SeqCst);
    }
    if let Some(engine) = engine::settled() {
        engine.space.reference_all();
    }
}

/// Whether it may, as far as known.
pub fn references() -> bool {
    REFERENCES.load(Ordering::SeqCst)
}

/// Whether it will, as far as known.
pub fn looks() -> bool {
    LOOKS.load(Ordering::SeqCst)
}
