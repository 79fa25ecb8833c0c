//! What the tests of the command share.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod recording;
pub mod warm;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use faultless_testkit::limit::limit;

/// The preload library as it is released, built if need be.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_BIN_EXE_faultless")).ancestors().nth(2).unwrap();
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--workspace", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.expect("cargo").success(), "the preload library does not build");
        target.join("release/libfaultless_preload.so")
    })
}

/// `faultless bench` with `args`, built if need be.
pub fn bench<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_BIN_EXE_faultless")).ancestors().nth(2).unwrap();
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "faultless-bench", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.expect("cargo").success(), "the benches do not build");
    });
    let mut command = faultless(["bench"]);
    command.args(args);
    command
}

/// A directory for one test, removed at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("faultless-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// How many files are in it.
    pub fn entries(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `faultless run` with `args`, without settings of the caller's.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = faultless(["run"]);
    command.args(args);
    command
}

/// `faultless` with `args`, without settings of the caller's, and with no signal ignored. Signals are ignored in a
/// job without a terminal (`nohup`, a job in the background).
pub fn faultless<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let library = library();
    limit();
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_faultless")]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAULTLESS_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env("XDG_CONFIG_HOME", "/dev/null").env("XDG_CACHE_HOME", "/dev/null");
    // Nor with what the caller's daemon holds.
    command.env("FAULTLESS_WARM", "");
    command.env("FAULTLESS_LIBRARY", library).args(args);
    command
}

/// `outer` with the words of `inner` at its end, and with its environment.
pub fn within(mut outer: Command, inner: &Command) -> Command {
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Whether this is root, who can be another user. Otherwise the test says that it is skipped.
pub fn is_root() -> bool {
    let is = rustix::process::getuid().is_root();
    if !is {
        faultless_testkit::skip("only root can be another user");
    }
    is
}

/// As text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
