//! Gives the library its name, so that programs ask for it by that and not by the path where it was built; and has it
//! stay where it is loaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfaultless_c.so");
        // Its threads go on after a dlclose, so its code has to stay.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
