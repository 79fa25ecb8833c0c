//! The numbers of the summary fit each other, also of programs that are killed.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Scratch, run, text};
use serde_json::Value;

/// Blocks of a size, a number of times, one after the other, and then many at once.
const CODE: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int n, char **words) {
    size_t bytes = atol(words[1]);
    int times = atoi(words[2]);
    char *volatile all[20];
    for (int i = 0; i < times; i++) {
        char *volatile p = malloc(bytes);
        memset(p, 1, bytes);
        free(p);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) all[i] = memset(calloc(1, bytes), 1, bytes / 2);
        for (int i = 0; i < 20; i++) free(all[i]);
        char *map = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 12 << 20; i += 4096) map[i] = 1;
        usleep(20000);
        munmap(map, 16 << 20);
    }
    if (n > 3) kill(getpid(), SIGKILL);
    return 0;
}"#;

fn program(scratch: &Scratch) -> Option<PathBuf> {
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    std::fs::write(&source, CODE).unwrap();
    let built = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&program).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        faultless_testkit::skip("no C compiler");
    }
    is_built.then_some(program)
}

#[test]
fn numbers_fit_each_other() {
    let scratch = Scratch::new("numbers");
    let Some(program) = program(&scratch) else { return };
    let file = scratch.0.join("out.json");
    for (bytes, times, killed) in [(256 << 10, 200, ""), (3_000_000, 50, ""), (1_500_000, 50, "killed")] {
        for mapped in ["mapped=0", "mapped=1"] {
            let mut command = run(["-s", mapped, "--json", file.to_str().unwrap(), "--"]);
            command.arg(&program).args([bytes.to_string(), times.to_string()]);
            let words: &[&str] = if killed.is_empty() { &[] } else { &[killed] };
            let out = command.args(words).output().unwrap();
            let said = text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
            let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let count = |name: &str| json["totals"][name].as_u64().unwrap();
            let case = format!("{bytes} {mapped} {killed}: {json:#} {said}");
            assert_eq!(json["signal"].as_i64(), (!killed.is_empty()).then_some(9), "{case}");
            assert_eq!(count("malloc_served"), times + 60, "{case}");
            assert_eq!(count("mmap_served"), 3, "{case}");
            let requests = times + 63;
            let handed = count("malloc_bytes") + count("mmap_bytes");
            // Whole pages, each.
            let asked = bytes * (times + 60) + 3 * (16 << 20);
            assert!((asked..=asked + 8192 * requests).contains(&handed), "{case}");
            let size = faultless_measure::figures::size(handed);
            assert!(said.contains(&format!("memory handed out {size} in {requests} requests")), "{case}");
            for (part, all) in [
                ("bytes_moved_ahead", "bytes_moved"),
                ("bytes_moved_unused", "bytes_moved_ahead"),
                ("bytes_ahead_unused", "bytes_ahead_seen"),
            ] {
                assert!(count(part) <= count(all), "{part}: {case}");
            }
            assert_eq!(said.contains("moved ahead of the program"), count("bytes_moved_ahead") > 0, "{case}");
            let one = &json["programs"][0];
            for part in ["ready_bytes", "ahead_bytes"] {
                assert!(one[part].as_u64() <= one["bytes"].as_u64(), "{part}: {case}");
            }
        }
    }
}
