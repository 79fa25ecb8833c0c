//! `faultless record --run`: the recording says what faultless did.

mod common;

use common::recording::{compiled, is_sampled, json, record, report};
use common::{Scratch, text};
use serde_json::Value;

#[test]
fn a_program_is_recorded_under_faultless() {
    // Few faults are left, and each of them counts.
    let scratch = Scratch::new("record-run");
    let out =
        record(&scratch, &["--run", "--period", "1"], &["dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=4"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let summary = json(&scratch);
    assert_eq!(summary["recording"]["covered"], true);
    if is_sampled(&summary) {
        let mappings = summary["mappings"].as_array().unwrap();
        assert!(mappings.iter().any(|by| by["allocator"] == "faultless"), "{mappings:?}");
    }
}

/// Maps, touches and unmaps 8 MiB again and again, and so does a child of it.
const MAPS: &str = r#"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 8 << 20, TIMES = 10 };

static void work(void)
{
    for (int i = 0; i < TIMES; i++) {
        char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            exit(9);
        for (long at = 0; at < BYTES; at += 4096)
            memory[at] = 1;
        munmap(memory, BYTES);
    }
}

int main(void)
{
    work();
    pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}
"#;

/// What the program and its child ask for.
const BYTES: u64 = 2 * 10 * (8 << 20);

/// The data of a page: what stands in its script.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_recording_says_what_faultless_did() {
    let scratch = Scratch::new("record-served");
    let program = compiled(&scratch, MAPS, &[]);
    let program = program.to_str().unwrap();
    let out = record(&scratch, &["--run"], &["sh", "-c", &format!("{program} && true")]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let summary = json(&scratch);
    let served = &summary["served"];
    let get = |key: &str| served[key].as_u64().unwrap_or_else(|| panic!("{key}: {served}"));
    // Of the shell nothing was served.
    assert_eq!((get("served_processes"), get("requests"), get("handed_out_bytes")), (2, 20, BYTES), "{served}");
    // All but the first mapping of each process can be memory that was there.
    assert!(get("with_memory_bytes") > 0 && get("with_memory_bytes") <= BYTES, "{served}");
    // A plain run touches each page once. What came ahead of the program may count twice, as huge pages too.
    let twice = get("touched_ahead_bytes") + get("moved_ahead_bytes");
    assert!(get("avoided_most") >= get("with_memory_bytes") / 4096, "{served}");
    assert!(get("avoided_most") <= (BYTES + twice) / 4096, "{served}");
    let shown = report(&scratch, &[]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("What faultless did in 2 of 2 processes, in 20 requests"), "{shown}");
    assert!(shown.contains("160 MiB  handed out to the program"), "{shown}");
    assert!(shown.contains("Faults that this avoided: at most "), "{shown}");
    let page = report(&scratch, &["--html", "-"]);
    let data = data_of(text(&page.stdout));
    assert_eq!(data["served"]["rows"][0]["bytes"], BYTES, "{}", data["served"]);
    assert!(data["served"]["rows"].as_array().unwrap().len() > 1, "{}", data["served"]);
    // No directory of counters stays behind, and a plain run has none.
    let out = record(&scratch, &[], &[program]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let plain = json(&scratch);
    assert_eq!(plain["served"], Value::Null);
    let shown = report(&scratch, &[]);
    assert!(!text(&shown.stdout).contains("What faultless did"), "{}", text(&shown.stdout));
    // Where huge pages do not come by themselves, a plain run takes each of these faults.
    if plain["recording"]["huge_pages"] != "always" && is_sampled(&plain) {
        assert!(plain["faults"]["total"].as_u64() >= Some(BYTES / 4096), "{}", plain["faults"]);
    }
}

/// Without a place for counters the program runs all the same, and the report says what is missing.
#[test]
fn a_process_that_cannot_leave_its_counters_is_told() {
    let scratch = Scratch::new("record-lost");
    let program = compiled(&scratch, MAPS, &[]);
    // Files of no size: its page is lost, the recording was opened before.
    let script = format!("ulimit -f 0; exec {}", program.display());
    let out = record(&scratch, &["--run"], &["sh", "-c", &script]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let summary = json(&scratch);
    let notes = summary["notes"].to_string();
    assert!(notes.contains("could not leave its counters"), "{notes}");
    assert_eq!(summary["served"]["handed_out_bytes"], 0, "{}", summary["served"]);
}
