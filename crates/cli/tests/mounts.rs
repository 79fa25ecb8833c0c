//! Mounts on which programs do not run, that are full, or that are missing.

mod common;

use std::process::{Command, Output};

use common::recording::record;
use common::{Scratch, faultless, text, within};

/// `faultless` with `words`, in a mount namespace in which a shell ran `before` first; `None`: there can be none.
fn mounted(before: &str, words: &[&str]) -> Option<Output> {
    mounted_until(before, words, "true")
}

/// The same; the shell runs `after` at the end.
fn mounted_until(before: &str, words: &[&str], after: &str) -> Option<Output> {
    if !Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|out| out.status.success()) {
        faultless_testkit::skip("no namespaces can be made");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{before} && \"$@\"; status=$?; {after}; exit $status"), "sh"]);
    Some(within(command, &faultless(words)).output().unwrap())
}

#[test]
fn a_program_from_where_none_runs_is_named() {
    let scratch = Scratch::new("noexec");
    let (place, program) = (scratch.0.display(), scratch.0.join("true"));
    let before = format!("mount -t tmpfs -o noexec none {place} && cp /bin/true {}", program.display());
    let words = ["doctor", "--no-measure", "--", program.to_str().unwrap()];
    let Some(out) = mounted(&before, &words) else { return };
    let said = text(&out.stdout);
    assert!(said.contains("mounted noexec"), "{said}{}", text(&out.stderr));
    assert_eq!(out.status.code(), Some(2), "{said}");
}

#[test]
fn doctor_says_that_there_is_no_proc() {
    let Some(out) = mounted("umount -l /proc", &["doctor"]) else { return };
    let said = text(&out.stdout);
    assert!(said.contains("/proc is not mounted here"), "{said}{}", text(&out.stderr));
    assert!(!said.contains("control group") && !said.contains("cargo build"), "{said}");
    assert_eq!(out.status.code(), Some(2), "{said}");
}

/// Without the room a program does not write what it writes elsewhere: that is no difference between runs.
#[test]
fn a_comparison_without_room_for_the_output_is_an_error() {
    let scratch = Scratch::new("full");
    let before = format!("mount -t tmpfs -o size=1M none {0} && export TMPDIR={0}", scratch.0.display());
    let of = |bytes| mounted(&before, &["run", "--compare", "1", "--", "head", "-c", bytes, "/dev/zero"]);
    let Some(out) = of("20000000") else { return };
    let said = text(&out.stderr);
    assert!(said.contains("no room for all of the program's output"), "{said}{}", text(&out.stdout));
    assert_eq!(out.status.code(), Some(125), "{said}");
    let out = of("20000").unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

/// Where a report has no room the file of an earlier one is as it was, and nothing else is left.
#[test]
fn a_full_disk_leaves_the_report_before() {
    let scratch = Scratch::new("full-report");
    assert!(record(&scratch, &[], &["true"]).status.success());
    let recording = scratch.0.join("it.rec");
    let (recording, full) = (recording.to_str().unwrap(), scratch.0.join("full"));
    std::fs::create_dir(&full).unwrap();
    let full = full.display();
    let before = format!(
        "mount -t tmpfs -o size=64k none {full} && echo old >{full}/it && ! head -c 1M /dev/zero 2>&- >{full}/rest"
    );
    let file = &format!("{full}/it");
    let cases: [(&[&str], i32); 7] = [
        (&["report", "--html", file, recording], 1),
        (&["report", "-o", file, recording], 1),
        (&["stat", "--openmetrics", "-o", file], 1),
        (&["stat", "-o", file, "--", "true"], 0),
        (&["run", "--json", file, "--", "true"], 0),
        (&["run", "--compare", "1", "--export-csv", file, "--", "true"], 125),
        (&["profile", "export", file], 125),
    ];
    for (words, status) in cases {
        let Some(out) = mounted_until(&before, words, &format!("ls -A {full}; cat {file}")) else { return };
        let (said, found) = (text(&out.stderr), text(&out.stdout));
        assert!(said.contains("No space left on device"), "{words:?}: {said}");
        assert!(found.ends_with("it\nrest\nold\n"), "{words:?}: {found}");
        assert_eq!(out.status.code(), Some(status), "{words:?}: {said}");
    }
}
