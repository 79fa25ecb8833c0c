//! A file that the kernel swaps to, for as long as a part of the bench takes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::programs::find::done;
use crate::undo::Undo;

/// It goes with this value, and the kernel brings back what is there.
pub struct SwapFile(#[expect(dead_code, reason = "what is undone when it goes")] Undo);

/// A file without holes.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    const EACH: usize = 1 << 20;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for _ in 0..bytes.div_ceil(EACH as u64) {
        file.write_all(&[0; EACH])?;
    }
    file.sync_all()
}

impl SwapFile {
    /// One of this length in this folder, which the kernel uses before any other. The error says why there is none.
    pub fn on(dir: &Path, bytes: u64) -> Result<Self, String> {
        let path = dir.join("swap");
        make(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        done(Command::new("mkswap").arg(&path))?;
        let on = || done(Command::new("swapon").args(["--priority", "32767"]).arg(&path));
        let undone = path.clone();
        let off = move || match done(Command::new("swapoff").arg(&undone)) {
            Ok(()) => _ = fs::remove_file(&undone),
            Err(error) => eprintln!("faultless: the kernel still swaps to {}: {error}", undone.display()),
        };
        Undo::of(on, off).map(Self)
    }
}
