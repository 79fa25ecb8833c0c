//! Machines in QEMU: a kernel, and a file system in memory that is made anew for each run, with programs and what they
//! are linked with. QEMU does it in software (TCG), as it may have to where this machine is virtual itself.
//!
//! QEMU and busybox are Debian's packages (qemu-system-x86, busybox-static). So are kernels, which are downloaded and
//! unpacked below the target directory, not installed. Others are named by their files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::shell::{self, command, is_installed, output, target};

/// The package that depends on the kernel of the distribution.
const KERNEL: &str = "linux-image-amd64";

/// How every guest begins.
const BEGIN: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t cgroup2 groups /sys/fs/cgroup
/bin/busybox --install -s /bin
/bin/busybox mkdir -p /var/tmp
export PATH=/bin
busybox ip link set lo up
echo guest: $(busybox uname -r), nodes $(busybox cat /sys/devices/system/node/online)
";
const END: &str = "busybox poweroff -f\n";

/// The processors, and the memory of each node in MiB.
pub struct Machine {
    pub nodes: usize,
    pub cpus_of_node: usize,
    pub mib_of_node: usize,
}

/// A guest's file system while it is made.
pub struct Image {
    root: PathBuf,
}

impl Image {
    /// An empty one, for a guest of this name.
    pub fn new(name: &str) -> Result<Self> {
        for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")] {
            ensure!(is_installed(program), "{program} is missing: install the package {package}");
        }
        let root = dir().join(name);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for name in ["bin", "lib", "lib64", "proc", "sys", "dev", "tmp", "usr"] {
            fs::create_dir_all(root.join(name))?;
        }
        let image = Self { root };
        let busybox = output(command("which").arg("busybox"))?;
        image.add(Path::new(busybox.trim()), "bin/busybox")?;
        Ok(image)
    }

    /// Adds a program or a library as `name`, with what it is linked with, and without what a debugger needs.
    pub fn add(&self, file: &Path, name: &str) -> Result<()> {
        let to = self.root.join(name);
        fs::create_dir_all(to.parent().context("a name")?)?;
        shell::run(command("strip").arg("--strip-debug").arg(file).arg("-o").arg(&to))?;
        // A static program has nothing to say.
        let linked = output(command("ldd").arg(file)).unwrap_or_default();
        for line in linked.lines() {
            // "name => file (address)", or "file (address)" for the loader.
            let Some(file) = line.split_whitespace().find(|word| word.starts_with('/')) else { continue };
            let name = Path::new(file).file_name().context("a library without a name")?;
            let place = if file.contains("ld-linux") { "lib64" } else { "lib" };
            fs::copy(file, self.root.join(place).join(name))?;
        }
        Ok(())
    }

    /// All of it, with the commands that the guest runs.
    pub fn pack(self, commands: &str) -> Result<PathBuf> {
        let init = self.root.join("init");
        fs::write(&init, [BEGIN, commands, END].concat())?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let image = self.root.with_extension("cpio");
        let pack = format!("find . | busybox cpio -o -H newc > {}", image.display());
        shell::run(command("sh").args(["-c", &pack]).current_dir(&self.root))?;
        Ok(image)
    }
}

impl Machine {
    /// Runs a guest to its end, for a number of seconds at most; what it says, which is shown, too.
    pub fn boot(&self, kernel: &Path, image: &Path, seconds: u32) -> Result<String> {
        let mut qemu = command("timeout");
        qemu.args(["-k", "10", &seconds.to_string(), "qemu-system-x86_64"]);
        let (all, mib) = (self.nodes * self.cpus_of_node, self.nodes * self.mib_of_node);
        qemu.args(["-smp", &all.to_string(), "-m", &mib.to_string()]);
        for node in 0..self.nodes {
            let (first, last) = (node * self.cpus_of_node, (node + 1) * self.cpus_of_node - 1);
            qemu.args(["-object", &format!("memory-backend-ram,id=m{node},size={}M", self.mib_of_node)]);
            qemu.args(["-numa", &format!("node,nodeid={node},cpus={first}-{last},memdev=m{node}")]);
        }
        qemu.args("-accel tcg -icount shift=0,sleep=off -nographic -no-reboot -net none".split_whitespace());
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
        // Without the kernel's errors: processes that it kills for a poisoned page are what tests ask for.
        qemu.args(["-append", "console=ttyS0 loglevel=3 panic=-1 transparent_hugepage=madvise"]);
        let mut running = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        for line in BufReader::new(running.stdout.take().context("its output")?).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
            println!("{line}");
            said += &(line + "\n");
        }
        ensure!(running.wait()?.success(), "the guest came to no end in {seconds} s");
        Ok(said)
    }
}

/// Kernels by their files, or by the packages that they are in; without any, the distribution's.
pub fn kernels(named: &[String]) -> Result<Vec<PathBuf>> {
    match named {
        [] => Ok(vec![of_package(&meant(KERNEL)?)?]),
        named => named.iter().map(|name| kernel(name)).collect(),
    }
}

fn kernel(name: &str) -> Result<PathBuf> {
    match Path::new(name) {
        file if file.is_file() => Ok(fs::canonicalize(file)?),
        _ => of_package(&meant(name)?),
    }
}

/// The package itself, or that of the kernel that it depends on.
fn meant(package: &str) -> Result<String> {
    let about = output(command("apt-cache").args(["depends", package]))?;
    ensure!(!about.is_empty(), "{package} is not known: apt-get update");
    let mut depends = about.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(depends.find(|name| name.starts_with("linux-image-")).unwrap_or(package).to_owned())
}

/// The kernel of a package, downloaded and unpacked once.
fn of_package(package: &str) -> Result<PathBuf> {
    let unpacked = dir().join(package);
    if !unpacked.join("boot").exists() {
        fs::create_dir_all(&unpacked)?;
        shell::run(command("apt-get").args(["download", package]).current_dir(&unpacked))?;
        let file = files(&unpacked, package)?.pop().context("no package came")?;
        shell::run(command("dpkg").arg("-x").arg(file).arg(&unpacked))?;
    }
    files(&unpacked.join("boot"), "vmlinuz")?.pop().context("the package has no kernel")
}

fn files(dir: &Path, begin: &str) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let begins = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
    Ok(all.into_iter().filter(begins).collect())
}

fn dir() -> PathBuf {
    target().join("guest")
}
