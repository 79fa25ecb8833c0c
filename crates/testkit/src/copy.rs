//! Copies of programs, to be run from elsewhere.

use std::path::Path;
use std::process::Command;

/// Copies a program or library. Another process writes the copy. A file that this process has open for writing is
/// also open in a child that another test forks at that moment. It cannot be executed until that child has called
/// exec (`ETXTBSY`).
///
/// # Panics
/// If that fails.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success(), "{} cannot be copied to {}", from.display(), to.display());
}
