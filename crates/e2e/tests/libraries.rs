//! Small C programs with libraries that have functions of the C library's, too, or that run before the preloaded one.

use std::process::Command;

use faultless_e2e::{Case, compile, need, scratch};
use faultless_page::stats::Counter;
use tempfile::TempDir;

/// A program that is linked with a library, which lies in a directory of its own.
fn linked(program: &str, library: &str, flags: &[&str]) -> Option<(TempDir, Case)> {
    let dir = scratch();
    let library = compile(dir.path(), library, &["-shared", "-fPIC", "-fno-builtin", "-ldl"])?;
    let flags = [&[library.to_str()?, "-fno-builtin"], flags].concat();
    Some((dir, Case::compiled(program, &flags)?))
}

#[test]
fn an_allocator_that_does_not_tell_sizes() {
    let Some((_dir, case)) = linked("foreign.c", "four.c", &[]) else { return };
    case.same_and_served();
}

#[test]
fn an_allocator_of_the_programs_own() {
    let Some(case) = Case::compiled("foreign.c", &["-DOWN", "-fno-builtin"]) else { return };
    let run = case.same_and_served();
    assert_eq!(run.counters.get(Counter::MallocServed), 0, "blocks that the program's allocator does not know");
}

#[test]
fn functions_of_a_library_that_the_program_is_linked_with() {
    let Some((_dir, case)) = linked("linked.c", "stands_in.c", &["-ldl"]) else { return };
    case.same_and_served();
}

#[test]
fn calls_before_the_preloaded_library_is_linked() {
    let Some((_dir, case)) = linked("resolved_calls.c", "resolver_calls.c", &[]) else { return };
    case.same_and_served();
    case.env("LD_BIND_NOW", "1").same_and_served();
}

#[test]
fn calls_before_the_c_library_is_ready() {
    let Some(case) = Case::compiled("resolver_calls.c", &["-DOWN", "-fno-builtin"]) else { return };
    case.same_and_served();
    case.env("LD_BIND_NOW", "1").same_and_served();
}

/// A child of a covered program may be one of another C library, and have covered children itself.
#[test]
fn a_program_of_another_c_library() {
    let Some(musl) = need("musl-gcc") else { return };
    let dir = scratch();
    let program = dir.path().join("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/other_c_library.c");
    let status = Command::new(musl).args(["-O1", "-fno-builtin", source, "-o"]).arg(&program).status();
    assert!(status.expect("a compiler").success());
    let case = Case::new(&program);
    assert_eq!(case.same().counters.served(), 0, "another C library is left alone");
    case.env("FAULTLESS_NO_CHILDREN", "1").same();
    let Some(parent) = need("python3") else { return };
    let script = "import subprocess, sys; b = bytearray(99 << 20); subprocess.run(sys.argv[1:], check=True)";
    Case::new(parent).args(["-c", script]).args([&program]).same_and_served();
}

/// What the dynamic linker finds behind the library, the library finds: in tables of both kinds, indirect functions, and no
/// version that is hidden.
#[test]
fn functions_of_libraries_of_every_kind() {
    let map = format!("-Wl,--version-script={}/programs/versions.map", env!("CARGO_MANIFEST_DIR"));
    let kinds = [
        &["-Wl,--hash-style=sysv"][..],
        &["-Wl,--hash-style=gnu"],
        &["-DVERSIONS", &map],
        &["-DVERSIONS", &map, "-Wl,--hash-style=sysv"],
    ];
    for kind in kinds {
        let flags = [&["-shared", "-fPIC", "-fno-builtin"], kind].concat();
        let dir = scratch();
        let Some(library) = compile(dir.path(), "kinds_lib.c", &flags) else { return };
        let library = library.to_str().expect("a readable path");
        let linked = ["-fno-builtin", "-Wl,--no-as-needed", library];
        let Some(case) = Case::compiled("kinds.c", &linked) else { return };
        case.same_and_served();
        let Some(case) = Case::compiled("kinds.c", &["-fno-builtin"]) else { return };
        case.behind(library).same_and_served();
    }
}

#[test]
fn threads_that_load_libraries_before_main() {
    let flags = ["-shared", "-fPIC", "-fno-builtin", "-DLOADS", "-pthread", "-ldl"];
    let dir = scratch();
    let Some(library) = compile(dir.path(), "kinds_lib.c", &flags) else { return };
    let Some(case) = Case::compiled("kinds.c", &["-fno-builtin"]) else { return };
    let case = case.behind(library.to_str().expect("a readable path"));
    for _ in 0..10 {
        case.same();
    }
}

/// By their names the library would find a program's own functions, which may not work in its thread or at its start.
#[test]
fn functions_of_the_programs_own() {
    let Some(case) = Case::compiled("own_functions.c", &["-fno-builtin", "-rdynamic"]) else { return };
    case.same_and_served();
}
