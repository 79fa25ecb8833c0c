//! What every package holds, as it lies below a prefix such as `/usr`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{copy, empty};
use crate::shell::{cargo, command, root, run, target};

/// The command, below the prefix.
pub const COMMAND: &str = "bin/faultless";
/// The preload library, below the prefix: where the command looks for it.
pub const LIBRARY: &str = "lib/faultless/libfaultless_preload.so";
/// Documents, below the prefix.
pub const DOCS: &str = "share/doc/faultless";
/// Units of systemd, below the documents.
pub const UNITS: &str = "examples/systemd";

/// Builds what is packed and puts it below `NAME` in the place of packages; its path.
pub fn prefix(name: &str) -> Result<PathBuf> {
    // The same command as for users and tests, so that no second variant is built.
    run(&mut cargo("build --release --workspace"))?;
    let prefix = empty(name)?;
    let release = target().join("release");
    // What is not needed to run: a third of the command, and half of the library.
    for (built, place, cut) in
        [("faultless", COMMAND, "--strip-all"), ("libfaultless_preload.so", LIBRARY, "--strip-unneeded")]
    {
        let to = prefix.join(place);
        copy(&release.join(built), &to)?;
        run(command("strip").arg(cut).arg(&to))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(if place == COMMAND { 0o755 } else { 0o644 }))?;
    }
    generated(&release.join("faultless"), &prefix)?;
    documents(&prefix.join(DOCS))?;
    Ok(prefix)
}

/// Manual pages and completions, which the command itself writes.
fn generated(faultless: &Path, prefix: &Path) -> Result<()> {
    let made = empty("generated")?;
    run(command(faultless).arg("generate").arg(&made))?;
    for page in fs::read_dir(made.join("man/man1"))? {
        let page = page?;
        // The benches are a program of their own, which is in no package.
        if page.file_name() != "faultless-bench.1" {
            copy(&page.path(), &prefix.join("share/man/man1").join(page.file_name()))?;
        }
    }
    let completions = [
        ("faultless.bash", "share/bash-completion/completions/faultless"),
        ("_faultless", "share/zsh/site-functions/_faultless"),
        ("faultless.fish", "share/fish/vendor_completions.d/faultless.fish"),
    ];
    completions.iter().try_for_each(|(name, to)| copy(&made.join("completions").join(name), &prefix.join(to)))
}

/// The pages that README links to, with their places beside each other, and the examples.
fn documents(to: &Path) -> Result<()> {
    const PAGES: [&str; 6] =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"];
    PAGES.iter().try_for_each(|page| copy(&root().join(page), &to.join(page)))?;
    for (folder, below) in [
        ("docs", "docs"),
        ("docs/results", "docs/results"),
        ("packaging/examples", "examples"),
        ("packaging/systemd/user", "examples/systemd/user"),
        ("packaging/systemd/system", "examples/systemd/system"),
    ] {
        let from = root().join(folder);
        for file in fs::read_dir(&from).with_context(|| from.display().to_string())? {
            let file = file?;
            if file.file_type()?.is_file() {
                copy(&file.path(), &to.join(below).join(file.file_name()))?;
            }
        }
    }
    Ok(())
}
