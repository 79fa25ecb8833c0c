//! Large files that a program reads by mmap, and what is asked for ahead of it.

use std::path::Path;

use faultless_e2e::{Case, Run, scratch, skip};
use faultless_page::stats::Counter;

/// How often a program is run until the background thread had a processor in time.
const ATTEMPTS: usize = 5;

/// Runs `reads.c` plain and in the other ways: it prints the same. Then its counters are as expected.
fn reads(how: &str, is_as_expected: impl Fn(&Run) -> bool) {
    let dir = scratch();
    if !is_on_disk(dir.path()) {
        return skip("temporary files are not on a disk");
    }
    let Some(case) = Case::compiled("reads.c", &[]) else { return };
    let case = case.args([how]).dir(dir.path()).env("FAULTLESS_FILE_AHEAD", "64M");
    case.same();
    let mut runs = (0..ATTEMPTS).map(|_| case.under(&[]));
    assert!(runs.any(|run| is_as_expected(&run)), "{how}: {:?}", case.under(&[]).counters);
}

fn is_on_disk(dir: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|about| about.f_type as u64 != TMPFS)
}

/// Something was asked for, and was used.
fn asks(run: &Run) -> bool {
    use Counter::*;
    [MappedFiles, BytesReadAhead, BytesReadAheadUsed].iter().all(|counter| run.counters.get(*counter) > 0)
}

fn asks_nothing(run: &Run) -> bool {
    run.counters.get(Counter::BytesReadAhead) == 0
}

#[test]
fn a_sequence_is_read_ahead() {
    reads("sequence", asks);
}

#[test]
fn so_is_one_that_goes_backward() {
    reads("backward", asks);
}

#[test]
fn private_changes_stay_private() {
    reads("writes", asks);
}

#[test]
fn random_reading_is_left_alone() {
    reads("random", |run| asks_nothing(run) && run.counters.get(Counter::ReadAheadRandom) == 1);
}

#[test]
fn advice_of_the_programs_own_counts() {
    reads("advised", |run| asks_nothing(run) && run.counters.get(Counter::ReadAheadAdvised) == 1);
}

#[test]
fn a_shared_mapping_for_writing_is_left_alone() {
    reads("shared", |run| asks_nothing(run) && run.counters.get(Counter::MappedFiles) == 0);
}

#[test]
fn a_file_that_becomes_shorter_ends_as_plain() {
    reads("shortened", asks);
}

#[test]
fn what_is_written_into_a_file_is_read() {
    reads("rewritten", asks);
}

#[test]
fn what_takes_the_place_of_a_file_is_not_changed() {
    reads("replaced", |run| asks(run) && run.counters.get(Counter::MappedFiles) == 2);
}

#[test]
fn a_forked_child_reads_the_same() {
    reads("forks", asks);
}

#[test]
fn nothing_is_read_ahead_unless_it_is_asked_for() {
    let dir = scratch();
    let Some(case) = Case::compiled("reads.c", &[]) else { return };
    let run = case.args(["sequence"]).dir(dir.path()).under(&[]);
    assert!(run.status.success());
    assert_eq!([Counter::MappedFiles, Counter::BytesReadAhead].map(|counter| run.counters.get(counter)), [0, 0]);
}
