//! A machine with two nodes (NUMA), in QEMU. A program looks where its memory lies, plain and under the library; a test
//! does the same for regions. `cargo xtask nodes`; not part of `cargo xtask test`.

use anyhow::{Context, Result, ensure};

use crate::guest::{Image, Machine, kernels};
use crate::shell::{self, cargo, command, target};
use crate::suite::built;

const PROGRAM: &str = "crates/e2e/programs/nodes.c";
/// What the guest says at its end.
const PASSED: &str = "guest: passed";

/// A fixed threshold has glibc map each block anew: one that it recycles lies where it was touched first.
const COMMANDS: &str = "plain=1 run=1 regions=1
echo guest: plain
MALLOC_MMAP_THRESHOLD_=1048576 /bin/nodes && plain=0
echo guest: under the library
LD_PRELOAD=/lib/libfaultless_preload.so /bin/nodes recycles && run=0
echo guest: regions
/bin/regions --test-threads 1 && regions=0
[ $plain$run$regions = 000 ] && echo guest: passed
";

/// Builds, boots, and checks, with these kernels or the distribution's.
pub fn run(args: &[String]) -> Result<()> {
    let image = Image::new("nodes")?;
    shell::run(&mut cargo("build --release --package faultless-preload"))?;
    let program = target().join("guest/program");
    shell::run(
        command("cc").args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", PROGRAM, "-o"]).arg(&program),
    )?;
    image.add(&program, "bin/nodes")?;
    image.add(&target().join("release/libfaultless_preload.so"), "lib/libfaultless_preload.so")?;
    let tests = built("--package faultless --test nodes")?;
    image.add(&tests.first().context("no test was built")?.file, "bin/regions")?;
    let guest = image.pack(COMMANDS)?;
    let machine = Machine { nodes: 2, cpus_of_node: 1, mib_of_node: 768 };
    for kernel in kernels(args)? {
        let said = machine.boot(&kernel, &guest, 400)?;
        ensure!(said.contains(PASSED), "the guest with {} did not pass", kernel.display());
    }
    Ok(())
}
