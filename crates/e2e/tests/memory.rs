//! Small C programs about memory calls that few programs make: limits, spans of several mappings, calls past the C
//! library, pinned pages, areas used up.

use std::os::unix::process::ExitStatusExt;

use faultless_e2e::Case;

/// Runs a program with each of these lists of arguments.
fn passes(source: &str, all: &[&[&str]]) {
    let Some(case) = Case::compiled(source, &["-Wno-alloc-size-larger-than"]) else { return };
    for args in all {
        case.clone().args(*args).same_and_served();
    }
}

#[test]
fn what_is_unmapped_is_out_of_reach() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let run = case.args(["stale"]).under(&[("FAULTLESS_BUDGET", "64M")]);
    assert_eq!(run.status.signal(), Some(11), "{}", run.status);
}

#[test]
fn a_limit_on_address_space_set_later() {
    passes("limits.c", &[&["as", "setrlimit"], &["as", "prlimit"], &["as", "direct"]]);
}

#[test]
fn a_limit_on_data_set_later() {
    passes("limits.c", &[&["data", "prlimit64"]]);
}

#[test]
fn a_limit_set_while_threads_allocate() {
    passes("limits.c", &[&["as", "setrlimit", "busy"]]);
}

#[test]
fn all_memory_locked() {
    passes("limits.c", &[&["lock", "now"], &["lock", "future"]]);
}

#[test]
fn ranges_of_several_mappings() {
    passes("spans.c", &[&[]]);
}

#[test]
fn system_calls_past_the_functions() {
    passes("direct.c", &[&[], &["inline"]]);
}

#[test]
fn sizes_and_alignments_at_their_limits() {
    passes("allocs.c", &[&[]]);
}

#[test]
fn nearly_as_many_areas_as_there_may_be() {
    passes("crowded.c", &[&[]]);
}

#[test]
fn a_program_with_one_thread_confines_itself() {
    passes("confined.c", &[&[]]);
}

#[test]
fn memory_not_inherited() {
    passes("pins.c", &[&["inheritance"]]);
}

#[test]
fn pages_in_a_pipe() {
    passes("pins.c", &[&["pipe"]]);
}

#[test]
fn memory_of_another_process() {
    passes("pins.c", &[&["process"]]);
}

#[test]
fn shared_futexes() {
    passes("pins.c", &[&["futex"]]);
}

#[test]
fn input_and_output_past_the_cache() {
    passes("pins.c", &[&["direct"]]);
}

#[test]
fn buffers_registered_with_io_uring() {
    passes("pins.c", &[&["io_uring"]]);
}

#[test]
fn blocks_that_the_kernel_uses_after_their_end() {
    for how in ["ring", "buffers", "update", "aio"] {
        passes("used_later.c", &[&[how]]);
    }
}

#[test]
fn calls_as_the_kernel_takes_them() {
    for how in ["request", "advice", "thread", "clock", "text"] {
        passes("narrow.c", &[&[how]]);
    }
}

#[test]
fn faults_that_the_program_handles() {
    passes("pins.c", &[&["userfaultfd"]]);
}

/// No thread can be killed alone; one that stands still wherever it is only makes the others slower.
#[test]
fn the_background_thread_is_stopped_again_and_again() {
    passes("stalled.c", &[&[]]);
}
