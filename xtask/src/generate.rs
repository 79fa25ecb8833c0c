//! Manual pages, completions for shells and docs/reference.md, from the tables of counters and knobs.

use anyhow::{Context, Result};

use crate::shell::{cargo, root, run, target};

/// Makes them all: in share/ below the directory of what is built, and docs/reference.md.
pub fn generate() -> Result<()> {
    let share = target().join("share");
    run(cargo("run --quiet -p faultless-cli -- generate").arg(&share))?;
    run(cargo("run --quiet -p faultless-bench -- generate").arg(share.join("man/man1")))?;
    std::fs::copy(share.join("reference.md"), root().join("docs/reference.md")).context("docs/reference.md")?;
    println!("docs/reference.md; man and completions in {}", share.display());
    Ok(())
}
