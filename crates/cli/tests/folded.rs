//! What is said of a command whose processes were too many to keep a page of each.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::mem::offset_of;
use std::process::{Command, Stdio};

use common::recording::compiled;
use common::{Scratch, faultless, is_root, run, text};
use faultless_measure::pages::Dir;
use faultless_page::knobs::KNOBS;
use faultless_page::layout::{Header, MAGIC, Page, TABLES, VERSION};
use faultless_page::stats::{BLOCKS, COUNT, Counter};
use faultless_testkit::copy_program;
use serde_json::Value;

/// A page as a process leaves it that was served so often.
fn page(pid: u32, name: &[u8], served: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Page>()];
    let mut put = |at: usize, n: &[u8]| bytes[at..at + n.len()].copy_from_slice(n);
    put(offset_of!(Header, magic), &MAGIC.to_ne_bytes());
    let words = [
        (offset_of!(Header, version), VERSION),
        (offset_of!(Header, pid), pid),
        (offset_of!(Header, bytes), size_of::<Page>() as u32),
        (offset_of!(Header, counters), COUNT as u32),
        (offset_of!(Header, blocks), BLOCKS as u32),
        (offset_of!(Header, knobs), KNOBS.len() as u32),
    ];
    words.iter().for_each(|(at, word)| put(*at, &word.to_ne_bytes()));
    put(offset_of!(Header, tables), &TABLES.to_ne_bytes());
    put(offset_of!(Header, start_ns), &1u64.to_ne_bytes());
    put(offset_of!(Header, name), name);
    put(offset_of!(Page, block) + 8 * Counter::MallocServed as usize, &served.to_ne_bytes());
    bytes
}

fn output(args: &[&str]) -> String {
    let out = faultless(args).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""), "{args:?}");
    text(&out.stdout).to_owned()
}

/// This process is the command.
#[test]
fn totals_stay_when_pages_make_room() {
    let dir = Dir::create().unwrap();
    let pid = std::process::id().to_string();
    let (ended, one) = (1200, "faultless_malloc_served_total");
    for number in 0..ended {
        let name = if number % 2 == 0 { &b"even"[..] } else { b"odd" };
        // No process has such a number.
        let number = 4_000_000_000 + number;
        std::fs::write(dir.path().join(number.to_string()), page(number, name, 1)).unwrap();
    }
    let look = || {
        let report: Value = serde_json::from_str(&output(&["stat", "-p", &pid, "--once", "--json"])).unwrap();
        let pages = report["processes"].as_array().unwrap().len();
        let folded = report["folded_processes"].as_u64().unwrap();
        let metrics = output(&["stat", "-p", &pid, "--openmetrics"]);
        let values = metrics.lines().filter(|line| line.starts_with(one));
        let sum: u64 = values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        let served = report["totals"]["malloc_served"].as_u64().unwrap();
        (pages, folded, served, sum, metrics)
    };
    let before = look();
    assert_eq!((before.0, before.1, before.2, before.3), (1200, 0, 1200, 1200));
    dir.fold();
    let after = look();
    assert_eq!((after.0, after.1, after.2, after.3), (1000, 200, 1200, 1200));
    for name in ["even", "odd"] {
        let line = format!("{one}{{pid=\"0\",command=\"{name}\"}} 100\n");
        assert!(after.4.contains(&line), "{line}");
    }
    let said = output(&["stat", "-p", &pid, "--once"]);
    assert!(said.starts_with("faultless: 1200 processes,") && said.contains("1200 malloc_served"), "{said}");
}

/// Threads have numbers, too, and `/proc` shows them by these.
#[test]
fn the_number_of_a_thread_stands_for_its_process() {
    let scratch = Scratch::new("thread");
    let source = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *thread(void *unused) {
    printf("%ld %d\n", syscall(SYS_gettid), getpid());
    fflush(stdout);
    return (void *)(long)getchar();
}
int main(void) {
    pthread_t other;
    char *volatile block = malloc(8 << 20);
    memset(block, 1, 8 << 20);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
}"#;
    let program = compiled(&scratch, source, &["-pthread"]);
    let mut child = run(["--"]);
    let child = child.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (thread, process) = line.trim().split_once(' ').unwrap();
    let said = format!("faultless: {thread} is a thread of process {process}\n");
    for (args, expected) in [
        (&["stat", "-p", thread, "--once", "-e", "malloc_served"][..], "1 malloc_served"),
        (&["sysctl", "-p", thread, "scrub=0"], "scrub = 0\n"),
    ] {
        let out = faultless(args).output().unwrap();
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), said.as_str()), "{args:?}");
        assert!(text(&out.stdout).contains(expected), "{}", text(&out.stdout));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// The list has the kernel's page faults of each process.
#[test]
fn a_list_has_the_kernels_page_faults() {
    let mut child = run(["--", "sh", "-c", "dd if=/dev/zero bs=8M count=2 2>/dev/null"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let report: Value = serde_json::from_str(&output(&["stat", "--json", "-e", "faults"])).unwrap();
    let each = report["processes"].as_array().unwrap().iter();
    let is_dd = |process: &&Value| process["command"] == "dd" && process["page_faults"].as_u64().unwrap() > 16;
    let dd = each.clone().find(is_dd).unwrap_or_else(|| panic!("{report}"));
    let sum: u64 = each.map(|process| process["page_faults"].as_u64().unwrap_or(0)).sum();
    assert_eq!(report["page_faults"], sum);
    let said = output(&["stat", "-e", "faults"]);
    let mut lines = said.lines().skip_while(|line| *line != format!("{} dd", dd["pid"]));
    let line = lines.nth(1).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(line.split_whitespace().nth(1), Some("faults"), "{said}");
    drop(child.stdout.take());
    child.wait().unwrap();
}

/// Where /proc hides processes of others, or is not there, no command says that there is no such process.
#[test]
fn a_process_that_is_hidden_is_there() {
    if !is_root() {
        return;
    }
    // A copy, which another user may run.
    let scratch = Scratch::new("hidden");
    let copy = scratch.0.join("faultless");
    copy_program(env!("CARGO_BIN_EXE_faultless"), &copy);
    let mount = |mount: &str, words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh", "setpriv"]);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(words).output().unwrap()
    };
    let hidden = "mount -t proc -o hidepid=2 none /proc";
    if !mount(hidden, &["doctor", "--help"]).status.success() {
        return faultless_testkit::skip("/proc cannot be mounted so here");
    }
    for words in [&["record", "-o", "/dev/null", "-p", "1"][..], &["stat", "-p", "1"], &["sysctl", "-p", "1"]] {
        let out = mount(hidden, words);
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(77) && said.contains("another user"), "{words:?}: {out:?}");
        let out = mount("umount -l /proc", words);
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(1) && said.contains("/proc is not mounted"), "{words:?}: {said}");
    }
    let none = mount(hidden, &["record", "-o", "/dev/null", "-p", "2147483000"]);
    assert!(text(&none.stderr).contains("there is no such process"), "{none:?}");
}
