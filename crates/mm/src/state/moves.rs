//! Why frames do not move, and why frames that come back are not kept.

use faultless_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What is learnt once, and stays so.
#[derive(Debug, Default)]
pub(crate) struct Note(AtomicBool);

impl Note {
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// What stands against moves.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// This process cannot move pages.
    pub refused: Note,
    /// The program looks which pages are resident.
    pub looked_at: Note,
    /// The program has a userfaultfd.
    pub watched: Note,
    /// How long threads of the program have waited until frames could be taken out of what it watches.
    pub waited_ns: AtomicU64,
    /// The kernel may use frames of the program's without a mapping, in ways that a move does not see.
    pub referenced: Note,
}
