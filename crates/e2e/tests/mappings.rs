//! Small C programs about mappings of their own: addresses, attributes and pages that another process or the kernel
//! holds, while frames move in and out.

use std::os::unix::net::UnixDatagram;

use faultless_base::sys::warm::Message;
use faultless_e2e::{Case, Run, compile, scratch, tests};
use faultless_page::stats::Counter;

/// Runs a program with this line of arguments; frames have moved out of its mappings and into them.
fn recycled(source: &str, line: &str) -> Option<Run> {
    let run = Case::compiled(source, &[])?.args(line.split_whitespace()).same_and_served();
    for counter in [Counter::BytesKept, Counter::BytesMoved] {
        assert!(run.counters.get(counter) > 0, "{source} {line}: {counter:?}: {:?}", run.counters);
    }
    Some(run)
}

/// The same with each of these lines.
fn recycles(source: &str, lines: &[&str]) {
    for line in lines {
        recycled(source, line);
    }
}

tests! {
    unmapped_addresses_are_free_for_hints: recycles("addresses.c", &["hints"]);
    unmapped_addresses_are_free_for_shared_memory: recycles("addresses.c", &["segments"]);
    questions_about_unmapped_addresses: recycles("addresses.c", &["answers"]);
    two_threads_want_the_same_addresses: recycles("addresses.c", &["race"]);
    ranges_larger_than_memory: recycles("addresses.c", &["large"]);
    sealed_memory: recycles("given.c", &["sealed"]);
    attributes_end_with_their_mapping: recycles("given.c", &["advised"]);
    locked_memory: recycles("given.c", &["locked"]);
    a_page_is_dropped_once: recycles("drops_once.c", &[""]);
    pages_in_a_pipe_outlive_their_mapping: recycles("held.c", &["pipe", "pipe dropped"]);
    sockets_and_rings_from_elsewhere:
        recycles("inherits.c", &["send", "sendto", "sendmsg", "sendmmsg", "syscall", "ring"]);
    first_writes_while_memory_is_registered: recycles("firsts.c", &["-"]);
    a_read_is_under_way_when_its_buffer_goes: recycles("held.c", &["ring", "ring dropped"]);
    a_program_watches_its_mappings: recycles("watches.c", &[""]);
    pinned_pages_that_are_watched: recycles("pinned_watched.c", &[""]);
    memory_that_is_watched_already: recycles("watched.c", &["again"]);
    every_write_to_protected_memory_is_told_of:
        recycles("watched.c", &["written w", "written r", "written z", "written f"]);
    a_look_gives_no_page_to_a_shared_file:
        recycles("sparse.c", &["pieces", "whole", "instead", "moved", "attached"]);
    the_program_closes_every_descriptor: recycles("descriptors.c", &["close"]);
    the_program_puts_files_at_any_number: recycles("descriptors.c", &["put"]);
    threads_with_tables_of_their_own: recycles("descriptors.c", &["tables 4096"]);
    descriptors_of_children: recycles("descriptors.c", &["children"]);
}

#[test]
fn the_engine_maps_nothing_of_its_own_where_the_program_has_unmapped() {
    // Without work ahead the background thread begins with the first memory that is unmapped.
    for (what, ahead) in [("empties", "0"), ("empties", "1"), ("holes", "0"), ("holes", "1")] {
        let Some(case) = Case::compiled("addresses.c", &[]) else { return };
        case.args([what]).env("FAULTLESS_AHEAD", ahead).same_and_served();
    }
}

/// Advice for all of a mapping leaves it one area, which mremap takes. Without work ahead, which splits it for moments.
#[test]
fn a_mapping_stays_one_area() {
    let Some(case) = Case::compiled("grows.c", &[]) else { return };
    let run = case.env("FAULTLESS_AHEAD", "0").same_and_served();
    assert!(run.counters.get(Counter::BytesFreshHuge) > 0, "nothing was advised: {:?}", run.counters);
}

#[test]
fn a_mapping_of_which_a_part_was_replaced_is_one() {
    let Some(case) = Case::compiled("cuts.c", &[]) else { return };
    let run = case.same();
    assert!(run.counters.get(Counter::BytesAdvised) > 0, "nothing was advised: {:?}", run.counters);
}

/// Advice for a part of a mapping makes it several areas, of which the kernel counts those without memory no more once
/// they are closed to writes.
#[test]
fn a_mapping_that_is_closed_to_writes_grows() {
    let Some(case) = Case::compiled("closed_grows.c", &[]) else { return };
    let run = case.env("FAULTLESS_AHEAD", "0").env("FAULTLESS_BUDGET", "8M").same_and_served();
    let fresh = [Counter::BytesFreshHuge, Counter::BytesFreshSmall];
    assert!(fresh.iter().all(|&kind| run.counters.get(kind) > 0), "advised in part: {:?}", run.counters);
}

/// A mapping that advice has split moves in pieces, and none of them before it is known that all may.
#[test]
fn a_growth_that_is_refused_disturbs_no_thread() {
    let Some(case) = Case::compiled("refused_growth.c", &["-pthread"]) else { return };
    for budget in ["8M", "16M"] {
        let run = case.clone().env("FAULTLESS_BUDGET", budget).same_and_served();
        let fresh = [Counter::BytesFreshHuge, Counter::BytesFreshSmall];
        assert!(fresh.iter().all(|&kind| run.counters.get(kind) > 0), "advised in part: {:?}", run.counters);
    }
}

/// One call of a userfaultfd takes one area, and advice for a part of a mapping makes it several.
#[test]
fn what_a_program_watches_is_one_area() {
    let Some(case) = Case::compiled("watched_whole.c", &[]) else { return };
    for budget in ["2M", "64M", "96M", "256M"] {
        for pause_us in ["0", "3000"] {
            case.clone().env("FAULTLESS_BUDGET", budget).args([pause_us]).same_and_served();
        }
    }
}

/// Also memory that a forked process shares; and moves take pages from memory that is not registered.
#[test]
fn memory_that_was_not_touched_is_a_fault_for_whoever_watches() {
    let Some(case) = Case::compiled("exposed.c", &["-pthread"]) else { return };
    for how in ["child", "parent", "moved"] {
        for budget in ["2M", "64M", "256M"] {
            case.clone().env("FAULTLESS_BUDGET", budget).args([how]).same();
        }
    }
}

/// Also of several areas, of which the kernel moves the first ones in one call and then stops.
#[test]
fn an_unmapping_is_one_step_or_none() {
    for how in ["of", "refused", "grown"] {
        let Some(case) = Case::compiled("whole.c", &["-pthread"]) else { return };
        case.args([how]).same_and_served();
    }
}

/// A library behind ours sees the calls of the program, each once, and none of the engine's.
#[test]
fn calls_pass_on_to_libraries_behind() {
    let dir = scratch();
    let Some(library) = compile(dir.path(), "seen.c", &["-shared", "-fPIC", "-ldl"]) else { return };
    let Some(case) = Case::compiled("calls.c", &[]) else { return };
    recycles("calls.c", &[""]);
    case.behind(library.to_str().expect("a readable path")).same_and_served();
}

#[test]
fn drops_that_the_kernel_refuses_or_makes_in_part() {
    for how in ["head", "hole"] {
        let Some(run) = recycled("drops.c", how) else { return };
        assert!(run.counters.get(Counter::BytesRecycled) > 0, "{how}: nothing came back: {:?}", run.counters);
    }
}

/// Also where the budget would have much of it brought, and where all that is free moves in.
#[test]
fn every_first_touch_of_watched_memory_is_told_of() {
    recycles("watched.c", &["untouched 8", "untouched 64", "untouched 256", "untouched 1024"]);
    if let Some(case) = Case::compiled("watched.c", &[]) {
        case.args(["untouched", "256"]).env("FAULTLESS_BUDGET", "1G").same_and_served();
    }
}

/// With little room left the engine would like to know what of it is used.
#[test]
fn nobody_touches_memory_that_is_watched() {
    for how in ["filled", "committed"] {
        recycles("watched.c", &[how]);
        for budget in ["8M", "64M"] {
            let Some(case) = Case::compiled("watched.c", &[]) else { return };
            case.args([how]).env("FAULTLESS_BUDGET", budget).same_and_served();
        }
    }
}

/// A handler that leaves by a jump finds the engine between two calls, never inside.
#[test]
fn handlers_jump_out_of_calls() {
    if let Some(run) = recycled("jumps.c", "") {
        assert_eq!(run.counters.get(Counter::KernelNested), 0);
    }
}

/// Such a mapping is several areas of the kernel's, and moves piece by piece.
#[test]
fn a_handler_jumps_out_of_mremap() {
    let Some(case) = Case::compiled("leaves.c", &[]) else { return };
    case.env("FAULTLESS_BUDGET", "8M").same_and_served();
}

/// Where the table is full, or may hold few from the start, nothing can move.
#[test]
fn tables_of_descriptors_that_are_full() {
    recycles("descriptors.c", &["full", "full 64", "full 1000"]);
    if let Some(case) = Case::compiled("descriptors.c", &[]) {
        case.args(["full", "4"]).same();
    }
}

#[test]
fn the_lowest_number_is_the_programs() {
    for who in ["this", "child"] {
        let Some(case) = Case::compiled("numbers.c", &["-pthread"]) else { return };
        let run = case.args([who]).same_and_served();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "0 wrong, 0 lost, 0 refused\n", "{who}");
    }
}

/// The same where the program's memory is announced to a warm reserve: whether it reads, or never does, or is gone.
#[test]
fn what_is_announced_takes_no_number_from_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let mut socket = Some(UnixDatagram::bind(&path).expect("a socket"));
    socket.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket"));
    let name = path.to_str().expect("a readable path");
    for reads in [true, false, false] {
        let Some(case) = Case::compiled("numbers.c", &["-pthread"]) else { return };
        let run = case.args(["this"]).env("FAULTLESS_WARM", name).same_and_served();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "0 wrong, 0 lost, 0 refused\n");
        if reads {
            let mut bytes = [0; 64];
            let n = socket.as_ref().expect("a socket").recv(&mut bytes).expect("a message");
            assert!(matches!(Message::decode(&bytes[..n]), Some(Message::Grow(8388608..))));
        } else {
            socket = None;
        }
    }
}

#[test]
fn calls_of_threads_without_a_thread_pointer() {
    for pointer in ["null", "zeroes", "own", "last", "closed", "number", "round"] {
        let Some(case) = Case::compiled("no_thread_pointer.c", &["-Wl,-z,now", "-fno-stack-protector"]) else {
            return;
        };
        case.args([pointer]).same_and_served();
    }
}

#[test]
fn memory_that_is_executable_where_it_is_readable() {
    for by in ["function", "number"] {
        let Some(case) = Case::compiled("executable.c", &[]) else { return };
        let run = case.clone().args(["first", by]).same();
        assert_eq!(run.counters.served(), 0, "the arena is not executable");
        case.args(["later", by]).same_and_served();
    }
}

#[test]
fn policies_that_no_page_may_be_beside() {
    for ahead in ["1", "0"] {
        let Some(case) = Case::compiled("placed.c", &[]) else { return };
        case.env("FAULTLESS_AHEAD", ahead).same();
    }
}
