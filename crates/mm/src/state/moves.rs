//! Why frames do not move, and why frames that come back are not kept. Each word is set once, and stays so.

use faultless_base::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What stands against moves.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Whether this process cannot move pages.
    refused: AtomicBool,
    /// Whether the program looks which pages are resident.
    looked_at: AtomicBool,
    /// Whether the kernel may use frames of the program's without a mapping, in ways that a move does not see.
    referenced: AtomicBool,
}

impl Moves {
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    pub(crate) fn are_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    pub(crate) fn note_look(&self) {
        self.looked_at.store(true, Relaxed);
    }

    pub(crate) fn are_looked_at(&self) -> bool {
        self.looked_at.load(Relaxed)
    }

    pub(crate) fn note_reference(&self) {
        self.referenced.store(true, Relaxed);
    }

    pub(crate) fn are_referenced(&self) -> bool {
        self.referenced.load(Relaxed)
    }
}
