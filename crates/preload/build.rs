//! The library is loaded into every program of a tree: it links the C library and nothing else.
fn main() {
    for arg in ["-nodefaultlibs", "-lc", "-Wl,-z,now", "-Wl,--hash-style=gnu", "-Wl,--as-needed"] {
        println!("cargo:rustc-link-arg-cdylib={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
