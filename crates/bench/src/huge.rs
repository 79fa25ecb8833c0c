//! The contender "huge pages always": the system's setting, changed for the duration of one run.

use std::io;
use std::path::Path;

use super::machine::{self, THP};
use super::setting::{Changed, Setting};

/// The right to change the setting.
pub struct Huge(Setting);

impl Huge {
    /// The error says why there is no such contender.
    pub fn new() -> Result<Huge, String> {
        let read = || machine::huge_page_mode().ok_or("this kernel has no transparent huge pages".into());
        Setting::new(Path::new(THP), read).map(Huge)
    }

    /// Sets the mode until the returned guard is dropped.
    pub fn always(&self) -> io::Result<Changed<'_>> {
        self.0.set("always")
    }
}
