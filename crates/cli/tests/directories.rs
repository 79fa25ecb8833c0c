//! The directories of counters: whose they are, and who removes them.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Scratch, faultless, library, run, text};
use serde_json::Value;

/// A command in a PID namespace sees none of the processes outside, and leaves their pages alone.
#[test]
fn a_command_in_a_namespace_removes_nothing_of_those_outside() {
    let runtime = Scratch::new("outside");
    let file = runtime.0.join("out.json");
    let pages = runtime.0.join("pages");
    std::fs::create_dir(&pages).unwrap();
    let mut outer = run(["--json", file.to_str().unwrap(), "--", "dd", "if=/dev/zero", "bs=8M", "count=2"]);
    outer.env("XDG_RUNTIME_DIR", &pages).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut outer = outer.spawn().unwrap();
    outer.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut inner = Command::new("unshare");
    inner.args(["-p", "-f", "--mount-proc", env!("CARGO_BIN_EXE_faultless"), "run", "--", "true"]);
    inner.env("FAULTLESS_LIBRARY", library()).env("XDG_RUNTIME_DIR", &pages);
    let made = inner.output().is_ok_and(|out| out.status.success());
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), 1);
    drop(outer.stdout.take());
    outer.wait().unwrap();
    if !made {
        faultless_testkit::skip("no PID namespace can be made");
        return;
    }
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(report["totals"]["malloc_served"], 1, "{report}");
}

/// Two processes of the same number in different PID namespaces have a page each.
#[test]
fn numbers_of_another_namespace_are_other_processes() {
    let scratch = Scratch::new("namespaces");
    let file = scratch.0.join("out.json");
    // The first process of a namespace has the number 1.
    let dd = "unshare -p -f dd if=/dev/zero of=/dev/null bs=8M count=1 2>/dev/null";
    let mut command = run(["--json", file.to_str().unwrap(), "--", "sh", "-c", &format!("{dd} && {dd}")]);
    if !command.output().unwrap().status.success() {
        faultless_testkit::skip("no PID namespace can be made");
        return;
    }
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let pids: Vec<_> = report["processes"].as_array().unwrap().iter().map(|process| &process["pid"]).collect();
    assert_eq!((pids, &report["totals"]["malloc_served"]), (vec![&1.into(), &1.into()], &2.into()), "{report}");
}

/// The next command removes what is left behind; asserts that it does so.
fn is_removed_by_the_next(runtime: &Scratch) {
    for _ in 0..200 {
        next(runtime);
        if runtime.entries() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the directory is left behind");
}

fn next(runtime: &Scratch) {
    common::run(["--", "true"]).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
}

/// A program that its command does not wait for is watched as before.
#[test]
fn a_process_that_outlives_its_command_can_be_watched() {
    let (runtime, scratch) = (Scratch::new("outlives"), Scratch::new("outlives-pid"));
    let file = scratch.0.join("pid");
    let script = format!("dd if=/dev/zero bs=8M count=2 2>/dev/null & echo $! >{}; read line", file.display());
    let mut command = run(["--", "sh", "-c", &script]);
    command.env("XDG_RUNTIME_DIR", &runtime.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut command = command.spawn().unwrap();
    // The program has its page by now.
    command.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop(command.stdin.take());
    let output = command.stdout.take();
    command.wait().unwrap();
    let pid = std::fs::read_to_string(file).unwrap().trim().to_owned();
    let said = |args: &[&str]| {
        let out = faultless(args).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
        (text(&out.stdout).to_owned(), text(&out.stderr).to_owned())
    };
    let (one, why) = said(&["stat", "-p", &pid, "--once", "--json"]);
    let report: Value = serde_json::from_str(&one).expect(&why);
    assert_eq!(report["totals"]["malloc_served"], 1, "{report}");
    assert!(said(&["stat"]).0.contains(&format!("{pid} ")));
    assert!(said(&["stat", "--openmetrics"]).0.contains(&format!("pid=\"{pid}\"")));
    assert_eq!(said(&["sysctl", "-p", &pid, "scrub=0"]).0, "scrub = 0\n");
    next(&runtime);
    assert_eq!(runtime.entries(), 1, "it is in use");
    drop(output);
    is_removed_by_the_next(&runtime);
}

/// The page of a process in a PID namespace is in use as long as that process goes on.
#[test]
fn a_directory_stays_for_a_process_in_a_namespace() {
    let runtime = Scratch::new("inside");
    if !Command::new("unshare").args(["-p", "-f", "true"]).status().is_ok_and(|status| status.success()) {
        faultless_testkit::skip("no PID namespace can be made");
        return;
    }
    let mut command = run(["--", "unshare", "-p", "-f", "dd", "if=/dev/zero", "bs=8M", "count=2"]);
    command.env("XDG_RUNTIME_DIR", &runtime.0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut command = command.spawn().unwrap();
    command.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    command.kill().unwrap();
    command.wait().unwrap();
    next(&runtime);
    assert_eq!(runtime.entries(), 1, "it is in use");
    drop(command.stdout.take());
    is_removed_by_the_next(&runtime);
}

#[test]
fn a_directory_that_a_killed_command_left_is_removed_by_the_next() {
    let runtime = Scratch::new("left");
    let mut run = run(["--", "sh", "-c", "dd if=/dev/zero bs=8M count=1 2>/dev/null; exec sleep 0.3"]);
    let mut left =
        run.env("XDG_RUNTIME_DIR", &runtime.0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    left.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    left.kill().unwrap();
    left.wait().unwrap();
    assert_eq!(runtime.entries(), 1);
    // The program goes on; it ends when the reader of its output is gone.
    drop(left.stdout.take());
    is_removed_by_the_next(&runtime);
}
