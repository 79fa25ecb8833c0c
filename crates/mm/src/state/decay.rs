//! When the background thread last looked for reasons to give memory back. It alone reads and writes these words.

use faultless_base::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How often pressure is looked for.
const PRESSURE_MS: u32 = 50;

/// The clock of [`crate::background::decay`].
#[derive(Debug, Default)]
pub(crate) struct Decay {
    /// When memory pressure was last looked for, in ms.
    pressure_ms: AtomicU32,
    /// When what lies between blocks was last seen to fit into the budget, in ms.
    fitted_ms: AtomicU32,
}

impl Decay {
    /// Whether it is time to look for pressure; the caller does then.
    pub(crate) fn looks_for_pressure(&self, now_ms: u32) -> bool {
        let is_time = now_ms.wrapping_sub(self.pressure_ms.load(Relaxed)) >= PRESSURE_MS;
        if is_time {
            self.pressure_ms.store(now_ms, Relaxed);
        }
        is_time
    }

    /// What lies between blocks fits into the budget.
    pub(crate) fn note_fit(&self, now_ms: u32) {
        self.fitted_ms.store(now_ms, Relaxed);
    }

    /// For how many ms it has not.
    pub(crate) fn above_for(&self, now_ms: u32) -> u32 {
        now_ms.wrapping_sub(self.fitted_ms.load(Relaxed))
    }
}
