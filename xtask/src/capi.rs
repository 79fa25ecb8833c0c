//! The C library, installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell::{cargo, root, run, target};

const LIBRARIES: &[&str] = &["libfaultless_c.so", "libfaultless_c.a"];

/// Builds it, and puts library, header and pkg-config file below the prefix that is given.
pub fn install(args: &[String]) -> Result<()> {
    let prefix = args.first().context("where to? cargo xtask capi PREFIX")?;
    let prefix = std::path::absolute(prefix)?;
    run(&mut cargo("build --release -p faultless-capi"))?;
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    fs::create_dir_all(lib.join("pkgconfig"))?;
    fs::create_dir_all(&include)?;
    for name in LIBRARIES {
        copy(&target().join("release").join(name), &lib.join(name))?;
    }
    let source = root().join("crates/capi");
    copy(&source.join("include/faultless.h"), &include.join("faultless.h"))?;
    let text = fs::read_to_string(source.join("faultless.pc.in"))?
        .replace("@PREFIX@", &prefix.to_string_lossy())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(lib.join("pkgconfig/faultless.pc"), text)?;
    println!("installed below {}; PKG_CONFIG_PATH={}/pkgconfig", prefix.display(), lib.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display())).map(drop)
}
