//! Mounts on which programs do not run, that are full, or that are missing.

mod common;

use std::process::{Command, Output};

use common::{Scratch, faultless, text};

/// `faultless` with `words`, in a mount namespace in which a shell ran `before` first; `None`: there can be none.
fn mounted(before: &str, words: &[&str]) -> Option<Output> {
    if !Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|out| out.status.success()) {
        faultless_testkit::skip("no namespaces can be made");
        return None;
    }
    let inner = faultless(words);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{before} && exec \"$@\""), "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    Some(command.output().unwrap())
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
