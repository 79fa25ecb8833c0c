//! What background steps say of themselves.

/// What a background step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something; call again.
    Worked,
    /// Nothing now; call again after this many microseconds.
    Wait(u64),
    /// Nothing, and nothing will come up unless the program does something.
    Idle,
}

/// Of two outcomes, picks the earlier call.
pub(crate) fn sooner(a: Progress, b: Progress) -> Progress {
    match (a, b) {
        (Progress::Worked, _) | (_, Progress::Worked) => Progress::Worked,
        (Progress::Wait(a), Progress::Wait(b)) => Progress::Wait(a.min(b)),
        (Progress::Idle, other) | (other, Progress::Idle) => other,
    }
}
