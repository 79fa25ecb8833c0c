//! What the tests need from the machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::library::{root, target};

/// Programs that a machine may lack even where everything that `cargo xtask setup` installs has to be there.
/// These are large packages, so it does not install them, and other programs are like them.
const OPTIONAL: &[(&str, &str)] = &[
    ("clang", "gcc and rustc are compilers, too"),
    ("ffmpeg", "identify works on images, too"),
    ("gdb", "its test has compared the core dump by then"),
];

pub use faultless_testkit::skip;

/// A program of the machine by its name, if there is one.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// A program that a test is about. Without it the test is skipped, and fails where `CI=true`.
pub fn need(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        missing(name, OPTIONAL.iter().any(|(optional, _)| *optional == name));
    }
    found
}

fn missing(what: &str, optional: bool) {
    let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!ci || optional, "{what} is missing; `cargo xtask setup` installs it");
    faultless_testkit::skip_optional(format_args!("{what} is not installed"));
}

/// Python with the packages of tests/requirements.txt.
pub fn python() -> Option<PathBuf> {
    let python = target().join("venv/bin/python");
    if !python.exists() {
        missing("Python with the packages in tests/requirements.txt", false);
        return None;
    }
    Some(python)
}

/// A Python that can name its functions for tools: CPython 3.12 and later, of the machine or of its user.
pub fn naming_python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<_> = std::env::split_paths(&path).collect();
    let versions = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let versions = versions.and_then(|versions| std::fs::read_dir(versions).ok()).into_iter().flatten().flatten();
    dirs.extend(versions.map(|entry| entry.path().join("bin")));
    let can_name = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import sys; sys.activate_stack_trampoline('perf')"]);
        command.output().is_ok_and(|out| out.status.success())
    };
    let found = dirs.iter().map(|dir| dir.join("python3")).filter(|python| python.is_file()).find(can_name);
    if found.is_none() {
        missing("Python 3.12 or later, with names for perf", true);
    }
    found
}

/// A script of this crate.
pub fn script(name: &str) -> PathBuf {
    root().join("crates/e2e/scripts").join(name)
}

/// A directory of its own, removed when it is dropped; other users may look into it.
pub fn scratch() -> TempDir {
    let open = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("faultless-").permissions(open).tempdir().expect("a temporary directory")
}

/// Compiles a program of this crate into `dir`.
pub fn compile(dir: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let cc = need("cc")?;
    let name = Path::new(Path::new(source).file_name().expect("a file"));
    let program = dir.join(name.with_extension(if flags.contains(&"-shared") { "so" } else { "" }));
    let folder = root().join("crates/e2e/programs");
    let result = Command::new(cc)
        .args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(folder.join(source))
        .args(flags)
        .output()
        .expect("the compiler runs");
    assert!(result.status.success(), "{source}: {}", String::from_utf8_lossy(&result.stderr));
    Some(program)
}
