//! The library is loaded into every program of a tree: it links the C library and nothing else, and what each exec
//! pays for is left out.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Without the C compiler's start files four symbols less are looked for, three of them in vain.
const ALWAYS: [&str; 6] =
    ["-nodefaultlibs", "-nostartfiles", "-lc", "-Wl,-z,now", "-Wl,--hash-style=gnu", "-Wl,--as-needed"];
/// One mapping less: what is only read lies beside the code. Not every linker can.
const ONE_SEGMENT: &str = "-Wl,--no-rosegment";

fn main() {
    let links = links_with(ONE_SEGMENT);
    for arg in ALWAYS.into_iter().chain(links.then_some(ONE_SEGMENT)) {
        println!("cargo:rustc-link-arg-cdylib={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

/// Whether the linker in use takes `arg`.
fn links_with(arg: &str) -> bool {
    let var = |name| env::var(name).unwrap_or_default();
    let out = var("OUT_DIR");
    let source = Path::new(&out).join("empty.rs");
    let flags = var("CARGO_ENCODED_RUSTFLAGS");
    let mut rustc = Command::new(var("RUSTC"));
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.args([
        "--crate-type=cdylib",
        "--target",
        &var("TARGET"),
        "--out-dir",
        &out,
        "-C",
        &format!("link-arg={arg}"),
    ]);
    fs::write(&source, "").is_ok()
        && rustc
            .arg(&source)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
