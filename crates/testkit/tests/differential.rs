//! The program `ops`, plain and with the preload library, must print the same and find nothing wrong.
//!
//! `FAULTLESS_SEEDS=1000` tries more seeds than the default, `FAULTLESS_SEEDS=70..90` just these.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Settings of the library, one of them for each seed beside the default ones.
const SETTINGS: &[&str] = &[
    "FAULTLESS_CHECK=1",
    "FAULTLESS_MAPPED=1",
    "FAULTLESS_BUDGET=64M",
    "FAULTLESS_BUDGET=0",
    "FAULTLESS_MALLOC_THRESHOLD=64K",
    "FAULTLESS_SCRUB=0",
    "FAULTLESS_AHEAD=0",
    "FAULTLESS_SCRUB=0 FAULTLESS_AHEAD=0",
    "FAULTLESS_CHECK=1 FAULTLESS_BUDGET=6M FAULTLESS_MALLOC_THRESHOLD=64K",
    "FAULTLESS_CHECK=1 FAULTLESS_BUDGET=2G FAULTLESS_MALLOC_THRESHOLD=64K",
    "FAULTLESS_CHECK=1 FAULTLESS_MAPPED=1 FAULTLESS_AHEAD=0 FAULTLESS_MALLOC_THRESHOLD=64K",
];
const SEEDS: u64 = 16;
const STEPS: &str = "150";

/// The library, built with the assertions of debug builds.
fn library() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        Path::new(env!("CARGO_BIN_EXE_ops")).ancestors().nth(2).expect("a target directory").join("checked");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "faultless-preload", "--target-dir"])
        .arg(&target)
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .current_dir(root)
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the library does not build");
    target.join("release/libfaultless_preload.so")
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("FAULTLESS_SEEDS") else { return 1..SEEDS + 1 };
    let number = |s: &str| s.parse::<u64>().expect("FAULTLESS_SEEDS is a number, or two with .. between");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 1..number(&text) + 1,
    }
}

fn run(seed: u64, threads: bool, settings: &str, library: Option<&Path>) -> Output {
    // One that hangs is a difference, too.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "110", env!("CARGO_BIN_EXE_ops")]);
    command.args([&seed.to_string(), STEPS]);
    command.args(threads.then_some("threads"));
    command.envs(settings.split_whitespace().filter_map(|s| s.split_once('=')));
    command.envs(library.map(|l| ("LD_PRELOAD", l)));
    command.output().expect("ops runs")
}

/// What differs between two runs, if anything does.
fn difference(plain: &Output, other: &Output) -> Option<String> {
    let text = |o: &Output| String::from_utf8_lossy(&o.stdout).into_owned();
    let (a, b) = (text(plain), text(other));
    if a == b && other.status.success() && plain.status.success() {
        return None;
    }
    let line = a.lines().zip(b.lines()).take_while(|(x, y)| x == y).count();
    Some(format!(
        "line {}\n  plain: {}\n  preloaded: {}\nends: {} and {}\n{}",
        line + 1,
        a.lines().nth(line).unwrap_or("(end)"),
        b.lines().nth(line).unwrap_or("(end)"),
        plain.status,
        other.status,
        String::from_utf8_lossy(&other.stderr)
    ))
}

/// Runs every seed plain, with the default settings and with one of the others.
fn compare(threads: bool, seeds: Range<u64>) {
    let library = library();
    assert!(library.exists(), "{} is missing", library.display());
    let mut failures = Vec::new();
    for seed in seeds {
        let plain = run(seed, threads, "", None);
        for settings in ["", SETTINGS[seed as usize % SETTINGS.len()]] {
            let preloaded = run(seed, threads, settings, Some(&library));
            if let Some(what) = difference(&plain, &preloaded) {
                failures.push(format!("seed {seed}, threads {threads}, settings '{settings}': {what}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} runs differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_program_sees_no_difference() {
    compare(false, seeds());
}

#[test]
fn a_program_with_threads_sees_no_difference() {
    let seeds = seeds();
    compare(true, seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(4));
}
