//! Packages, for people who do not build faultless: `cargo xtask package wheel|deb|tarball|check`.
//!
//! All three hold the same files below a prefix ([`stage`]). The command finds its library by its own place in there
//! (`crates/cli/src/run/options.rs`). So none of them knows the directory of what is built. [`tried`] installs
//! each into a place that has nothing else, and runs a program there.

mod container;
mod deb;
mod floor;
mod install;
mod stage;
mod tarball;
mod tried;
mod wheel;

pub use install::install;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::setup;
use crate::shell::{command, output, target};

/// The version of everything.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes the packages that are named and prints where they are; `check` makes all and tries each.
pub fn run(args: &[String]) -> Result<()> {
    if args.is_empty() {
        bail!("which? cargo xtask package wheel|deb|tarball|check");
    }
    for kind in args {
        let made = match kind.as_str() {
            "wheel" => setup::run().and_then(|()| wheel::make())?,
            "deb" => deb::make()?,
            "tarball" => tarball::make()?,
            "check" => {
                check()?;
                continue;
            }
            other => bail!("there is no package {other:?}: wheel, deb or tarball"),
        };
        println!("{}", made.display());
    }
    Ok(())
}

/// Makes all of them, installs each, and runs a program there. Who is not root makes them, and uses the wheel and what
/// `cargo xtask install` installs.
pub fn check() -> Result<()> {
    setup::run()?;
    tried::wheel(&wheel::make()?)?;
    tried::install()?;
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    if !setup::is_root() && !is_ci {
        let made = [deb::make()?, tarball::make()?];
        eprintln!("not tried, because only root can: {}", made.map(|made| made.display().to_string()).join(", "));
        return Ok(());
    }
    let clean = tried::Clean::new()?;
    clean.deb(&deb::make()?)?;
    clean.tarball(&tarball::make()?)
}

/// Where packages are made.
fn place() -> Result<PathBuf> {
    let place = target().join("package");
    std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(place)
}

/// An empty directory there.
fn empty(name: &str) -> Result<PathBuf> {
    let dir = place()?.join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    Ok(dir)
}

/// Copies a file to a place of which the folder may not be there yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    std::fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display())).map(drop)
}

/// The time that files in packages have, in seconds of Unix: that of the last commit, so that the same commit makes the
/// same package.
fn date() -> String {
    let log = output(command("git").args(["-c", "safe.directory=*", "log", "-1", "--format=%ct"]));
    log.map(|text| text.trim().to_owned()).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "0".into())
}
