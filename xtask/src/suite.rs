//! The tests of the engine and of the library on other kernels, in QEMU. `cargo xtask kernels KERNEL…`; not part of
//! `cargo xtask test`.
//!
//! These are the tests of the crates that speak to the kernel, with few cases of those that are drawn by chance: all of
//! it is slow there. The guest has no compiler, no Python, and no other file system than memory.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{Image, Machine, kernels};
use crate::shell::{cargo, output, root};

/// The crates.
const CRATES: &str = "--package faultless-base --package faultless";
/// Tests that have more to do, and come to the end of their time there.
const TOO_LONG: [&str; 3] = ["many", "soak", "swap"];
/// What the guest says of each that failed, and at its end.
const FAILED: &str = "guest: failed: ";
const ENDED: &str = "guest: ended";

/// A program with tests.
pub struct Tests {
    pub file: PathBuf,
    /// Crate and target.
    name: String,
    /// Where they expect to run, from the root.
    dir: PathBuf,
}

/// Builds the tests that `selection` names.
pub fn built(selection: &str) -> Result<Vec<Tests>> {
    let built = output(&mut cargo(&format!("test --no-run --message-format=json {selection}")))?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["profile"]["test"] == Value::Bool(true))
        .filter_map(|message| Some((message["executable"].as_str()?.to_owned(), message)))
        .map(|(file, message)| {
            let manifest = PathBuf::from(message["manifest_path"].as_str().context("a manifest")?);
            let dir = manifest.parent().context("a directory")?.strip_prefix(root())?.to_owned();
            let name = format!("{}/{}", dir.display(), message["target"]["name"].as_str().unwrap_or_default());
            Ok(Tests { file: file.into(), name, dir })
        })
        .collect()
}

/// Builds, boots, and says what failed, with these kernels or the distribution's.
pub fn run(args: &[String]) -> Result<()> {
    let image = Image::new("tests")?;
    let mut commands = "export PROPTEST_CASES=8\n".to_owned();
    let is_short = |tests: &Tests| !TOO_LONG.iter().any(|name| tests.name.ends_with(&format!("/{name}")));
    for tests in built(CRATES)?.into_iter().filter(is_short) {
        let (name, dir) = (&tests.name, tests.dir.display());
        image.add(&tests.file, name)?;
        commands += &format!(
            "busybox mkdir -p /{dir}; cd /{dir}; echo guest: {name}
             busybox timeout 300 /{name} > /tmp/said 2>&1 || {{ echo {FAILED}{name}; busybox cat /tmp/said; }}
             busybox grep -E '^(test result|skipped)' /tmp/said\n"
        );
    }
    let guest = image.pack(&format!("{commands}echo {ENDED}\n"))?;
    let machine = Machine { nodes: 2, cpus_of_node: 1, mib_of_node: 2048 };
    let mut failed = Vec::new();
    for kernel in kernels(args)? {
        let said = machine.boot(&kernel, &guest, 1800)?;
        ensure!(said.contains(ENDED), "the guest with {} has not run all of them", kernel.display());
        let names = said.lines().filter_map(|line| line.trim_end().strip_prefix(FAILED));
        failed.extend(names.map(|name| format!("{name} with {}", kernel.display())));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
