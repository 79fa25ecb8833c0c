//! The file of a recording, and the process that is recorded, where they are not as one expects.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::recording::{compiled, is_sampled, json, record};
use common::{Scratch, faultless, text};

#[test]
fn a_program_that_cannot_start_leaves_the_recording_before_it() {
    let scratch = Scratch::new("record-kept");
    let file = scratch.0.join("it.rec");
    assert_eq!(record(&scratch, &[], &["no-such-program"]).status.code(), Some(127));
    assert!(!file.exists(), "nothing was recorded");
    record(&scratch, &[], &["true"]);
    let before = std::fs::read(&file).unwrap();
    assert_eq!(record(&scratch, &[], &["no-such-program"]).status.code(), Some(127));
    assert!(std::fs::read(&file).unwrap() == before);
    // A shorter recording has nothing of a longer one.
    std::fs::write(&file, [&before[..], &[0; 1 << 20]].concat()).unwrap();
    record(&scratch, &[], &["true"]);
    assert_eq!(json(&scratch)["recording"]["complete"], true);
    assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20);
}

#[test]
fn a_file_that_others_could_read_is_the_owners_alone() {
    let scratch = Scratch::new("record-mode");
    let file = scratch.0.join("it.rec");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(record(&scratch, &[], &["true"]).status.code(), Some(0));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_pipe_that_nobody_reads_is_not_waited_for() {
    faultless_testkit::limit::limit();
    let scratch = Scratch::new("record-fifo");
    assert!(Command::new("mkfifo").arg(scratch.0.join("it.rec")).status().unwrap().success());
    let out = record(&scratch, &[], &["echo", "ran"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""));
    assert!(text(&out.stderr).contains("nobody reads this pipe"), "{}", text(&out.stderr));
    // One with a reader holds a whole recording.
    let pipe = scratch.0.join("it.rec");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    let mut said = String::from("nobody");
    while said.contains("nobody") {
        said = text(&record(&scratch, &[], &["true"]).stderr).to_owned();
    }
    let whole = reader.join().unwrap();
    std::fs::remove_file(scratch.0.join("it.rec")).unwrap();
    std::fs::write(scratch.0.join("it.rec"), whole).unwrap();
    assert_eq!(json(&scratch)["recording"]["complete"], true, "{said}");
}

/// Touches pages, more than a pipe has room for records of; before that it waits if it is told to. No SIGTERM ends it.
const TOUCHES: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words)
{
    char byte;
    signal(SIGTERM, SIG_IGN);
    if (count > 1 && read(0, &byte, 1) != 1)
        return 4;
    volatile char *pages = mmap(0, 20000 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)pages, 20000 * 4096, MADV_NOHUGEPAGE);
    for (long i = 0; i < 20000; i++)
        pages[i * 4096] = 1;
    return 0;
}
"#;

/// Sends this signal until the process ends by it. One that comes before the program's end is the program's, and ignored.
fn ends_by(recorder: &mut Child, signal: i32) {
    for _ in 0..200 {
        if let Some(status) = recorder.try_wait().unwrap() {
            assert_eq!(status.signal(), Some(signal), "{status}");
            return;
        }
        // `env` gives its place to the command.
        let signal = format!("-{signal}");
        assert!(Command::new("kill").args([&signal, &recorder.id().to_string()]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(50));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    panic!("no signal ends it");
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_that_does_not_read() {
    faultless_testkit::limit::limit();
    let scratch = Scratch::new("record-unread");
    let program = compiled(&scratch, TOUCHES, &[]);
    let pipe = scratch.0.join("it.rec");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let options = ["record", "--period", "1", "-o", pipe.to_str().unwrap()];
    let mut command = faultless(options);
    let mut recorder = command.args(["--", program.to_str().unwrap()]).stderr(Stdio::piped()).spawn().unwrap();
    // Not sampled: then all of it fits, and nothing is waited for.
    let mut said = BufReader::new(recorder.stderr.take().unwrap());
    let is_sampled = || faultless(["record", "-o", "/dev/null", "--", "true"]).output().unwrap();
    if text(&is_sampled().stderr).contains("not sampled") {
        recorder.wait().unwrap();
        return faultless_testkit::skip("faults cannot be sampled here");
    }
    ends_by(&mut recorder, libc::SIGTERM);
    said.read_line(&mut String::new()).unwrap();
    // A process that runs already: the first signal ends its recording, the next one the command.
    let mut child = Command::new(&program).arg("waits").stdin(Stdio::piped()).spawn().unwrap();
    let mut command = faultless(options);
    let mut recorder = command.args(["-p", &child.id().to_string()]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(recorder.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"x").unwrap();
    child.wait().unwrap();
    ends_by(&mut recorder, libc::SIGINT);
}

#[test]
fn two_recorders_do_not_share_a_file() {
    faultless_testkit::limit::limit();
    let scratch = Scratch::new("record-two");
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap(), "--", "sh", "-c", "echo; read line"]);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let out = record(&scratch, &[], &["echo", "ran"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""));
    assert!(text(&out.stderr).contains("another faultless record writes to"), "{}", text(&out.stderr));
    drop(first.stdin.take());
    first.wait().unwrap();
    let summary = json(&scratch);
    assert_eq!(
        (&summary["recording"]["complete"], &summary["recording"]["command"][0]),
        (&true.into(), &"sh".into())
    );
}

/// However few files a program may open, its faults are counted.
#[test]
fn with_few_descriptors_faults_are_counted() {
    let scratch = Scratch::new("record-few");
    let file = scratch.0.join("it.rec");
    let whole = faultless(["record", "-o", file.to_str().unwrap(), "--", "true"]);
    for (kind, few) in [("-Sn", 10), ("-Sn", 12), ("-n", 8), ("-n", 10), ("-n", 11), ("-n", 12), ("-n", 14)] {
        let words = [whole.get_program()].into_iter().chain(whole.get_args());
        let limited = format!("ulimit {kind} {few}; exec \"$@\"");
        let out = Command::new("sh").args(["-c", &limited, "sh"]).args(words).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{kind} {few}: {}", text(&out.stderr));
        let summary = json(&scratch);
        assert!(summary["faults"]["total"].as_u64() > Some(10), "{kind} {few}: {}", text(&out.stderr));
        assert_eq!(summary["recording"]["complete"], true, "{kind} {few}");
        if let Some(why) = summary["notes"][0].as_str().filter(|note| note.contains("not sampled")) {
            let is_known = why.contains("too many open files") || why.contains("perf_event");
            assert!(is_known, "{kind} {few}: {why}");
        }
    }
}

/// Its first thread ends, the other one touches pages when it is told to.
const LEFT: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *works(void *nothing)
{
    char byte;
    printf("%ld\n", syscall(SYS_gettid));
    fflush(stdout);
    if (read(0, &byte, 1) != 1)
        exit(4);
    volatile char *pages = mmap(0, 4096 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)pages, 4096 * 4096, MADV_NOHUGEPAGE);
    for (long i = 0; i < 4096; i++)
        pages[i * 4096] = 1;
    exit(0);
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, works, 0);
    pthread_exit(0);
}
"#;

#[test]
fn a_process_is_recorded_by_any_of_its_threads_until_the_last_one_ends() {
    faultless_testkit::limit::limit();
    let scratch = Scratch::new("record-thread");
    let program = compiled(&scratch, LEFT, &["-pthread"]);
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut tid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut tid).unwrap();
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap(), "-p", tid.trim()]);
    let mut recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap();
    if first.contains("perf_event") {
        child.kill().unwrap();
        child.wait().unwrap();
        recorder.wait().unwrap();
        return faultless_testkit::skip("faults cannot be sampled here");
    }
    assert!(first.ends_with(&format!("{} is a thread of process {}", tid.trim(), child.id())), "{first}");
    assert!(lines.next().unwrap().contains("recording process"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"x").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let summary = json(&scratch);
    assert_eq!(
        (&summary["recording"]["pid"], &summary["recording"]["status"]),
        (&child.id().into(), &"the process's end".into())
    );
    assert!(summary["faults"]["total"].as_u64() >= Some(4096), "{}", summary["faults"]);
}

/// What `nohup` starts goes on when its terminal has gone.
#[test]
fn a_hangup_that_was_ignored_stays_so() {
    faultless_testkit::limit::limit();
    let scratch = Scratch::new("record-ignored");
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let file = scratch.0.join("it.rec");
    // Not by way of `faultless`, which gives all signals their defaults.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_faultless"), "record", "-o"]);
    shell.arg(&file).args(["-p", &child.id().to_string()]);
    let mut recorder = shell.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_recording = lines.next().unwrap().contains("recording process");
    if is_recording {
        assert!(Command::new("kill").args(["-HUP", &recorder.id().to_string()]).status().unwrap().success());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    recorder.wait().unwrap();
    if !is_recording {
        return faultless_testkit::skip("faults cannot be sampled here");
    }
    let said: Vec<_> = lines.collect();
    let summary = json(&scratch);
    assert_eq!(summary["recording"]["status"], "the process's end", "{said:?} {}", summary["notes"]);
}

#[test]
fn a_recording_keeps_to_its_limit() {
    let scratch = Scratch::new("record-limit");
    let script = "i=0; while [ $i -lt 300 ]; do (exit 0); i=$((i+1)); done";
    record(&scratch, &["--period", "1", "--limit", "64K"], &["sh", "-c", script]);
    let summary = json(&scratch);
    if is_sampled(&summary) {
        assert!(summary["recording"]["lost"].as_u64() > Some(0), "{}", summary["recording"]);
        // The end is written in any case.
        let bytes = std::fs::metadata(scratch.0.join("it.rec")).unwrap().len();
        assert!(bytes <= (64 << 10) + 2048, "{bytes}");
    }
}
