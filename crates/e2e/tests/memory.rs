//! Small C programs about memory calls that few programs make: limits, spans of several mappings, calls past the C
//! library, pinned pages, areas used up.

use std::os::unix::process::ExitStatusExt;

use faultless_e2e::{Case, tests};

/// Runs a program with the arguments of each of these lines.
fn passes(source: &str, lines: &[&str]) {
    if let Some(case) = Case::compiled(source, &["-Wno-alloc-size-larger-than"]) {
        case.with_each(lines);
    }
}

tests! {
    a_limit_on_address_space_set_later: passes("limits.c", &["as setrlimit", "as prlimit", "as direct"]);
    a_limit_on_data_set_later: passes("limits.c", &["data prlimit64"]);
    a_limit_set_while_threads_allocate: passes("limits.c", &["as setrlimit busy"]);
    a_limit_of_a_child_while_threads_unmap: passes("limits_child.c", &[""]);
    all_memory_locked: passes("limits.c", &["lock now", "lock future"]);
    ranges_of_several_mappings: passes("spans.c", &[""]);
    system_calls_past_the_functions: passes("direct.c", &["", "inline"]);
    sizes_and_alignments_at_their_limits: passes("allocs.c", &[""]);
    nearly_as_many_areas_as_there_may_be: passes("crowded.c", &[""]);
    a_program_with_one_thread_confines_itself: passes("confined.c", &[""]);
    memory_not_inherited: passes("pins.c", &["inheritance"]);
    pages_in_a_pipe: passes("pins.c", &["pipe"]);
    memory_of_another_process: passes("pins.c", &["process"]);
    shared_futexes: passes("pins.c", &["futex"]);
    input_and_output_past_the_cache: passes("pins.c", &["direct"]);
    buffers_registered_with_io_uring: passes("pins.c", &["io_uring"]);
    blocks_that_the_kernel_uses_after_their_end: passes("used_later.c", &["ring", "buffers", "update", "aio"]);
    calls_as_the_kernel_takes_them: passes("narrow.c", &["request", "advice", "thread", "clock", "text"]);
    /// No thread can be killed alone; one that stands still wherever it is only makes the others slower.
    the_background_thread_is_stopped_again_and_again: passes("stalled.c", &[""]);
}

/// From its first userfaultfd on a program is served by the C library and the kernel alone.
#[test]
fn faults_that_the_program_handles() {
    if let Some(case) = Case::compiled("pins.c", &["-Wno-alloc-size-larger-than"]) {
        let run = case.args(["userfaultfd"]).same();
        assert_eq!(run.counters.served(), 0, "{:?}", run.counters);
    }
}

#[test]
fn what_is_unmapped_is_out_of_reach() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let run = case.args(["stale"]).under(&[("FAULTLESS_BUDGET", "64M")]);
    assert_eq!(run.status.signal(), Some(11), "{}", run.status);
}

/// Blocks with a file in their midst, guards, pages that are watched and missing, and within limits.
#[test]
fn blocks_that_are_more_than_bytes_are_resized() {
    let Some(case) = Case::compiled("resized.c", &[]) else { return };
    for how in ["file", "guarded", "missing", "limited"] {
        case.clone().args([how]).same();
    }
}

/// Blocks of which the program changed all whole pages: the C library would copy them.
#[test]
fn blocks_that_are_changed_all_over_are_copied_as_the_c_library_copies() {
    let Some(case) = Case::compiled("carried.c", &[]) else { return };
    for [from, to] in [["16", "32"], ["3", "8"], ["64", "100"]] {
        for how in ["closed", "wiped", "hidden", "laid", "locked"] {
            case.clone().args([how, from, to, "aligned"]).same();
        }
        for how in ["closed", "laid", "locked"] {
            case.clone().args([how, from, to, "malloc"]).same();
        }
    }
}

/// The place for it may be another thread's as soon as nothing is mapped there.
#[test]
fn a_block_that_cannot_move_leaves_the_memory_of_others_alone() {
    let Some(case) = Case::compiled("carried.c", &[]) else { return };
    for how in ["aligned", "malloc"] {
        case.clone().args(["raced", "6", "12", how]).same();
    }
}

/// Blocks that the program has closed, locked, guarded or hidden in part keep that, and each of their bytes.
#[test]
fn blocks_with_attributes_are_resized_as_the_c_library_does() {
    let Some(case) = Case::compiled("attributed.c", &[]) else { return };
    for how in ["written", "run", "closed", "brought", "hidden", "kept", "guarded", "shared"] {
        for [from, to] in [["8192", "16384"], ["3000", "8000"], ["1024", "4096"], ["200", "512"], ["8192", "1024"]]
        {
            // The C library would read what is closed, and so would this.
            if how == "brought" && from == "8192" && to == "1024" || how == "closed" && to != "1024" {
                continue;
            }
            case.clone().args([how, from, to]).same();
            case.clone().args([how, from, to, "filter"]).same();
        }
    }
}

/// Whether huge pages come is the program's to say.
#[test]
fn what_a_program_advises_inside_of_a_reservation_stays() {
    let Some(case) = Case::compiled("committed.c", &[]) else { return };
    for way in ["call", "syscall"] {
        for advice in ["refuse", "want"] {
            case.clone().args([way, advice]).same_and_served();
        }
    }
}

/// Blocks keep what the program gave to all that it asked for, by whatever call, and lose what it gave to a part, as the
/// C library's do. Each in a run of its own: what is noted for one call would hide another one.
#[test]
fn what_was_given_to_all_that_was_asked_for_stays_with_a_block_that_grows() {
    const RIGHTS: [&str; 4] = ["mprotect", "sys_mprotect", "pkey_mprotect", "sys_pkey_mprotect"];
    const LOCKS: [&str; 4] = ["mlock", "mlock2", "sys_mlock", "sys_mlock2"];
    const ADVICE: [&str; 6] = ["dontfork", "wipe", "dontdump", "merge", "sys_wipe", "sys_dontdump"];
    const FOR_PROCESSES: [&str; 4] =
        ["process_dontfork", "process_wipe", "sys_process_dontfork", "sys_process_dontdump"];
    let Some(case) = Case::compiled("asked.c", &[]) else { return };
    for call in [&RIGHTS[..], &LOCKS, &ADVICE, &FOR_PROCESSES].concat() {
        for sizes in [&["200", "600", "4096"][..], &["900", "1500", "5000"], &["1000", "1020", "1500"]] {
            case.clone().args([&[call, "all"], sizes].concat()).same();
        }
        for how in ["all", "late", "part"] {
            case.clone().args([call, how, "200", "4096"]).same();
            case.clone().args([call, how, "1700", "2000"]).same();
        }
    }
}
