//! The end-to-end tests on programs that `faultless run` has seen before, with a warm reserve: `cargo xtask seen`. All
//! of them run twice in a row, and once with notes that are random bytes. Not part of `cargo xtask test`.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::check::{conclude, release};
use crate::shell::{self, cargo, command, target};

const SIZE: &str = "1G";

/// Runs them; `args` go to `cargo test`.
pub fn run(args: &[String]) -> Result<()> {
    release()?;
    let place = Place::new()?;
    shell::run(place.faultless("warm start --force --keep 1d --size").arg(SIZE))?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos().to_string();
    let passes = [("first", "kept"), ("again", "kept"), (&*format!("random notes of seed {seed}"), &*seed)];
    let ends = passes.map(|(name, notes)| {
        let mut test = cargo("test --package faultless-e2e --no-fail-fast");
        let mut tests = Tests::default();
        let end = tests.run(place.equip(test.args(args)).env("FAULTLESS_SEEN", notes));
        (format!("{name}: {} passed, {} failed", tests.passed, tests.failed.len()), tests.failed, end)
    });
    shell::run(&mut place.faultless("warm status"))?;
    let shown = shell::output(&mut place.faultless("profile show"))?;
    eprintln!("{}", shown.lines().next().unwrap_or_default());
    ends.iter().flat_map(|(_, failed, _)| failed).for_each(|failed| eprintln!("{failed}"));
    conclude(&ends.map(|(name, _, end)| (name, end)))
}

/// A directory with the socket of a reserve, and with notes. Both go at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("faultless-seen-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }

    /// Has a command know them.
    fn equip<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let socket = self.0.join("reserve/socket");
        command.env("FAULTLESS_WARM", socket).env("XDG_CACHE_HOME", self.0.join("cache"))
    }

    fn faultless(&self, words: &str) -> Command {
        let mut command = command(target().join("release/faultless"));
        self.equip(command.args(words.split(' ')));
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = shell::run(&mut self.faultless("warm stop"));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is said of tests.
#[derive(Default)]
struct Tests {
    passed: usize,
    failed: Vec<String>,
}

impl Tests {
    /// Runs them, and lets through what they print.
    fn run(&mut self, command: &mut Command) -> Result<()> {
        let words = shell::show(command);
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| words.clone())?;
        for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            self.look_at(line);
        }
        let status = child.wait()?;
        ensure!(status.success(), "{words}: {status}");
        Ok(())
    }

    fn look_at(&mut self, line: String) {
        let is_test = line.starts_with("test ");
        self.passed += usize::from(is_test && line.ends_with(" ... ok"));
        if is_test && line.ends_with(" ... FAILED") {
            self.failed.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_those_that_fail_are_named() {
        let mut tests = Tests::default();
        let lines =
            ["running 3 tests", "test a ... ok", "test b ... FAILED", "test c ... ignored", "test result: ok."];
        lines.into_iter().for_each(|line| tests.look_at(line.into()));
        assert_eq!((tests.passed, &tests.failed[..]), (1, &["test b ... FAILED".to_string()][..]));
    }
}
