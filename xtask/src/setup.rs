//! Installs what the tests and the demo need. What cannot be installed is named; the tests skip it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::{self, cargo, command, is_installed, output, root, target};

/// Programs and the Debian packages that hold them.
const PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("cc", "libc6-dev"),
    ("make", "make"),
    ("git", "git"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("sqlite3", "sqlite3"),
    ("identify", "imagemagick"),
    ("zstd", "zstd"),
    ("stress-ng", "stress-ng"),
    ("valgrind", "valgrind"),
    ("musl-gcc", "musl-tools"),
    ("pg_ctlcluster", "postgresql"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("strip", "binutils"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("mmdebstrap", "mmdebstrap"),
    ("tmux", "tmux"),
];

/// Names of a Python that the pinned packages have wheels for, best first.
const PYTHONS: &[&str] = &["python3.11", "python3.12", "python3.13", "python3", "/usr/bin/python3"];

/// Installs everything; quick when it is there already.
pub fn run() -> Result<()> {
    packages();
    components();
    if let Err(error) = python() {
        eprintln!("setup: no Python packages, tests that need them are skipped: {error:#}");
    }
    Ok(())
}

/// apt-get, patient with another one that is at work, and with the network.
fn apt(args: &[&str]) -> Result<()> {
    let patience = ["-q", "-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3"];
    shell::run(command("apt-get").args(patience).args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn install(package: &str) -> Result<()> {
    apt(&["install", "-y", "--no-install-recommends", package])
}

fn packages() {
    let missing = || PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    let mut wanted: Vec<&str> = missing().map(|(_, package)| *package).collect();
    wanted.dedup();
    if wanted.is_empty() {
        return;
    }
    if !is_root() || !is_installed("apt-get") {
        eprintln!("setup: not installed, and only root with apt-get could: {}", wanted.join(" "));
        return;
    }
    if let Err(error) = apt(&["update"]) {
        eprintln!("setup: {error:#}");
    }
    // One at a time: one that cannot be had does not keep the others away.
    for package in wanted {
        if let Err(error) = install(package) {
            eprintln!("setup: {error:#}");
        }
    }
    for (program, package) in missing() {
        eprintln!("setup: still missing: {program} (package {package})");
    }
}

/// What checks the code, where the toolchain came without.
fn components() {
    let has = |name: &str| output(cargo(name).arg("--version")).is_ok();
    if !(has("fmt") && has("clippy"))
        && let Err(error) = shell::run(command("rustup").args(["component", "add", "rustfmt", "clippy"]))
    {
        eprintln!("setup: {error:#}");
    }
}

/// Whether this user may do everything.
pub fn is_root() -> bool {
    output(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The Python of the virtual environment.
pub fn python_path() -> PathBuf {
    target().join("venv/bin/python")
}

fn python() -> Result<()> {
    let wanted = root().join("tests/requirements.txt");
    let wanted_text = std::fs::read_to_string(&wanted).context("tests/requirements.txt")?;
    let venv = target().join("venv");
    let stamp = venv.join("installed.txt");
    if python_path().exists() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted_text) {
        return Ok(());
    }
    make_venv(&venv)?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    shell::run(command(python_path()).args(pip).arg(&wanted))?;
    std::fs::write(stamp, wanted_text)?;
    Ok(())
}

fn make_venv(venv: &Path) -> Result<()> {
    // A name in the search path may be a mere placeholder, and Debian's python3 comes without what this takes.
    let create = || {
        PYTHONS
            .iter()
            .filter(|name| is_installed(name))
            .any(|python| shell::run(command(python).args(["-m", "venv", "--clear"]).arg(venv)).is_ok())
    };
    if !create() && is_root() && is_installed("apt-get") {
        install("python3-venv")?;
        create();
    }
    ensure!(python_path().exists(), "no virtual environment could be made");
    Ok(())
}
