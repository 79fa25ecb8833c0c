//! What has to pass before a change is taken.

use std::fmt::Display;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::shell::{self, cargo, command, target};
use crate::watched::{Failed, run};
use crate::{deny, package, pages, setup, site, structure};

/// Everything, to the end even if something fails; what failed, and what was said of it, is said last.
pub fn test() -> Result<()> {
    setup::run()?;
    let tests = || run(&mut cargo("test --workspace --no-fail-fast"));
    let steps: [(&str, &dyn Fn() -> Result<()>); 9] = [
        ("lint", &lint),
        ("release build", &release),
        ("tests", &tests),
        ("python", &python),
        ("packages", &package::check),
        ("models", &models),
        ("docs", &docs),
        ("site", &site::run),
        ("dependencies", &deny::run),
    ];
    let ends = steps.map(|(name, step)| {
        let start = Instant::now();
        let end = step();
        (format!("{name} ({} s)", start.elapsed().as_secs()), end)
    });
    for (name, end) in &ends {
        if let Some(failed) = end.as_ref().err().and_then(|error| error.downcast_ref::<Failed>()) {
            eprintln!("\n{name}:\n{}", failed.said);
        }
    }
    conclude(&ends)
}

/// Says how each step ended; all of them have to end well.
pub fn conclude<N: Display>(ends: &[(N, Result<()>)]) -> Result<()> {
    for (name, end) in ends {
        match end {
            Ok(()) => eprintln!("{name}: ok"),
            Err(error) => eprintln!("{name}: failed: {error:#}"),
        }
    }
    ensure!(ends.iter().all(|(_, end)| end.is_ok()), "something failed, or did not run: see above");
    Ok(())
}

/// The models of what runs at the same time, each under the checker that it is for.
pub fn models() -> Result<()> {
    for checker in ["loom", "shuttle"] {
        let models = format!("--package faultless-models --features {checker}");
        run(&mut cargo(&format!("clippy {models} --all-targets -- -D warnings")))?;
        run(&mut cargo(&format!("test {models} --no-fail-fast")))?;
    }
    // A driver that the library has only on request.
    run(&mut cargo("test --package faultless-base --features dsa --lib"))
}

/// The features of the library at the same time, under memory pressure, for a number of seconds.
pub fn soak(args: &[String]) -> Result<()> {
    const SECONDS: &str = "900";
    let seconds = args.first().map_or(SECONDS, String::as_str);
    ensure!(seconds.parse::<u64>().is_ok(), "soak takes a number of seconds, not {seconds}");
    let mut test = cargo("test --package faultless --test soak -- --nocapture");
    shell::run(test.env("FAULTLESS_SOAK_SECONDS", seconds))
}

/// The Python package as a user installs it, and its tests.
pub fn python() -> Result<()> {
    let python = setup::python_path();
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "./python[test]"];
    run(command(&python).args(pip))?;
    run(command(&python).args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]))
}

/// Formatting, clippy, structure.
pub fn lint() -> Result<()> {
    run(&mut cargo("fmt --all --check"))?;
    structure::run()?;
    run(&mut cargo("clippy --workspace --all-targets -- -D warnings"))?;
    // The library without huge pages of files.
    run(&mut cargo("clippy --package faultless --no-default-features -- -D warnings"))
}

/// The command and the library, as they are used.
pub fn release() -> Result<()> {
    run(&mut cargo("build --release --workspace"))
}

/// The pages, and the API documentation without a warning.
pub fn docs() -> Result<()> {
    let wrong = pages::violations(&structure::sources()?);
    wrong.iter().for_each(|wrong| eprintln!("docs: {wrong}"));
    ensure!(wrong.is_empty(), "{} places in the documentation are wrong", wrong.len());
    run(cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// The benchmark.
pub fn bench(args: &[String]) -> Result<()> {
    setup::run()?;
    release()?;
    let python = target().join("venv/bin/python");
    shell::run(
        command(target().join("release/faultless"))
            .args(["bench", "run"])
            .env("FAULTLESS_PYTHON", python)
            .args(args),
    )
}
