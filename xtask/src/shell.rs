//! Running other programs from the root of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// The directory of what is built.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A program, to be run in the root.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// cargo, with arguments separated by spaces.
pub fn cargo(args: &str) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split_whitespace());
    command
}

/// Shows a command: its words.
pub fn show(command: &Command) -> String {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let words = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("+ {words}");
    words
}

/// Shows a command, runs it, and fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let words = show(command);
    let status = command.status().with_context(|| words.clone())?;
    if !status.success() {
        bail!("{words}: {status}");
    }
    Ok(())
}

/// What a command prints; fails if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{:?}: {}: {}", command.get_program(), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
