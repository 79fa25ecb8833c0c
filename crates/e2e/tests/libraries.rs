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
