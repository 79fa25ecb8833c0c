//! Dependencies: what deny.toml allows of licences, crates and sources.

use std::path::PathBuf;

use anyhow::Result;

use crate::shell::{cargo, output, target};
use crate::watched;

/// What checks them. Built from source: an optimised build would take longer than the check.
const TOOL: &str = "cargo-deny";
const VERSION: &str = "0.20.2";
/// Advisories are left out: their list is a repository on the network.
const CHECKED: &str = "licenses bans sources";

/// Installs the tool below the directory of what is built, if need be, and checks.
pub fn run() -> Result<()> {
    let tool = install()?;
    let mut check = cargo(&format!("deny --locked check {CHECKED}"));
    let dirs = tool.parent().into_iter().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    check.env("PATH", std::env::join_paths(dirs.chain(std::env::split_paths(&path)))?);
    watched::run(&mut check)
}

fn install() -> Result<PathBuf> {
    let root = target().join("tools");
    let tool = root.join("bin").join(TOOL);
    let has =
        output(crate::shell::command(&tool).arg("--version")).is_ok_and(|said| said.trim().ends_with(VERSION));
    if !has {
        let install = format!("install --quiet --locked --debug {TOOL}@{VERSION} --root");
        watched::run(cargo(&install).arg(&root).arg("--target-dir").arg(root.join("build")))?;
        // Most of a gibibyte.
        let _ = std::fs::remove_dir_all(root.join("build"));
    }
    Ok(tool)
}
