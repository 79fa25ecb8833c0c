//! `faultless stat` and `faultless sysctl` on a program that has a region, while it faults.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use common::{bench, faultless, text};
use faultless_testkit::Killed;
use serde_json::Value;

/// Words of a program that faults in a region without a pause.
fn program(seconds: &str) -> Vec<&str> {
    ["loop", "spf", "--way", "speculative", "--work", "touch", "--seconds", seconds].to_vec()
}

/// Such a program, killed at the end.
struct Faulting(Killed);

impl Faulting {
    /// `None` where there is no userfaultfd.
    fn start() -> Option<Self> {
        let tried = bench(program("0.001")).output().unwrap();
        if !tried.status.success() {
            faultless_testkit::skip(format_args!("{}", text(&tried.stderr)));
            return None;
        }
        Some(Self(Killed(bench(program("600")).stdout(Stdio::null()).spawn().unwrap())))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

/// The programs of `faultless bench spf` check what they read.
#[test]
fn every_program_of_the_bench_runs() {
    if Faulting::start().is_none() {
        return;
    }
    let run = |way: &str, work: &str| {
        let words = ["loop", "spf", "--way", way, "--work", work, "--seconds", "0.1", "--threads", "2"];
        let out = bench(words).args(["--beside", "unmaps", "--timed"]).output().unwrap();
        assert!(out.status.success(), "{way} {work}: {}", text(&out.stderr));
        let reached: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(reached["rate"].as_f64().unwrap() > 0.0, "{way} {work}: {reached}");
        let faults = reached["ends"][0].as_u64().unwrap();
        assert_eq!(faults > 0, !matches!(way, "kernel" | "bare"), "{way} {work}: {reached}");
        let speculative = reached["ends"][1].as_u64().unwrap();
        assert_eq!(speculative > 0, matches!(way, "speculative" | "windows"), "{way} {work}: {reached}");
    };
    for way in ["kernel", "classic", "speculative", "windows"] {
        for work in ["touch", "blocks", "anonymous", "private", "shared", "starts"] {
            run(way, work);
        }
    }
    run("kernel", "creates");
    run("bare", "touch");
}

/// Reports of the program, one after the other: its faults, and those that were speculative, of each interval.
fn reports(stat: ChildStdout) -> impl Iterator<Item = (u64, u64)> {
    let lines = BufReader::new(stat).lines();
    lines.map(|line| {
        let report: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let of = |name: &str| report["totals"][name].as_u64().unwrap();
        (of("region_pgfault"), of("speculative_pgfault"))
    })
}

#[test]
fn the_knob_is_turned_while_a_program_faults_and_the_counters_show_it() {
    let Some(program) = Faulting::start() else { return };
    let pid = program.pid();
    // The page is there from the first region on.
    while !faultless(["stat", "-p", &pid, "--once"]).output().unwrap().status.success() {
        std::thread::yield_now();
    }
    let mut stat = faultless(["stat", "-p", &pid, "--json", "-i", "0.05", "-e", "faults,spf"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reports = reports(stat.stdout.take().unwrap());
    let mut wait_for = |what: &str, is_so: fn(u64, u64) -> bool| {
        let found = reports.by_ref().take(1000).find(|(faults, speculative)| is_so(*faults, *speculative));
        found.unwrap_or_else(|| panic!("never: {what}"));
    };
    wait_for("speculative faults", |_, speculative| speculative > 0);
    for (value, what) in [("0", "classic faults alone"), ("1", "speculative faults again")] {
        let set = faultless(["sysctl", "-p", &pid, &format!("speculative_page_fault={value}")]).output().unwrap();
        assert!(set.status.success(), "{}", text(&set.stderr));
        wait_for(
            what,
            match value {
                "0" => |faults, speculative| faults > 0 && speculative == 0,
                _ => |faults, speculative| faults > 0 && speculative > 0,
            },
        );
    }
    stat.kill().unwrap();
    stat.wait().unwrap();
}

/// The names of the patches for speculative page faults, and what they print.
#[test]
fn faults_are_shown_under_the_names_of_their_events() {
    if Faulting::start().is_none() {
        return;
    }
    let bench = Path::new(env!("CARGO_BIN_EXE_faultless")).with_file_name("faultless-bench");
    let words = ["stat", "-e", "faults,spf,pagefault:*", "--"];
    let out = faultless(words).arg(bench).args(program("0.05")).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    let lines: Vec<Vec<&str>> = said.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line[1]).collect();
    let reasons = ["vma_changed", "vma_noanon", "vma_notsup", "vma_access", "pmd_changed"];
    let expected = reasons.map(|reason| format!("pagefault:spf_{reason}"));
    assert_eq!(names[..3], ["faults", "faults_regions", "spf"]);
    assert_eq!(names[3..], expected);
    let counted: Vec<u64> = lines.iter().map(|line| line[0].parse().unwrap()).collect();
    assert!(counted[0] > 0 && counted[1] > 0);
    assert_eq!(counted[2..].iter().sum::<u64>(), counted[1], "each fault was tried once: {said}");
}
