//! Programs that showed a fault of blocks of malloc once: each does under the library what it does plain.

use faultless_e2e::{Case, compile, scratch, skip, tests};

fn finding(name: &str, flags: &[&str]) -> Option<Case> {
    // Calls of malloc are what this is about: none is optimised away.
    Case::compiled(&format!("../tests/findings/blocks/{name}.c"), &[flags, &["-fno-builtin"]].concat())
}

/// Runs a program with the arguments of each of these lines.
fn passes(name: &str, lines: &[&str]) {
    if let Some(case) = finding(name, &[]) {
        case.with_each(lines);
    }
}

tests! {
    a_hook_of_fork_that_takes_a_lock_under_which_others_allocate: passes("hook_lock", &[""]);
    a_hook_of_fork_that_waits_for_a_thread_that_allocates: passes("hook_thread", &["prepare", "parent", "child"]);
    hooks_of_fork_that_resize_and_free_blocks: passes("hook_calls", &[""]);
    forks_beside_threads_that_have_locks_of_the_c_library: passes("stdio", &[""]);
    a_collector_that_stops_threads_and_then_allocates: passes("collector", &[""]);
    a_block_that_grows_over_a_neighbour_of_other_attributes: passes("attributes", &[""]);
    locked_blocks_that_are_freed: passes("locked", &[""]);
    what_the_program_changed_of_a_block_or_laid_over_it: passes("laid_over", &["calls", "instructions"]);
    descriptors_that_are_closed_again_and_again: passes("closed_often", &["program", "children"]);
    a_block_of_which_not_all_can_move_grows: passes("moved_in_part", &["sealed", "limit"]);
    what_the_program_lays_where_blocks_might_come:
        passes("laid_beside", &["ahead", "ahead instruction", "freed"]);
    what_the_program_lays_where_a_block_was_among_others: passes("laid_between", &["between", "behind"]);
    what_the_program_lays_where_ranges_are_isolated: passes("laid_apart", &[
        "call first limit", "call all limit", "call first locks", "moved first limit", "moved all locks",
        "unmapped first limit", "attached first locks", "opened first limit", "instruction first limit", "instruction all locks",
    ]);
    memory_given_back_before_a_fork: passes("idle", &[""]);
    the_last_thread_ends_the_process: passes("last_thread", &[""]);
    the_status_of_a_process_whose_threads_end_one_by_one: passes("last_status", &[""]);
    blocks_that_are_freed_where_no_system_call_is_allowed: passes("strict", &["", "seccomp"]);
    a_filter_after_the_end_of_service: passes("later_filter", &[""]);
    a_limit_that_another_process_sets: passes("limited", &["as", "data"]);
    ranges_of_several_areas_under_a_limit_that_the_program_set_unseen:
        passes("limit_inside", &["plain", "sealed"]);
    a_child_of_vfork_asks_first: passes("vfork", &[""]);
    large_alignments: passes("aligned", &[""]);
}

#[test]
fn blocks_of_other_rights_are_the_first_that_are_freed() {
    if let Some(case) = finding("first_frees", &["-pthread"]) {
        case.same_and_served();
    }
}

#[test]
fn blocks_of_the_c_library_in_a_hole_of_a_block() {
    if let Some(case) = finding("holes", &["-pthread"]) {
        case.with_each(&["unmapped", "child"]);
    }
}

#[test]
fn a_thread_changes_its_identity_while_a_library_is_loaded() {
    let dir = scratch();
    let library = compile(dir.path(), "../tests/findings/blocks/identity_lib.c", &["-shared", "-fPIC"]);
    let (Some(library), Some(case)) = (library, finding("identity", &["-rdynamic", "-pthread", "-ldl"])) else {
        return;
    };
    case.args([library]).same_and_served();
}

#[test]
fn blocks_that_the_c_library_is_to_fill() {
    passes("filled", &["mallopt"]);
    let variables = [("MALLOC_PERTURB_", "165"), ("GLIBC_TUNABLES", "glibc.malloc.perturb=165")];
    for (name, value) in variables {
        let Some(case) = finding("filled", &[]) else { return };
        assert_eq!(case.env(name, value).same().counters.served(), 0, "blocks that are not filled");
    }
}

#[test]
fn threads_with_little_stack() {
    // Bound at the start: the linker takes more stack than the calls.
    let Some(case) = finding("stack", &["-Wl,-z,now"]) else { return };
    case.same_and_served();
    case.args(["thread"]).same_and_served();
}

#[test]
fn a_bound_library_in_a_forked_child() {
    let dir = scratch();
    let library = compile(dir.path(), "../tests/findings/blocks/bound_free.c", &["-shared", "-fPIC"]);
    let (Some(library), Some(case)) = (library, finding("bound_child", &["-ldl"])) else { return };
    case.args([library]).same_and_served();
}

#[test]
fn the_c_librarys_debugging_allocator() {
    let Some(case) = finding("checked", &[]) else { return };
    let case = case.env("MALLOC_CHECK_", "3").fails().behind("libc_malloc_debug.so.0");
    let plain = case.plain();
    if !String::from_utf8_lossy(&plain.stdout).starts_with("usable 7\n") {
        return skip("the C library has no debugging allocator");
    }
    let run = case.same();
    assert_eq!(run.counters.served(), 0, "blocks that are not checked");
}

#[test]
fn a_library_behind_this_one_that_watches_calls() {
    let dir = scratch();
    let library = compile(dir.path(), "../tests/findings/blocks/watching.c", &["-shared", "-fPIC"]);
    let (Some(library), Some(case)) = (library, finding("watched", &[])) else { return };
    let run = case.behind(library.to_str().expect("a readable path")).same();
    assert_eq!(run.stdout, b"0 0 watched -1 Invalid argument, seen 3\n");
}
