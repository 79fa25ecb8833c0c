//! The wheel: the Python module as maturin builds it, and beside it the command, the preload library, manual pages and
//! completions, which pip puts below the prefix of the environment.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::floor::{self, Version};
use super::{VERSION, empty, stage};
use crate::setup;
use crate::shell::{command, output, root, run};

/// Makes it.
pub fn make() -> Result<PathBuf> {
    let python = setup::python_path();
    ensure!(python.exists(), "a wheel needs Python with the packages in tests/requirements.txt");
    let module = |name: &str| {
        let mut command = command(&python);
        command.args(["-m", name]);
        command
    };
    let built = empty("module")?;
    // The tag is found below, for the module and what comes beside it together.
    let build = ["build", "--release", "--quiet", "--compatibility", "linux", "--out"];
    run(module("maturin").args(build).arg(&built).arg("-m").arg(root().join("python/Cargo.toml")))?;
    let plain = only_in(&built)?;
    let open = empty("wheel")?;
    run(module("wheel").arg("unpack").arg("--dest").arg(&open).arg(&plain))?;
    let tree = only_in(&open)?;
    add(&stage::prefix("prefix")?, &tree)?;
    let done = empty("done")?;
    run(module("wheel").arg("pack").arg("--dest-dir").arg(&done).arg(&tree))?;
    let tag = tag(&tree)?;
    let tags = ["tags", "--remove", "--platform-tag", &tag];
    output(module("wheel").args(tags).arg(only_in(&done)?))?;
    let wheel = only_in(&done)?;
    let made = super::place()?.join(wheel.file_name().context("a wheel has a name")?);
    fs::rename(wheel, &made)?;
    Ok(made)
}

/// The platform: the oldest C library that is claimed.
fn tag(tree: &Path) -> Result<String> {
    let data = tree.join(data());
    let module = tree.join("faultless/_faultless.abi3.so");
    let command = data.join("scripts/faultless");
    let library = data.join("data").join(stage::LIBRARY);
    let Version(major, minor) = floor::claimed(&[&module, &command, &library])?;
    Ok(format!("manylinux_{major}_{minor}_x86_64"))
}

/// The folder of a wheel from which pip takes what is no module.
fn data() -> String {
    format!("faultless-{VERSION}.data")
}

/// Puts what lies below `prefix` where pip puts it below that of an environment.
fn add(prefix: &Path, tree: &Path) -> Result<()> {
    let data = tree.join(data());
    fs::create_dir_all(data.join("scripts"))?;
    fs::rename(prefix.join(stage::COMMAND), data.join("scripts/faultless"))?;
    fs::remove_dir(prefix.join("bin"))?;
    fs::rename(prefix, data.join("data")).context("the files beside the module")
}

/// The one thing in a folder.
fn only_in(folder: &Path) -> Result<PathBuf> {
    let mut all = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let one = all.next().with_context(|| format!("nothing is in {}", folder.display()))??;
    ensure!(all.next().is_none(), "{} has more than one file", folder.display());
    Ok(one.path())
}
