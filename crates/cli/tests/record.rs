//! `faultless record` and `faultless report` from outside, on programs whose faults are known.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Scratch, faultless, text};
use serde_json::Value;

/// Without the C library, so that all of its faults are in sight: it touches so many pages, and says at its end what
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

__attribute__((noinline)) void fill_pages(volatile char *pages, long n)
{
    for (long i = 0; i < n; i++)
        pages[i * 4096] = 1;
}

__attribute__((noinline)) static void tell(int file)
{
    call(98, 0, (long)usage, 0, 0, 0, 0);
    long faults = usage[8] + usage[9], at = 32;
    digits[--at] = '\n';
    for (; faults > 0; faults /= 10)
        digits[--at] = '0' + faults % 10;
    call(1, file, (long)digits + at, 32 - at, 0, 0, 0);
}

void _start(void)
{
    char *pages = (char *)call(9, 0, PAGES * 4096l, 3, 0x22, -1, 0);
    call(28, (long)pages, PAGES * 4096l, 15, 0, 0, 0);
    fill_pages(pages, PAGES);
    tell(-1);
    tell(1);
    call(60, 3, 0, 0, 0, 0, 0);
}
"#;

const PAGES: u64 = 20_000;

/// Compiles `source`.
fn compiled(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (scratch.0.join("program.c"), scratch.0.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-omit-frame-pointer"]).args(flags).arg(&file).arg("-o").arg(&program);
    assert!(cc.status().expect("cc").success());
    program
}

fn exact(scratch: &Scratch) -> PathBuf {
    let pages = format!("-DPAGES={PAGES}");
    compiled(scratch, EXACT, &["-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", &pages])
}

/// Records a program into the scratch directory.
fn record(scratch: &Scratch, options: &[&str], program: &[&str]) -> Output {
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap()]);
    command.args(options).arg("--").args(program).output().unwrap()
}

fn report(scratch: &Scratch, options: &[&str]) -> Output {
    let file = scratch.0.join("it.rec");
    faultless(["report", file.to_str().unwrap()]).args(options).output().unwrap()
}

fn json(scratch: &Scratch) -> Value {
    let out = report(scratch, &["--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Whether this machine lets faults be sampled; the tests ask for more where it does.
fn is_sampled(summary: &Value) -> bool {
    let is = summary["recording"]["period"] != 0;
    if !is {
        faultless_testkit::skip("faults cannot be sampled here");
    }
    is
}

#[test]
fn faults_are_counted_exactly_and_named() {
    let scratch = Scratch::new("record-exact");
    let program = exact(&scratch);
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
            let shown = report(&scratch, &[]);
            assert!(text(&shown.stdout).contains("fill_pages (program)"), "{}", text(&shown.stdout));
        }
    }
}
