//! Packages, installed where nothing else is, and used there: a virtual environment for the wheel, a root directory of a
//! fresh Debian for the others. What each installation and each run takes is printed, and nothing depends on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{VERSION, container, copy, deb, empty, install as local, place};
use crate::setup;
use crate::shell::{command, output, run};

/// A program with large requests; it ends well only if its memory holds what it should.
pub const PROGRAM: &str = "
for turn in range(8):
    block = bytearray(32 << 20)
    assert not any(block[::4096])
    block[::4096] = bytes([turn]) * (len(block) // 4096)
    assert set(block[::4096]) == {turn}
print('right')
";

/// What the module does without NumPy.
const MODULE: &str = "
import faultless
region = faultless.Region(8 << 20)
view = memoryview(region)
view[5 << 20] = 7
assert bytes(view[(5 << 20) - 1:(5 << 20) + 2]) == bytes([0, 7, 0])
";

/// Installs the wheel by itself, and uses the module and the command.
pub fn wheel(wheel: &Path) -> Result<()> {
    let venv = empty("venv")?;
    let python = setup::python_path();
    run(command(python).args(["-m", "venv", "--clear"]).arg(&venv))?;
    let bin = venv.join("bin");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"];
    timed("pip install of the wheel", || run(command(bin.join("python3")).args(pip).arg(wheel)))?;
    let versions = "import platform; print('manylinux_' + platform.libc_ver()[1].replace('.', '_'))";
    let tag = output(command(bin.join("python3")).args(["-c", versions]))?;
    ensure!(
        wheel.to_string_lossy().contains(&format!("-{}_", tag.trim())),
        "tried with {tag}: {}",
        wheel.display()
    );
    run(command(bin.join("python3")).args(["-c", MODULE]))?;
    let shell = |program: &Path| own(command(program));
    uses(&bin.join("faultless"), bin.join("python3").as_os_str(), &venv, shell)?;
    ensure!(venv.join("share/man/man1/faultless-run.1").is_file(), "the wheel brings no manual pages");
    Ok(())
}

/// Installs what is built here below a prefix, uses the command and a bench there, and removes it.
pub fn install() -> Result<()> {
    let prefix = empty("installed")?;
    let staged = local::below(&prefix)?;
    let faultless = prefix.join("bin/faultless");
    let shell = |program: &Path| own(command(program));
    uses(&faultless, setup::python_path().as_os_str(), &prefix.join("lib/faultless"), shell)?;
    // One row: the program and the library have to be found.
    let row = ["bench", "run", "--quick", "--only", "pair-64", "--contenders", "plain,faultless"];
    let said = output(shell(&faultless).args(row))?;
    ensure!(said.contains("| malloc and free of 64 bytes |"), "the bench says {said}");
    run(command(staged.join("install.sh")).arg("--remove").arg(&prefix))?;
    ensure!(!faultless.exists() && !prefix.join("lib/faultless").exists(), "the script leaves files behind");
    Ok(())
}

/// What `step` returns. The time that it took is printed, for docs/packages.md.
fn timed<T>(what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = step()?;
    eprintln!("took {:.2} s: {what}", start.elapsed().as_secs_f64());
    Ok(done)
}

/// `command` without settings of the caller's.
fn own(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAULTLESS_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").env("XDG_CONFIG_HOME", "/dev/null");
    command
}

/// The root directory of a fresh Debian.
pub struct Clean {
    archive: PathBuf,
}

impl Clean {
    /// Of the suite that this machine has, made by mmdebstrap from Debian's packages; kept for the next time.
    pub fn new() -> Result<Self> {
        let archive = place()?.join("clean.tar");
        if !archive.exists() {
            let about = std::fs::read_to_string("/etc/os-release")?;
            let suite = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
            let part = archive.with_extension("part.tar");
            let mmdebstrap = ["--quiet", "--variant=essential", "--include=python3-minimal"];
            run(command("mmdebstrap").args(mmdebstrap).arg(suite.context("which suite?")?).arg(&part))
                .context("mmdebstrap, of the package of that name, as root")?;
            std::fs::rename(part, &archive)?;
        }
        Ok(Self { archive })
    }

    /// A copy of it, named so.
    fn root(&self, name: &str) -> Result<Root> {
        let root = empty(name)?;
        run(command("tar").arg("-C").arg(&root).arg("-xf").arg(&self.archive))?;
        let inside = place()?.join("inside.sh");
        std::fs::write(&inside, INSIDE)?;
        Ok(Root { path: root, inside })
    }

    /// Installs the package by dpkg, uses it, and removes it.
    pub fn deb(&self, deb: &Path) -> Result<()> {
        let root = self.root("root-deb")?;
        copy(deb, &root.path.join("tmp/faultless.deb"))?;
        timed("dpkg --install of the .deb", || {
            run(root.command("dpkg").args(["--install", "/tmp/faultless.deb"]))
        })?;
        root.has_the_c_library_of(deb)?;
        root.has_units()?;
        root.uses("/usr/bin/faultless", "/usr/lib/faultless/")?;
        for file in ["share/man/man1/faultless-run.1.gz", "share/bash-completion/completions/faultless"] {
            ensure!(root.path.join("usr").join(file).is_file(), "the package brings no {file}");
        }
        container::check(&root)?;
        run(root.command("dpkg").args(["--verify", "faultless"]))?;
        run(root.command("dpkg").args(["--purge", "faultless"]))?;
        for place in ["lib/faultless", "lib/systemd/user/faultless-warm.service"] {
            ensure!(!root.path.join("usr").join(place).exists(), "the package leaves {place} behind");
        }
        Ok(())
    }

    /// Uses what the tarball holds where it is unpacked, and where its script puts it.
    pub fn tarball(&self, tarball: &Path) -> Result<()> {
        let root = self.root("root-tarball")?;
        timed("tar -xf of the tarball", || {
            run(command("tar").arg("-C").arg(root.path.join("opt")).arg("-xf").arg(tarball))
        })?;
        let unpacked = format!("{}opt/faultless-{VERSION}-linux-x86_64", '/');
        root.uses(&format!("{unpacked}/bin/faultless"), &format!("{unpacked}/lib/faultless/"))?;
        let script = format!("{unpacked}/install.sh");
        for prefix in ["/usr/local", "/srv/prefix"] {
            timed("install.sh of the tarball", || run(root.command(&script).arg(prefix)))?;
            let said = root.uses(&format!("{prefix}/bin/faultless"), &format!("{prefix}/lib/faultless/"));
            said.with_context(|| format!("installed below {prefix}"))?;
            run(root.command(&script).args(["--remove", prefix]))?;
            let left = root.path.join(prefix.trim_start_matches('/')).join("lib/faultless");
            ensure!(!left.exists(), "the script leaves {} behind", left.display());
        }
        Ok(())
    }
}

/// A root directory that programs are run in.
pub struct Root {
    path: PathBuf,
    /// The script that runs them.
    inside: PathBuf,
}

/// With mounts of its own, which end with the program.
const INSIDE: &str = r#"set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
for node in null zero random urandom; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/nonexistent chroot "$root" "$@"
"#;

impl Root {
    /// A program in there, in namespaces of its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command("unshare");
        command.args(["--mount", "--pid", "--ipc", "--net", "--fork", "--kill-child", "sh"]);
        command.arg(&self.inside).arg(&self.path).arg(program);
        command
    }

    /// Whether the package `file` asks for the C library that is here: no older one was tried.
    fn has_the_c_library_of(&self, file: &Path) -> Result<()> {
        let here = output(self.command("dpkg-query").args(["--show", "--showformat=${Version}", "libc6"]))?;
        let needs = output(command("dpkg-deb").arg("--field").arg(file).arg("Depends"))?;
        let here = here.split('-').next().unwrap_or_default();
        ensure!(needs.contains(&format!("{}{here})", deb::C_LIBRARY)), "tried with {here}, and needs {needs}");
        Ok(())
    }

    /// Whether systemd finds the units, and none of them begins by itself.
    fn has_units(&self) -> Result<()> {
        for (whose, unit) in [("user", "faultless-warm.service"), ("system", "faultless-warm@.service")] {
            let file = self.path.join("usr").join(deb::SYSTEMD).join(whose).join(unit);
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            ensure!(text.contains("\nExecStart=faultless warm start "), "{unit} starts something else:\n{text}");
        }
        let enabled = output(self.command("find").args(["/etc", "-name", "faultless*"]))?;
        ensure!(enabled.is_empty(), "the package enables units: {enabled}");
        Ok(())
    }

    /// Uses the command at this path; it takes its library from below `library`.
    fn uses(&self, faultless: &str, library: &str) -> Result<()> {
        uses(Path::new(faultless), "python3".as_ref(), Path::new(library), |program| self.command(program))
    }
}

/// Runs the program under `faultless`, by what `shell` makes of a path, and asks `doctor`, which has to name the library
/// below `place`.
fn uses(faultless: &Path, python: &OsStr, place: &Path, shell: impl Fn(&Path) -> Command) -> Result<()> {
    let mut covered = shell(faultless);
    // To the output, behind the program's: there may be no /dev/stdout.
    covered.args(["run", "--json", "/proc/self/fd/1", "--"]).arg(python).args(["-c", PROGRAM]);
    let said = timed("`faultless run` of a program there", || output(&mut covered))?;
    let json = said.strip_prefix("right\n").with_context(|| format!("the program printed {said:?}"))?;
    let json: Value = serde_json::from_str(json).with_context(|| said.clone())?;
    ensure!(json["covered"] == true, "the program ran plain: {json}");
    let doctor = shell(faultless).args(["doctor", "--no-measure", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&doctor.stdout).context("what doctor says")?;
    ensure!(doctor.status.code().is_some_and(|status| status < 2), "doctor: programs would run plain: {report}");
    let mut findings = report["findings"].as_array().into_iter().flatten();
    let library = findings.find(|finding| finding["id"] == "library").context("doctor names no library")?;
    let found = library["found"].as_str().unwrap_or_default();
    ensure!(found.contains(&*place.to_string_lossy()), "it is not below {}: {found}", place.display());
    eprintln!("{}: {found}", faultless.display());
    Ok(())
}
