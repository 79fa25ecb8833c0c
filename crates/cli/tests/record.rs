//! `faultless record` and `faultless report` from outside, on programs whose faults are known.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::recording::{compiled, is_sampled, json, record, report};
use common::{Scratch, faultless, text};
use serde_json::Value;

/// Without the C library, so that all of its faults are in sight: it touches that many pages, and says at its end what
/// the kernel has counted. All that runs after that has run before.
const EXACT: &str = r#"
static long call(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long usage[18];
static char digits[32];
static long before;

__attribute__((noinline)) void fill_pages(volatile char *pages, long n)
{
    for (long i = 0; i < n; i++)
        pages[i * 4096] = 1;
}

__attribute__((noinline)) static void tell(int file)
{
    call(98, 0, (long)usage, 0, 0, 0, 0);
    long faults = usage[8] + usage[9] - before, at = 32;
    digits[--at] = '\n';
    for (; faults > 0; faults /= 10)
        digits[--at] = '0' + faults % 10;
    call(1, file, (long)digits + at, 32 - at, 0, 0, 0);
}

void _start(void)
{
    char *pages = (char *)call(9, 0, PAGES * 4096l, 3, 0x22, -1, 0);
    call(28, (long)pages, PAGES * 4096l, 15, 0, 0, 0);
    tell(-1);
#ifdef WAITS
    call(0, 0, (long)digits, 1, 0, 0, 0);
    call(98, 0, (long)usage, 0, 0, 0, 0);
    before = usage[8] + usage[9];
#endif
    fill_pages(pages, PAGES);
    tell(1);
    call(60, 3, 0, 0, 0, 0, 0);
}
"#;

const PAGES: u64 = 20_000;

fn exact(scratch: &Scratch, more: &str) -> PathBuf {
    let pages = format!("-DPAGES={PAGES}");
    let flags = ["-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", &pages, more];
    compiled(scratch, EXACT, &flags)
}

#[test]
fn faults_are_counted_exactly_and_named() {
    let scratch = Scratch::new("record-exact");
    let program = exact(&scratch, "-DPLAIN");
    for period in ["1", "61", "1000000"] {
        let out = record(&scratch, &["--period", period], &[program.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
        let own: u64 = text(&out.stdout).trim().parse().unwrap();
        assert!(own >= PAGES);
        assert!(text(&out.stderr).contains(&format!("{own} page faults recorded")), "{}", text(&out.stderr));
        let summary = json(&scratch);
        assert_eq!(summary["faults"]["total"], own, "period {period}");
        assert_eq!(summary["faults"]["source"], if is_sampled(&summary) { "counted" } else { "getrusage" });
        assert_eq!(summary["recording"]["status"], "status 3");
        if period == "61" && is_sampled(&summary) {
            assert!(summary["faults"]["exceptions"].as_u64().unwrap() >= PAGES);
            let first = |table: &str| summary[table][0].clone();
            assert_eq!(first("functions")["name"], "fill_pages");
            assert_eq!(first("mappings")["class"], "anonymous");
            assert_eq!(first("mappings")["largest_bytes"], PAGES * 4096);
            assert_eq!(first("kinds")["kind"], "first_touch");
            for table in ["functions", "mappings", "kinds"] {
                assert!(first(table)["share"].as_f64().unwrap() > 0.95, "{table}");
            }
            assert_eq!(first("stacks")["frames"].as_array().unwrap().last().unwrap(), "fill_pages");
            // No library can be loaded with it. All of it is one piece, touched page by page.
            let avoidable = summary["avoidable"].as_array().unwrap();
            let of = |way: &str, key: &str| {
                avoidable.iter().find(|of| of["way"] == way).unwrap()[key].as_u64().unwrap()
            };
            assert_eq!((of("faultless", "least"), of("faultless", "most")), (0, 0));
            let most = of("populate", "most");
            assert!(most > PAGES * 95 / 100 && most <= own, "{most}");
            assert!(summary["recording"]["not_covered"].as_str().unwrap().contains("statically linked"));
            assert_ne!(summary["advice"]["action"], "run", "{}", summary["advice"]);
            let huge = avoidable.iter().find(|of| of["way"] == "huge_pages");
            assert!(huge.is_none_or(|huge| huge["most"].as_u64() < Some(own)), "{avoidable:?}");
            let shown = report(&scratch, &[]);
            assert!(text(&shown.stdout).contains("fill_pages (program)"), "{}", text(&shown.stdout));
        }
    }
}

/// Gets 32 MiB in one of several ways, and touches all of it.
const WAYS: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words)
{
    long n = 32 << 20;
    int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *pages = 0;
    switch (words[1][0]) {
    case 'm': pages = mmap(0, n, access, flags, -1, 0); break;
    case 'o': pages = mmap(0, n, PROT_NONE, flags, -1, 0); mprotect(pages, n, access); break;
    case 'x': pages = mmap(0, n, access | PROT_EXEC, flags, -1, 0); break;
#ifdef MAP_32BIT
    case '3': pages = mmap(0, n, access, flags | MAP_32BIT, -1, 0); break;
#endif
    case 'h': pages = sbrk(0); if (brk(pages + n)) return 1; break;
    }
    if (pages == MAP_FAILED)
        return 1;
    madvise(pages, n, MADV_NOHUGEPAGE);
    for (long i = 0; i < n; i += 4096)
        ((volatile char *)pages)[i] = 1;
    return 0;
}
"#;

/// What faultless leaves to the kernel, it does not avoid.
#[test]
fn what_faultless_does_not_serve_is_not_promised() {
    let scratch = Scratch::new("record-ways");
    let program = compiled(&scratch, WAYS, &[]);
    let program = program.to_str().unwrap();
    let static_one = scratch.0.join("static");
    for (way, is_least, is_most) in
        [("m", true, true), ("o", false, true), ("x", false, false), ("3", false, true), ("h", false, true)]
    {
        if way == "3" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let out = record(&scratch, &[], &[program, way]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let summary = json(&scratch);
        if !is_sampled(&summary) {
            return;
        }
        let rows = summary["avoidable"].as_array().unwrap();
        let row = rows.iter().find(|of| of["way"] == "faultless").unwrap();
        let has = |key: &str| row[key].as_u64().unwrap() > 7000;
        assert_eq!((has("least"), has("most")), (is_least, is_most), "{way}: {row}");
        assert_eq!(summary["recording"]["not_covered"], Value::Null);
    }
    // Linked statically, with the same C library.
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static"]).arg(scratch.0.join("program.c")).arg("-o").arg(&static_one);
    if !cc.output().unwrap().status.success() {
        return faultless_testkit::skip("no static C library");
    }
    record(&scratch, &[], &[static_one.to_str().unwrap(), "m"]);
    let summary = json(&scratch);
    let rows = summary["avoidable"].as_array().unwrap();
    assert!(rows.iter().all(|of| of["way"] != "faultless" || of["most"] == 0), "{rows:?}");
    assert!(summary["recording"]["not_covered"].as_str().unwrap().contains("is statically linked"));
    assert_ne!(summary["advice"]["action"], "run", "{}", summary["advice"]);
}

#[test]
fn a_process_that_runs_is_recorded_exactly() {
    let scratch = Scratch::new("record-pid");
    let program = exact(&scratch, "-DWAITS");
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap(), "-p", &child.id().to_string()]);
    let mut recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line.contains("perf_event") {
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(recorder.wait().unwrap().code(), Some(77));
        return faultless_testkit::skip("faults cannot be sampled here");
    }
    assert!(line.contains("recording process"), "{line}");
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let mut own = String::new();
    child.stdout.take().unwrap().read_to_string(&mut own).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let summary = json(&scratch);
    assert_eq!(summary["faults"]["total"], own.trim().parse::<u64>().unwrap());
    assert_eq!(summary["faults"]["exceptions"], summary["faults"]["total"]);
    assert_eq!(summary["functions"][0]["name"], "fill_pages");
    assert_eq!(summary["mappings"][0]["class"], "anonymous");
    assert_eq!(summary["threads"][0]["name"], "program");
    assert_eq!(summary["recording"]["pid"], child.id());
    let out = faultless(["record", "-o", file.to_str().unwrap(), "-p", "2147483000"]).output().unwrap();
    assert_eq!(
        (out.status.code(), text(&out.stderr)),
        (Some(1), "faultless: process 2147483000: there is no such process, or it has ended\n")
    );
}

/// A process may have written the names of its functions long before it is recorded.
#[test]
fn functions_that_were_named_before_have_their_names() {
    let scratch = Scratch::new("record-named");
    let program = exact(&scratch, "-DWAITS");
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let names = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
    std::fs::write(&names, "1000 7fffffffefff made_before\n").unwrap();
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap(), "-p", &child.id().to_string()]);
    let mut recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    child.wait().unwrap();
    recorder.wait().unwrap();
    std::fs::remove_file(names).unwrap();
    if line.contains("perf_event") {
        return faultless_testkit::skip("faults cannot be sampled here");
    }
    assert_eq!(json(&scratch)["functions"][0]["name"], "made_before");
}

/// A program may write its names before anything else.
#[test]
fn functions_that_are_named_at_once_have_their_names() {
    let scratch = Scratch::new("record-named-early");
    let program = exact(&scratch, "-DPLAIN");
    let script = "echo '1000 7fffffffefff made_early' >/tmp/perf-$$.map; echo $$ >&2; exec \"$0\"";
    for _ in 0..5 {
        let out = record(&scratch, &["--quiet"], &["sh", "-c", script, program.to_str().unwrap()]);
        std::fs::remove_file(format!("/tmp/perf-{}.map", text(&out.stderr).lines().last().unwrap())).unwrap();
        let summary = json(&scratch);
        if !is_sampled(&summary) {
            return;
        }
        assert_eq!(summary["functions"][0]["name"], "made_early", "{}", text(&out.stderr));
    }
}

/// Forbids perf_event_open, as containers do, and executes its arguments.
const FORBIDS: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = { sizeof rules / sizeof *rules, rules };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all))
        return 99;
    execvp(words[1], words + 1);
    return 98;
}
"#;

#[test]
fn without_rights_faults_are_counted_all_the_same() {
    let (scratch, other) = (Scratch::new("record-rights"), Scratch::new("record-rights-by"));
    let (program, forbids) = (exact(&scratch, "-DPLAIN"), compiled(&other, FORBIDS, &[]));
    let file = scratch.0.join("it.rec");
    let whole = faultless(["record", "-o", file.to_str().unwrap(), "--", program.to_str().unwrap()]);
    let mut command = Command::new(forbids);
    command.arg(whole.get_program()).args(whole.get_args());
    for (name, value) in whole.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("counted, but not sampled: perf_event_open is not permitted"));
    let own: u64 = text(&out.stdout).trim().parse().unwrap();
    let summary = json(&scratch);
    assert_eq!((&summary["faults"]["total"], &summary["faults"]["source"]), (&own.into(), &"getrusage".into()));
    assert!(summary["notes"][0].as_str().unwrap().contains("counted, not sampled"));
    let shown = report(&scratch, &[]);
    assert!(text(&shown.stdout).contains("page faults"), "{}", text(&shown.stdout));
}

#[test]
fn a_program_that_forks_often_is_recorded_whole() {
    let scratch = Scratch::new("record-forks");
    let script = "i=0; while [ $i -lt 1000 ]; do (exit 0); i=$((i+1)); done; kill -TERM $$";
    let out = record(&scratch, &[], &["sh", "-c", script]);
    assert_eq!(out.status.signal(), Some(libc::SIGTERM), "{}", text(&out.stderr));
    let summary = json(&scratch);
    assert_eq!(
        (&summary["recording"]["complete"], &summary["recording"]["status"]),
        (&true.into(), &"signal 15".into())
    );
    if is_sampled(&summary) {
        // A ring that was full, on a busy machine, may have had no room for the beginning of a process.
        let (processes, lost) = (&summary["recording"]["processes"], &summary["recording"]["lost"]);
        assert!(*processes == 1001 || processes.as_u64() < Some(1001) && lost.as_u64() > Some(0), "{summary}");
        // Each process begins a period of its own, so few of such short ones have a record.
        let kinds = summary["kinds"].as_array().unwrap();
        let is_few = summary["recording"]["samples"].as_u64() < Some(10);
        assert!(is_few || kinds.iter().any(|by| by["kind"] == "copy"), "{kinds:?}");
    }
}

/// Recording takes many files itself; the program's limit stays what it was.
#[test]
fn the_limit_of_open_files_stays_the_programs() {
    let scratch = Scratch::new("record-files");
    let file = scratch.0.join("it.rec");
    let inner = ["sh", "-c", "ulimit -Sn; ls /proc/self/fd"];
    let limited = |words: &[&std::ffi::OsStr]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -Sn 12; exec \"$@\"", "sh"]).args(words).output().unwrap()
    };
    let whole = faultless(["record", "-o", file.to_str().unwrap(), "--"]);
    let words = [whole.get_program()].into_iter().chain(whole.get_args()).chain(inner.map(AsRef::as_ref));
    let recorded = limited(&words.collect::<Vec<_>>());
    let plain = limited(&inner.map(AsRef::as_ref));
    assert!(text(&plain.stdout).starts_with("12\n"), "{}", text(&plain.stderr));
    assert_eq!(text(&recorded.stdout), text(&plain.stdout), "{}", text(&recorded.stderr));
    is_sampled(&json(&scratch));
}

#[test]
fn a_program_that_ends_at_once_is_recorded() {
    let scratch = Scratch::new("record-short");
    let out = record(&scratch, &["--quiet"], &["true"]);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    let summary = json(&scratch);
    assert!(summary["faults"]["total"].as_u64().unwrap() > 10);
    let mode = std::fs::metadata(scratch.0.join("it.rec")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others do not see what ran");
    let out = record(&scratch, &[], &["no-such-program"]);
    assert_eq!(out.status.code(), Some(127), "{}", text(&out.stderr));
}

#[test]
fn a_recording_has_other_forms() {
    let scratch = Scratch::new("record-forms");
    let program = exact(&scratch, "-DPLAIN");
    record(&scratch, &[], &[program.to_str().unwrap()]);
    if !is_sampled(&json(&scratch)) {
        return;
    }
    let lines = report(&scratch, &["--collapsed"]);
    let first = text(&lines.stdout).lines().next().unwrap().to_owned();
    assert!(first.rsplit_once(' ').is_some_and(|(stack, _)| stack.ends_with("fill_pages")), "{first}");
    let trace: Value = serde_json::from_slice(&report(&scratch, &["--chrome-trace"]).stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["args"]["function"] == "fill_pages"));
    let file = scratch.0.join("it.rec");
    let file = file.to_str().unwrap();
    let out = faultless(["report", "--diff", file, file, "--json"]).output().unwrap();
    let diff: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(diff["faults"]["a"], diff["faults"]["b"]);
    // The page: as a file, and the same to standard output; no file is written where the recording cannot be read.
    let page = scratch.0.join("it.html");
    let out = faultless(["report", file, "--html", page.to_str().unwrap()]).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), ""));
    let whole = std::fs::read(&page).unwrap();
    assert_eq!(report(&scratch, &["--html", "-"]).stdout, whole);
    assert!(text(&whole).contains("\"fill_pages\""));
    let none = scratch.0.join("none.html");
    let out = faultless(["report", "/dev/null", "--html", none.to_str().unwrap()]).output().unwrap();
    assert!(out.status.code() == Some(1) && !none.exists());
    let out = faultless(["report", "--diff", file, file]).output().unwrap();
    assert!(text(&out.stdout).contains("Faults by function"), "{}", text(&out.stdout));
}

#[test]
fn files_that_are_no_recordings_are_left_alone() {
    let scratch = Scratch::new("record-foreign");
    std::fs::write(scratch.0.join("it.rec"), "precious").unwrap();
    let out = record(&scratch, &[], &["true"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("is no recording"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read(scratch.0.join("it.rec")).unwrap(), b"precious");
    let out = report(&scratch, &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).ends_with("no recording of faultless\n"), "{}", text(&out.stderr));
    let out = faultless(["record", "-o", "/dev/full", "--", "sh", "-c", "echo done; exit 5"]).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(5), "done\n"), "the program runs to its end");
    let said = text(&out.stderr);
    assert!(said.contains("not complete") && said.contains(". The program took "), "{said}");
    let out = faultless(["record", "-o", "/dev/null", "--", "true"]).output().unwrap();
    assert!(text(&out.stderr).ends_with(" page faults recorded\n"), "{}", text(&out.stderr));
}

#[test]
fn a_pipe_that_closes_ends_the_report_as_by_its_signal() {
    let scratch = Scratch::new("record-pipe");
    record(&scratch, &["--period", "1"], &["true"]);
    for form in [&[][..], &["--json"], &["--collapsed"], &["--chrome-trace"], &["--html", "-"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let file = scratch.0.join("it.rec");
        let mut command = faultless(["report", file.to_str().unwrap()]);
        let status = command.args(form).stdout(writer).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGPIPE), "{form:?}");
    }
}
