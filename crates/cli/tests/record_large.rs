//! `faultless record` and `faultless report` on programs with very many processes and faults: memory and file stay
//! bounded, and what has no room is said.

mod common;

use std::process::Stdio;

use common::recording::{compiled, is_sampled, json, report};
use common::{Scratch, faultless, text};
use faultless_testkit::peak;
use serde_json::Value;

/// Memory that the commands may have. The program itself has less.
const MOST: u64 = 256 << 20;

/// Forks children one after the other, each of which touches as many pages that its parent has touched.
const FORKS: &str = r#"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char pages[100 * 4096];

int main(void)
{
    memset(pages, 1, sizeof pages);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child < 0)
            return 9;
        if (child == 0) {
            memset(pages, 2, sizeof pages);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 8;
    }
    return 0;
}
"#;

const CHILDREN: u64 = 5000;

fn notes(summary: &Value) -> String {
    let notes = summary["notes"].as_array().unwrap().iter();
    notes.map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

#[test]
fn thousands_of_children_are_recorded_in_bounded_memory() {
    let scratch = Scratch::new("record-children");
    let program = compiled(&scratch, FORKS, &[&format!("-DCHILDREN={CHILDREN}")]);
    let file = scratch.0.join("it.rec");
    let (file, program) = (file.to_str().unwrap(), program.to_str().unwrap());
    let (status, bytes) = peak(&mut faultless(["record", "--quiet", "-o", file, "--", program]));
    assert!(status.success() && bytes < MOST, "{status}: {bytes}");
    let (status, bytes) = peak(faultless(["report", file]).stdout(Stdio::null()));
    assert!(status.success() && bytes < MOST, "{status}: {bytes}");
    let summary = json(&scratch);
    assert_eq!(summary["recording"]["complete"], true, "{}", notes(&summary));
    // Each child copies its hundred pages at least.
    assert!(summary["faults"]["total"].as_u64() >= Some(CHILDREN * 100), "{}", summary["faults"]);
    if !is_sampled(&summary) {
        return;
    }
    let (processes, lost) = (summary["recording"]["processes"].as_u64().unwrap(), &summary["recording"]["lost"]);
    // A ring that was full, on a busy machine, may have had no room for the beginning of a process.
    assert!(
        processes == CHILDREN + 1 || (processes <= CHILDREN && lost.as_u64() > Some(0)),
        "{processes}, {lost}"
    );
    // More of them had records than the table has rows.
    let rows = summary["processes"].as_array().unwrap();
    let left_out = summary["left_out"]["processes"].as_u64().unwrap();
    assert_eq!(rows.len(), 1000);
    assert!(left_out > 0 && left_out <= processes - 1000, "{left_out} of {processes}");
    let all = left_out + 1000;
    let said = format!("{all} processes had records: their table has the 1000 with the most faults");
    assert!(notes(&summary).contains(&said), "{}", notes(&summary));
    assert!(summary["kinds"].as_array().unwrap().iter().any(|by| by["kind"] == "copy"), "{}", summary["kinds"]);
    let shown = report(&scratch, &[]);
    let shown: String = text(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&said), "{shown}");
}

/// Touches the same pages again and again, and drops them meanwhile.
const TOUCHES: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { BYTES = 20000 * 4096 };

int main(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, BYTES, MADV_NOHUGEPAGE);
    for (int i = 0; i < 10; i++) {
        for (long at = 0; at < BYTES; at += 4096)
            memory[at] = 1;
        madvise(memory, BYTES, MADV_DONTNEED);
    }
    return 0;
}
"#;

/// The program's faults.
const FAULTS: u64 = 10 * 20_000;

#[test]
fn a_file_stays_below_its_limit_and_the_number_exact() {
    let scratch = Scratch::new("record-limit");
    let program = compiled(&scratch, TOUCHES, &[]);
    let file = scratch.0.join("it.rec");
    let (file, program) = (file.to_str().unwrap(), program.to_str().unwrap());
    let options = ["record", "--quiet", "--period", "1", "--limit", "64K", "-o", file, "--", program];
    let (status, bytes) = peak(&mut faultless(options));
    assert!(status.success() && bytes < MOST, "{status}: {bytes}");
    let summary = json(&scratch);
    assert_eq!(summary["recording"]["complete"], true, "{}", notes(&summary));
    // Some more are those of its start.
    let total = summary["faults"]["total"].as_u64().unwrap();
    assert!((FAULTS..FAULTS + 1000).contains(&total), "{total}");
    if !is_sampled(&summary) {
        return;
    }
    // What the rings hold may still be written when the limit is reached.
    let (written, rings) =
        (std::fs::metadata(file).unwrap().len(), summary["recording"]["cpus"].as_u64().unwrap() << 19);
    assert!(written < (64 << 10) + 2 * rings, "{written}");
    // All records that there could be were written, or are among those that were dropped.
    let (samples, lost) =
        (summary["recording"]["samples"].as_u64().unwrap(), summary["recording"]["lost"].as_u64().unwrap());
    assert!(samples > 0 && lost > 0 && samples + lost >= total, "{samples} and {lost} of {total}");
    assert!(notes(&summary).contains(&format!("{lost} records were dropped")), "{}", notes(&summary));
    let shares = summary["kinds"].as_array().unwrap().iter().map(|by| by["share"].as_f64().unwrap()).sum::<f64>();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
}
