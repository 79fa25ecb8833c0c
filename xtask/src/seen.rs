//! The end-to-end tests on programs that `faultless run` has seen before, with a warm reserve: `cargo xtask seen`. All
//! of them run twice in a row, and once with notes that are random bytes. `--pass NAME…` chooses passes, the other
//! arguments go to `cargo test`. Not part of `cargo xtask test`.

use std::fmt;
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

/// Runs them.
pub fn run(args: &[String]) -> Result<()> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let (passes, args) = split(args, seed)?;
    release()?;
    let place = Place::new()?;
    shell::run(place.faultless("warm start --force --keep 1d --size").arg(SIZE))?;
    let ends = passes.into_iter().map(|pass| {
        let mut test = cargo("test --package faultless-e2e --no-fail-fast");
        let mut tests = Tests::default();
        let end = tests.run(place.equip(test.args(&args)).env("FAULTLESS_SEEN", pass.notes()));
        (format!("{pass}: {} passed, {} failed", tests.passed, tests.failed.len()), tests.failed, end)
    });
    let ends: Vec<_> = ends.collect();
    shell::run(&mut place.faultless("warm status"))?;
    let shown = shell::output(&mut place.faultless("profile show"))?;
    eprintln!("{}", shown.lines().next().unwrap_or_default());
    ends.iter().flat_map(|(_, failed, _)| failed).for_each(|failed| eprintln!("{failed}"));
    conclude(&ends.into_iter().map(|(name, _, end)| (name, end)).collect::<Vec<_>>())
}

/// One time through all tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    First,
    Again,
    /// Random bytes of this seed stand in place of all notes.
    Random(u32),
}

impl Pass {
    /// As the tests take it.
    fn notes(self) -> String {
        match self {
            Self::First | Self::Again => "kept".into(),
            Self::Random(seed) => seed.to_string(),
        }
    }

    /// `first`, `again`, `random` of this seed, or `random=SEED`.
    fn named(name: &str, seed: u32) -> Option<Self> {
        match (name, name.strip_prefix("random=")) {
            ("first", _) => Some(Self::First),
            ("again", _) => Some(Self::Again),
            ("random", _) => Some(Self::Random(seed)),
            (_, seed) => seed?.parse().ok().map(Self::Random),
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Again => f.write_str("again"),
            Self::Random(seed) => write!(f, "random notes of seed {seed}"),
        }
    }
}

/// The passes that `--pass` names, all where it names none, and the other arguments.
fn split(args: &[String], seed: u32) -> Result<(Vec<Pass>, Vec<String>)> {
    let (mut passes, mut others, mut args) = (Vec::new(), Vec::new(), args.iter());
    while let Some(arg) = args.next() {
        if arg == "--pass" {
            let name = args.next().context("--pass needs a name")?;
            let pass = Pass::named(name, seed);
            passes.push(pass.with_context(|| format!("{name} is no pass: first, again, random, random=SEED"))?);
        } else {
            others.push(arg.clone());
        }
    }
    if passes.is_empty() {
        passes = vec![Pass::First, Pass::Again, Pass::Random(seed)];
    }
    Ok((passes, others))
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
    fn passes_are_chosen_by_their_names() {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        let of = |text: &str| split(&words(text), 7).ok();
        let all = vec![Pass::First, Pass::Again, Pass::Random(7)];
        assert_eq!(of("--test tools -- zstd"), Some((all, words("--test tools -- zstd"))));
        let chosen = vec![Pass::Random(5), Pass::First];
        assert_eq!(of("--pass random=5 --test tools --pass first"), Some((chosen, words("--test tools"))));
        assert_eq!([of("--pass second"), of("--pass random=x"), of("--pass")], [None, None, None]);
        assert_eq!(Pass::Random(5).notes(), "5");
    }

    #[test]
    fn tests_are_counted_and_those_that_fail_are_named() {
        let mut tests = Tests::default();
        let lines =
            ["running 3 tests", "test a ... ok", "test b ... FAILED", "test c ... ignored", "test result: ok."];
        lines.into_iter().for_each(|line| tests.look_at(line.into()));
        assert_eq!((tests.passed, &tests.failed[..]), (1, &["test b ... FAILED".to_string()][..]));
    }
}
