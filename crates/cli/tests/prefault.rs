//! `faultless bench prefault`, by parts that are quick: what its tables say, not how fast anything is.

mod common;

use common::{Scratch, bench, text};
use serde_json::Value;

#[test]
fn arrays_in_turns_are_measured_with_both_kinds_of_streams() {
    let scratch = Scratch::new("arrays");
    let file = scratch.0.join("figures.json");
    let out = bench(["prefault", "--quick", "--only", "arrays", "--json"]).arg(&file).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    assert!(said.contains("**Arrays in turns**") && !said.contains("**Threads**"), "{said}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let runs = figures["runs"].as_array().unwrap();
    let faults = |arrays: u64, way: &Value| {
        let run = runs.iter().find(|run| run["arrays"] == arrays && run["way"] == *way)?;
        Some(run["resolved"].as_u64().unwrap())
    };
    for arrays in [4, 12, 20] {
        assert!(said.contains(&format!("| *{arrays} arrays*")), "{said}");
        let plain = faults(arrays, &"plain".into()).unwrap();
        let by = |by: &str| faults(arrays, &serde_json::json!({ "signal_by": by }));
        let (Some(area), Some(thread)) = (by("area"), by("thread")) else {
            return faultless_testkit::skip("no userfaultfd");
        };
        assert!(said.contains("| faultless, by thread and area |") && said.contains("| faultless, by thread |"));
        // A thread has 16 streams; where there are more arrays, they break each other.
        match arrays > 16 {
            true => assert!(thread > area, "{arrays} arrays: {thread} and {area} faults"),
            false => {
                assert!(thread.max(area) < plain / 10, "{arrays} arrays: {thread} and {area} faults for {plain}")
            }
        }
    }
}
