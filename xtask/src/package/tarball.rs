//! The tarball: the files below a folder of their own, and a script that copies them to a prefix.

use std::path::PathBuf;

use anyhow::Result;

use super::{VERSION, copy, date, empty, place, stage};
use crate::shell::{command, root, run};

/// Makes it.
pub fn make() -> Result<PathBuf> {
    let name = format!("faultless-{VERSION}-linux-x86_64");
    let prefix = stage::prefix("prefix")?;
    let around = empty("tarball")?;
    std::fs::rename(prefix, around.join(&name))?;
    copy(&root().join("packaging/install.sh"), &around.join(&name).join("install.sh"))?;
    let made = place()?.join(format!("{name}.tar.gz"));
    let owner = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+w,go=rX"];
    let tar = &mut command("tar");
    tar.args(owner).arg(format!("--mtime=@{}", date())).arg("-C").arg(&around);
    // gzip's own header has no time.
    run(tar.args(["-I", "gzip -9n", "-cf"]).arg(&made).arg(&name))?;
    Ok(made)
}
