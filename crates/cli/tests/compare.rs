//! `faultless run --compare`: what is compared, what each run gets, and what is written.

mod common;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, run, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn output<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    run(args).output().unwrap()
}

fn json(file: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn comparing_runs_both_ways_and_tells() {
    let scratch = Scratch::new("compare");
    let (log, file) = (scratch.0.join("log"), scratch.0.join("out.json"));
    let script = format!("echo \"${{LD_PRELOAD:+f}}\" >>{}; echo lost; echo heard >&2; exit 4", log.display());
    let out = output(["--compare", "3", "--json", file.to_str().unwrap(), "--", "sh", "-c", &script]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("not enough runs to tell") && !said.contains("lost"), "{said}");
    assert!(said.contains("byte for byte: output, error output, end."), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    assert_eq!(text(&out.stderr), "heard\n", "what is the same in all runs is shown once");
    // Plain first, then faultless first, and so on.
    assert_eq!(std::fs::read_to_string(log).unwrap(), "\nf\nf\n\n\nf\n");
    let json = json(&file);
    assert_eq!((&json["pairs"], &json["interrupted"]), (&3.into(), &false.into()));
    assert_eq!(json["wall_s"]["runs"].as_array().unwrap().len(), 3);
    assert_eq!(json["minor_faults"]["ratio"]["verdict"], "too_few_runs");
    assert!(json["memory"].is_null() || json["memory"]["before"]["warm"].is_boolean(), "{json:#}");
    let documented = include_str!("../src/run/compare/mod.rs");
    for field in json.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

/// A difference comes before everything else, and is the status.
#[test]
fn what_is_different_is_the_headline() {
    let scratch = Scratch::new("different");
    let file = scratch.0.join("out.json");
    let table = [
        (
            "test -z \"$LD_PRELOAD\" || exit 5",
            "DIFFERENT: the end",
            "plain by status 0, faultless by status 5",
            "end",
        ),
        ("echo a; echo \"b${LD_PRELOAD:+x}\"", "DIFFERENT: the output", "first at byte 4 (line 2)", "output"),
        ("echo \"${LD_PRELOAD:+x}\" >&2", "DIFFERENT: the error output", "first at byte 1", "error_output"),
        ("test -z \"$LD_PRELOAD\" || kill -9 $$", "DIFFERENT: the end", "faultless by signal 9", "end"),
    ];
    for pairs in ["1", "2"] {
        for (script, headline, how, part) in table {
            let out = output(["--compare", pairs, "--json", file.to_str().unwrap(), "--", "sh", "-c", script]);
            let said = text(&out.stdout);
            assert_eq!(out.status.code(), Some(1), "{said}");
            let joined = said.replace('\n', " ");
            assert!(said.starts_with(headline) && joined.contains(how), "{said}");
            assert_eq!(json(&file)["same"][part], "differs");
        }
    }
}

/// A program that says something else each time is not said to differ, also when there is one pair only.
#[test]
fn what_varies_by_itself_is_not_compared() {
    for pairs in ["1", "3"] {
        let out = output(["--compare", pairs, "--", "sh", "-c", "echo $$; exit 3"]);
        let said = text(&out.stdout);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("plain runs differ among themselves: output."), "{said}");
    }
}

#[test]
fn every_run_reads_the_same_input() {
    let scratch = Scratch::new("input");
    let log = scratch.0.join("log");
    let script = format!("cat >>{}; cat", log.display());
    let args = ["--compare", "2", "--", "sh", "-c", &script];
    // Through a pipe.
    let mut child = run(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"piped\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "piped\n".repeat(4));
    // From a file, from where it stands.
    std::fs::remove_file(&log).unwrap();
    std::fs::write(scratch.0.join("in"), "not this\nthis\n").unwrap();
    let mut file = File::open(scratch.0.join("in")).unwrap();
    file.seek(SeekFrom::Start(9)).unwrap();
    assert_eq!(run(args).stdin(file).output().unwrap().status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "this\n".repeat(4));
    // Else nothing.
    std::fs::remove_file(&log).unwrap();
    assert_eq!(run(args).stdin(Stdio::null()).output().unwrap().status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
}

#[test]
fn warming_up_does_not_count_and_a_command_comes_before_each_run() {
    let scratch = Scratch::new("prepare");
    let (log, file) = (scratch.0.join("log"), scratch.0.join("out.json"));
    let note = |word: &str| format!("echo {word} >>{}", log.display());
    let (prepare, script) = (note("before"), note("run"));
    let options =
        ["--compare", "1", "--warmup", "2", "--prepare", &prepare, "--export-json", file.to_str().unwrap()];
    let out = run(options).args(["--", "sh", "-c", &script]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "before\nrun\n".repeat(6));
    assert_eq!(json(&file)["wall_s"]["runs"].as_array().unwrap().len(), 1);
    let out = output(["--compare", "1", "--prepare", "exit 3", "--", "sh", "-c", &script]);
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("--prepare ended by status 3"), "{}", text(&out.stderr));
    let out = output(["--warmup", "2", "--", "true"]);
    assert_eq!(out.status.code(), Some(125), "--warmup alone means nothing");
}

#[test]
fn what_was_measured_is_exported_or_an_error() {
    let scratch = Scratch::new("export");
    let file = |name: &str| scratch.0.join(name).to_str().unwrap().to_owned();
    let (csv, markdown) = (file("out.csv"), file("out.md"));
    let out = output(["--compare", "2", "--export-csv", &csv, "--export-markdown", &markdown, "--", "true"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let lines = std::fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{lines}");
    let ways: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1], row[2])).collect();
    let expected = [("1", "plain", "1"), ("1", "faultless", "2"), ("2", "plain", "2"), ("2", "faultless", "1")];
    assert_eq!(ways, expected);
    let table = std::fs::read_to_string(&markdown).unwrap();
    assert!(table.starts_with('|') && table.lines().nth(1).unwrap().starts_with("|-"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 7, "{table}");
    for option in ["--export-csv", "--export-markdown", "--export-json"] {
        let out = output(["--compare", "1", option, "/dev/full", "--", "true"]);
        assert_eq!(out.status.code(), Some(125), "{option}");
        assert!(text(&out.stderr).contains("cannot write /dev/full"), "{}", text(&out.stderr));
        let out = output(["--compare", "1", option, "/nonexistent/file", "--", "touch", &file("ran")]);
        assert_eq!((out.status.code(), scratch.0.join("ran").exists()), (Some(125), false), "{option}");
    }
}

#[test]
fn an_interrupt_shows_what_was_measured_so_far() {
    let scratch = Scratch::new("interrupt");
    let (log, file) = (scratch.0.join("log"), scratch.0.join("out.json"));
    // From the fourth run on it waits.
    let log_name = log.display();
    let script = format!("echo run >>{log_name}; test $(wc -l <{log_name}) -lt 4 || exec sleep 60");
    let args = ["--compare", "9", "--json", file.to_str().unwrap(), "--", "sh", "-c", &script];
    let child = run(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < 4 {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = text(&out.stdout);
    assert_eq!(out.status.signal(), Some(libc::SIGINT), "{said}");
    assert!(said.contains("Interrupted: 1 of 9 pairs were run.") && said.contains("wall"), "{said}");
    let json = json(&file);
    assert_eq!(
        (&json["interrupted"], &json["pairs"], &json["wanted_pairs"]),
        (&true.into(), &1.into(), &9.into())
    );
}

#[test]
fn an_interrupt_before_anything_was_measured_keeps_old_files() {
    let scratch = Scratch::new("keep");
    let (log, file) = (scratch.0.join("log"), scratch.0.join("out.json"));
    std::fs::write(&file, "old").unwrap();
    let script = format!("echo run >>{}; exec sleep 60", log.display());
    let name = file.to_str().unwrap();
    for option in ["--json", "--export-csv", "--export-markdown"] {
        let _ = std::fs::remove_file(&log);
        let args = ["--compare", "9", option, name, "--", "sh", "-c", &script];
        let child = run(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while std::fs::read_to_string(&log).unwrap_or_default().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait_with_output().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old", "{option}");
    }
    // A shorter one leaves nothing of what was there.
    std::fs::write(&file, "x".repeat(1 << 20)).unwrap();
    assert!(output(["--compare", "1", "--json", name, "--", "true"]).status.success());
    assert_eq!(json(&file)["pairs"], 1);
}

/// A program that signals its own group, or its parent, is not interrupted by that: it ends as it does.
#[test]
fn signals_of_the_programs_own_do_not_interrupt() {
    for (script, status, signal) in [
        ("kill -TERM $$", None, Some(libc::SIGTERM)),
        ("kill -TERM 0", None, Some(libc::SIGTERM)),
        ("trap '' TERM; kill -TERM 0; echo on; exit 3", Some(3), None),
        ("trap '' INT; kill -INT $PPID; exit 4", Some(4), None),
    ] {
        let out = run(["--compare", "2", "--", "sh", "-c", script]).process_group(0).output().unwrap();
        let said = text(&out.stdout);
        assert!(!said.contains("Interrupted") && said.contains("2 pairs of runs"), "{script}: {said}");
        assert!(said.contains("byte for byte: output, error output, end."), "{script}: {said}");
        assert_eq!((out.status.code(), out.status.signal()), (status, signal), "{script}: {said}");
    }
}

/// The time for which a program was stopped is not its own.
#[test]
fn a_stopped_program_takes_no_time() {
    let scratch = Scratch::new("stopped");
    let file = scratch.0.join("out.json");
    let args = ["--compare", "1", "--json", file.to_str().unwrap(), "--", "sh", "-c", "kill -STOP $$"];
    let start = Instant::now();
    let mut child = run(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_stopped = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        text.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let mut stopped = Duration::ZERO;
    for _ in 0..2 {
        while !is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let since = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        stopped += since.elapsed();
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        while is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    child.wait().unwrap();
    let runs = &json(&file)["wall_s"]["runs"][0];
    let sum = runs[0].as_f64().unwrap() + runs[1].as_f64().unwrap();
    assert!(sum <= (start.elapsed() - stopped).as_secs_f64(), "{runs}: stopped for {stopped:?}");
}

#[test]
fn what_was_measured_before_an_error_is_shown() {
    let scratch = Scratch::new("late");
    let (log, file) = (scratch.0.join("log"), scratch.0.join("out.json"));
    let prepare = format!("echo >>{0}; test $(wc -l <{0}) -lt 6", log.display());
    let options = ["--compare", "9", "--prepare", &prepare, "--json", file.to_str().unwrap(), "--", "true"];
    let out = output(options);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(125), "{said}");
    assert!(text(&out.stderr).contains("--prepare ended by status 1"), "{}", text(&out.stderr));
    assert!(said.contains("Interrupted: 2 of 9 pairs were run.") && said.contains("wall"), "{said}");
    assert_eq!(json(&file)["pairs"], 2);
    // One file that cannot be written leaves the others.
    let table = scratch.0.join("out.md");
    let options = ["--export-json", "/dev/full", "--export-markdown", table.to_str().unwrap()];
    let out = run(["--compare", "1"]).args(options).args(["--", "true"]).output().unwrap();
    assert_eq!(out.status.code(), Some(125));
    assert!(std::fs::read_to_string(&table).unwrap().starts_with('|'));
}

#[test]
fn programs_that_were_served_are_named() {
    let dd = "dd if=/dev/zero of=/dev/null bs=8M count=1 2>/dev/null";
    let script = format!("{dd}; {dd}; head -c 9000000 /dev/zero | sort -z -o /dev/null");
    let out = output(["--compare", "1", "--", "sh", "-c", &script]);
    assert!(text(&out.stdout).contains("dd x 2"), "{}", text(&out.stdout));
    let out = output(["--compare", "1", "--tree", "--", "sh", "-c", &script]);
    assert!(text(&out.stdout).contains("processes that made large requests:"), "{}", text(&out.stdout));
}

/// The second would write over the first.
#[test]
fn two_reports_do_not_go_to_one_file() {
    let scratch = Scratch::new("reports");
    let (file, link) = (scratch.0.join("report"), scratch.0.join("link"));
    std::fs::write(&file, "before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (name, link) = (file.to_str().unwrap(), link.to_str().unwrap());
    for args in [["--json", name, "--export-csv", name], ["--export-csv", name, "--export-markdown", link]] {
        let mut words = vec!["--compare", "1"];
        words.extend(args.into_iter().chain(["--", "true"]));
        let out = output(words);
        assert_eq!(out.status.code(), Some(125));
        assert!(text(&out.stderr).contains("cannot hold two reports"), "{}", text(&out.stderr));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    }
}
