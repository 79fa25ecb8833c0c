//! A C program against the header and the library.

use std::path::Path;
use std::process::Command;

use faultless_testkit::limit::limit;

#[test]
fn a_c_program_uses_each_function() {
    limit();
    let exe = std::env::current_exe().unwrap();
    let libraries = exe.parent().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("api");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/api.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(libraries)
        .arg("-lfaultless_c")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "does not compile"),
        Err(error) => return println!("skipped: no C compiler ({error})"),
    }
    let out = Command::new(&program).output().unwrap();
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// Each function of the header is in the library, and each of the library in the header.
#[test]
fn header_and_library_have_the_same_functions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(here.join(file)).unwrap();
    let header = read("include/faultless.h");
    let sources = read("src/lib.rs") + &read("src/error.rs");
    let mut declared: Vec<_> = header
        .lines()
        .filter_map(|line| line.split_once('(').filter(|_| line.ends_with(");")))
        .filter_map(|(before, _)| before.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("faultless_"))
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 12, "{declared:?}");
    let defined = sources.matches("no_mangle").count();
    // Those that macros make are named where they are called.
    assert!(defined <= declared.len(), "a function that the header does not have");
    for name in declared {
        assert!(sources.contains(&format!(" {name}(")) || sources.contains(&format!("{name}: ")), "{name}");
    }
}
