//! Small C programs with libraries that have functions of the C library's, too, or that run before the preloaded one.

use faultless_e2e::{Case, compile, scratch};
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
