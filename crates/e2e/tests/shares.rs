//! Shares of a recording with the usual period are those of a recording of every fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use faultless_e2e::{command, compile, scratch, skip};
use serde_json::Value;

/// Points that two shares may be apart.
const POINTS: f64 = 0.02;
/// Milliseconds between two turns of the program. Where records are dropped, there are longer ones.
const WAITS: [&str; 3] = ["10", "40", "160"];
/// What the heap of the program is called by its size.
const HEAP: &str = "16 MiB to 32 MiB";
/// Pages of the file.
const FILE_PAGES: u64 = 16384;

/// Records the program. What is said of it, and what it says itself.
fn recorded(dir: &Path, program: &Path, wait: &str, options: &[&str]) -> (Value, Vec<f64>) {
    let recording = dir.join("it.rec");
    let mut record: Command = command(["record"]);
    record.args(options).arg("-o").arg(&recording).arg("--").arg(program).arg(dir.join("file")).arg(wait);
    let out = record.output().expect("the command");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let own = String::from_utf8_lossy(&out.stdout);
    let own = own.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let out = command(["report", "--json"]).arg(&recording).output().expect("the command");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (serde_json::from_slice(&out.stdout).expect("JSON"), own)
}

fn lost(summary: &Value) -> u64 {
    summary["recording"]["lost"].as_u64().expect("a number")
}

/// The shares of a table by the names of its rows.
fn shares(summary: &Value, table: &str, key: &str) -> BTreeMap<String, f64> {
    let rows = summary[table].as_array().expect("a table").iter();
    rows.map(|row| (row[key].as_str().expect("a name").to_owned(), row["share"].as_f64().expect("a share")))
        .collect()
}

/// The largest difference of two tables' shares, and of what.
fn apart(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> (f64, String) {
    let share = |of: &BTreeMap<String, f64>, name| of.get(name).copied().unwrap_or(0.0);
    let apart = a.keys().chain(b.keys()).map(|name| ((share(a, name) - share(b, name)).abs(), name.clone()));
    apart.max_by(|a, b| a.0.total_cmp(&b.0)).expect("rows")
}

#[test]
fn one_record_of_61_faults_has_the_shares_of_all() {
    let dir = scratch();
    let Some(program) = compile(dir.path(), "mixed.c", &["-O1", "-fno-omit-frame-pointer"]) else { return };
    std::fs::write(dir.path().join("file"), vec![7; (FILE_PAGES * 4096) as usize]).expect("a file of our own");
    // Every fault has a record, but for a few on a busy machine.
    let mut every = None;
    for wait in WAITS {
        let (summary, own) = recorded(dir.path(), &program, wait, &["--period", "1"]);
        if summary["recording"]["period"] == 0 {
            return skip("faults cannot be sampled here");
        }
        let is_whole = lost(&summary) == 0;
        every = Some((summary, own));
        if is_whole {
            break;
        }
    }
    let (every, own) = every.expect("one of them");
    let samples = every["recording"]["samples"].as_f64().expect("a number");
    assert!((lost(&every) as f64) < samples / 100.0, "{} of {samples} were dropped", lost(&every));
    let (usual, _) = recorded(dir.path(), &program, WAITS[0], &[]);
    assert_eq!(usual["recording"]["period"], 61);
    let few = usual["recording"]["samples"].as_f64().expect("a number");
    assert!(few > 1000.0 && few < samples / 50.0, "{few} of {samples}");
    for (table, key) in [("kinds", "kind"), ("mappings", "name")] {
        let (points, name) = apart(&shares(&usual, table, key), &shares(&every, table, key));
        assert!(points < POINTS, "{table}: {name} is {points} apart: {} {}", usual[table], every[table]);
        println!("{table}: at most {:.2} points apart, of {name}", points * 100.0);
    }
    // And both have what the program did.
    let [large, small, file, heap, copies] = own[..] else { panic!("{own:?}") };
    let sum: f64 = own.iter().sum();
    let did = [("first_touch", large + small + heap), ("file", file), ("copy", copies)];
    let did = did.map(|(name, pages)| (name.to_owned(), pages / sum)).into();
    for summary in [&usual, &every] {
        let (points, name) = apart(&shares(summary, "kinds", "kind"), &did);
        assert!(points < POINTS, "{name} is {points} apart: {}", summary["kinds"]);
        let mappings = shares(summary, "mappings", "name");
        // The kernel calls the heap anonymous when it makes it.
        let of = |part: &str| {
            let is_it = |name: &str| name.contains(part) || part == HEAP && name == "[heap]";
            mappings.iter().filter(|(name, _)| is_it(name)).map(|(_, share)| share).sum::<f64>()
        };
        let expected =
            [("64 MiB to 128 MiB", large + copies), ("32 MiB to 64 MiB", small), ("/file", file), (HEAP, heap)];
        for (part, pages) in expected {
            assert!((of(part) - pages / sum).abs() < POINTS, "{part}: {mappings:?}");
        }
    }
}
