//! A machine with two nodes (NUMA), in software: a Debian kernel in QEMU runs a program that looks where its memory
//! lies, plain and under the library. `cargo xtask nodes`; not part of `cargo xtask test`.
//!
//! The guest's only file system is made anew for each run: busybox, the program, the library, and what they are linked
//! with. QEMU and busybox are Debian's packages (qemu-system-x86, busybox-static). So is the kernel, which is
//! downloaded and unpacked below the target directory, not installed. Others are named by their files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, cargo, command, is_installed, output, target};

const PROGRAM: &str = "crates/e2e/programs/nodes.c";
/// The package that depends on the kernel of the distribution.
const KERNEL: &str = "linux-image-amd64";
/// What the guest says at its end.
const PASSED: &str = "guest: passed";

/// What the guest does first, and all that it does. A fixed threshold has glibc map each block anew: one that it
/// recycles lies where it was touched first.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
echo guest: $(/bin/busybox uname -r), nodes $(/bin/busybox cat /sys/devices/system/node/online)
plain=1 run=1
echo guest: plain
MALLOC_MMAP_THRESHOLD_=1048576 /bin/nodes && plain=0
echo guest: under the library
LD_PRELOAD=/lib/libfaultless_preload.so /bin/nodes recycles && run=0
[ $plain$run = 00 ] && echo guest: passed
/bin/busybox poweroff -f
";

/// Builds, boots, and checks: with the kernels of these files, or else with Debian's.
pub fn run(args: &[String]) -> Result<()> {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")] {
        ensure!(is_installed(program), "{program} is missing: install the package {package}");
    }
    shell::run(&mut cargo("build --release --package faultless-preload"))?;
    let dir = target().join("nodes");
    let kernels =
        if args.is_empty() { vec![debian(&dir)?] } else { args.iter().map(PathBuf::from).collect::<Vec<_>>() };
    let guest = image(&dir)?;
    for kernel in &kernels {
        let said = boot(kernel, &guest)?;
        println!("{said}");
        ensure!(said.contains(PASSED), "the guest with {} did not pass", kernel.display());
    }
    Ok(())
}

/// Debian's kernel, downloaded and unpacked once.
fn debian(dir: &Path) -> Result<PathBuf> {
    let unpacked = dir.join("kernel");
    if !unpacked.join("boot").exists() {
        let depends = output(command("apt-cache").args(["depends", KERNEL]))?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.with_context(|| format!("{KERNEL} is not known: apt-get update"))?;
        fs::create_dir_all(&unpacked)?;
        shell::run(command("apt-get").args(["download", package]).current_dir(dir))?;
        let file = files(dir, package)?.pop().context("no package came")?;
        shell::run(command("dpkg").arg("-x").arg(file).arg(&unpacked))?;
    }
    files(&unpacked.join("boot"), "vmlinuz")?.pop().context("the package has no kernel")
}

fn files(dir: &Path, begin: &str) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let begins = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
    Ok(all.into_iter().filter(begins).collect())
}

/// The guest's file system.
fn image(dir: &Path) -> Result<PathBuf> {
    let root = dir.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for name in ["bin", "lib", "lib64", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(name))?;
    }
    let program = root.join("bin/nodes");
    shell::run(
        command("cc").args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", PROGRAM, "-o"]).arg(&program),
    )?;
    let library = target().join("release/libfaultless_preload.so");
    fs::copy(&library, root.join("lib/libfaultless_preload.so"))?;
    let busybox = output(command("which").arg("busybox"))?;
    fs::copy(busybox.trim(), root.join("bin/busybox"))?;
    for object in [&program, &library] {
        for line in output(command("ldd").arg(object))?.lines() {
            // "name => file (address)", or "file (address)" for the loader.
            let Some(file) = line.split_whitespace().find(|word| word.starts_with('/')) else { continue };
            let name = Path::new(file).file_name().context("a library without a name")?;
            let place = if file.contains("ld-linux") { "lib64" } else { "lib" };
            fs::copy(file, root.join(place).join(name))?;
        }
    }
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let image = dir.join("guest.cpio");
    let pack = format!("find . | busybox cpio -o -H newc > {}", image.display());
    shell::run(command("sh").args(["-c", &pack]).current_dir(&root))?;
    Ok(image)
}

/// Runs the guest on two nodes with a processor and 768 MiB each; what it says.
fn boot(kernel: &Path, image: &Path) -> Result<String> {
    let nodes = "-smp 2 -m 1536 -object memory-backend-ram,id=a,size=768M -object memory-backend-ram,id=b,size=768M \
                 -numa node,nodeid=0,cpus=0,memdev=a -numa node,nodeid=1,cpus=1,memdev=b";
    let rest = "-accel tcg -nographic -no-reboot -net none";
    let mut qemu = command("timeout");
    qemu.args(["-k", "10", "400", "qemu-system-x86_64"])
        .args(nodes.split_whitespace())
        .args(rest.split_whitespace());
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 transparent_hugepage=madvise"]);
    let said = output(qemu.stdin(std::process::Stdio::null()))?;
    if said.trim().is_empty() {
        bail!("the guest said nothing");
    }
    Ok(said)
}
