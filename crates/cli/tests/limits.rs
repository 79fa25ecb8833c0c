//! Nothing of the command's own counts against the program's limits, and no path is too odd.

mod common;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::{Scratch, faultless, is_root, library, run, text};
use faultless_testkit::copy_program;

const DD: [&str; 5] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1"];

/// `faultless run` with these words, started by a shell that sets limits first.
fn limited(limits: &str, words: &[&str]) -> Output {
    let inner = run(words);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().unwrap()
}

#[test]
fn a_program_runs_with_the_limits_that_it_would_run_with() {
    // Files in blocks of 512 bytes: of a page, and of half of one.
    for limits in [
        "ulimit -f 0",
        "ulimit -f 8",
        "ulimit -s 64",
        "ulimit -n 4",
        "ulimit -l 0",
        "ulimit -c 0; ulimit -f 0; ulimit -s 64",
    ] {
        for options in [&["--"][..], &["--quiet", "--"]] {
            let print = [
                "sh",
                "-c",
                "ulimit -f; ulimit -s; ulimit -n; exec dd if=/dev/zero bs=8M count=1 2>/dev/null | wc -c",
            ];
            // A shell with four descriptors can make no pipe.
            let words = if limits.contains("-n") { &["cat", "/proc/self/limits"][..] } else { &print };
            let out = limited(limits, &[options, words].concat());
            let plain = Command::new("sh")
                .args(["-c", &format!("{limits}; exec \"$@\""), "sh"])
                .args(words)
                .output()
                .unwrap();
            assert_eq!(text(&out.stdout), text(&plain.stdout), "{limits}: {}", text(&out.stderr));
            assert_eq!(out.status, plain.status, "{limits}");
        }
    }
}

/// The limit may come later, too.
#[test]
fn a_limit_on_files_ends_no_program() {
    for blocks in ["0", "8"] {
        let script = format!("ulimit -f {blocks}; exec {}", DD.join(" "));
        let out = run(["--", "sh", "-c", &script]).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert!(said.contains("known") && !said.contains("no large request"), "{said}");
    }
}

/// A comparison keeps output in files: it says so where that ended a run.
#[test]
fn a_limit_on_files_is_named_in_a_comparison() {
    let of = |bytes: u32| {
        let out = limited("ulimit -f 1", &["--compare", "1", "--", "head", "-c", &bytes.to_string(), "/dev/zero"]);
        text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(of(100_000).contains("A run was ended because files are limited (ulimit -f)"), "{}", of(100_000));
    assert!(!of(10).contains("ulimit"), "{}", of(10));
}

/// No place among those that are named.
#[test]
fn odd_places_for_files_are_passed_over() {
    let scratch = Scratch::new("places");
    // The library names its file by less than 512 bytes.
    let long = scratch.0.join("x".repeat(250)).join("x".repeat(250));
    std::fs::create_dir_all(&long).unwrap();
    for place in
        [long.as_os_str(), "/nonexistent".as_ref(), "relative".as_ref(), "".as_ref(), "/dev/null".as_ref()]
    {
        let with = |options: &[&str]| {
            let mut command = run([options, &["--"], &DD].concat());
            command.env("TMPDIR", place).env("XDG_RUNTIME_DIR", place).current_dir(&scratch.0).output().unwrap()
        };
        let out = with(&[]);
        assert!(text(&out.stderr).contains("1 process covered;"), "{place:?}: {}", text(&out.stderr));
        let out = with(&["--compare", "1"]);
        assert_eq!(out.status.code(), Some(0), "{place:?}: {}", text(&out.stderr));
    }
}

/// The program runs to its end, recorded or not.
#[test]
fn a_recording_without_memory_ends_no_program() {
    for kib in [1000, 2000, 3000, 4000, 6000, 12_000] {
        let script = format!("ulimit -d {kib}; exec \"$@\"");
        let inner = faultless(["record", "-o", "/dev/null", "--", "sh", "-c", "exit 5"]);
        let out = Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(inner.get_program())
            .args(inner.get_args())
            .output();
        let out = out.unwrap();
        assert_eq!(out.status.code(), Some(5), "{kib}: {}", text(&out.stderr));
    }
}

#[test]
fn descriptors_are_the_programs_own() {
    let out = limited("ulimit -n 4", &[&["--"][..], &DD].concat());
    assert!(out.status.success() && text(&out.stderr).contains("1 process covered"), "{}", text(&out.stderr));
    let list = ["sh", "-c", "ls /proc/self/fd | wc -l"];
    let plain = Command::new(list[0]).args(&list[1..]).output().unwrap();
    assert_eq!(run([&["--"][..], &list].concat()).output().unwrap().stdout, plain.stdout);
}

/// The loader splits its list at spaces and colons.
#[test]
fn the_library_may_have_any_path() {
    let scratch = Scratch::new("path");
    for name in ["a b", "a:b", "$LIB", "x;y"] {
        let dir = scratch.0.join(name);
        std::fs::create_dir(&dir).unwrap();
        let copy = dir.join("libfaultless_preload.so");
        std::fs::copy(library(), &copy).unwrap();
        for options in [&["--"][..], &["--no-children", "--"]] {
            let out = run([options, &DD].concat())
                .env("FAULTLESS_LIBRARY", &copy)
                .env("TMPDIR", &scratch.0)
                .output()
                .unwrap();
            let said = text(&out.stderr);
            assert!(out.status.success() && said.contains("1 process covered"), "{name}: {said}");
        }
        let child = [
            "--no-children",
            "--",
            "sh",
            "-c",
            "echo \"[$LD_PRELOAD]\"; dd if=/dev/zero of=/dev/null bs=8M count=1; true",
        ];
        let out = run(child).env("FAULTLESS_LIBRARY", &copy).env("TMPDIR", &scratch.0).output().unwrap();
        assert!(text(&out.stderr).contains("nothing covered"), "{name}: {}", text(&out.stderr));
    }
}

/// A user who may have no more processes still runs the program.
#[test]
fn a_limit_on_processes_costs_the_summary_alone() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("processes");
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o755)).unwrap();
    let copies = [(env!("CARGO_BIN_EXE_faultless").as_ref(), "faultless"), (library(), "libfaultless_preload.so")];
    for (from, name) in copies {
        copy_program(from, scratch.0.join(name));
    }
    // A user of whom there is nothing else here.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "64321", "--regid", "64321", "--clear-groups", "--", "prlimit", "--nproc=1:1", "--"]);
    command.arg(scratch.0.join("faultless")).args(["run", "--", "echo", "out"]).current_dir("/");
    command.env_remove("FAULTLESS_LIBRARY").env("XDG_CONFIG_HOME", "/dev/null").env("TMPDIR", OsStr::new("/tmp"));
    let out = command.output().unwrap();
    let said = text(&out.stderr);
    assert_eq!((text(&out.stdout), out.status.code()), ("out\n", Some(0)), "{said}");
    assert!(said.contains("no process is left"), "{said}");
}
