//! What is built here, installed below a prefix: the files of the tarball, by its script, and the benches.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{copy, stage};
use crate::shell::{command, root, run, target};

/// The benches, below the prefix: beside the command, which looks for them there.
const BENCHES: &str = "bin/faultless-bench";

/// `cargo xtask install PREFIX`.
pub fn install(args: &[String]) -> Result<()> {
    let prefix = args.first().context("where to? cargo xtask install PREFIX")?;
    let staged = below(&std::path::absolute(prefix)?)?;
    println!("to remove it: {}/install.sh --remove {prefix}", staged.display());
    Ok(())
}

/// Installs it below `prefix`; where the files were copied from, with the script that also removes them.
pub fn below(prefix: &Path) -> Result<PathBuf> {
    let staged = stage::prefix("install")?;
    copy(&target().join("release/faultless-bench"), &staged.join(BENCHES))?;
    run(command("strip").arg("--strip-all").arg(staged.join(BENCHES)))?;
    run(command(staged.join(BENCHES)).arg("generate").arg(staged.join("share/man/man1")))?;
    copy(&root().join("packaging/install.sh"), &staged.join("install.sh"))?;
    run(command(staged.join("install.sh")).arg(prefix))?;
    Ok(staged)
}
