//! `faultless stat --openmetrics` is read by the parser of Prometheus's client library.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use faultless_e2e::{command, library, need, python, script};
use faultless_page::stats::{COUNTERS, Unit};
use serde_json::Value;

/// What the parser makes of a text.
fn parsed(python: &std::path::Path, text: &[u8]) -> Vec<Value> {
    let mut parser = Command::new(python);
    let parser = parser.arg("-B").arg(script("openmetrics.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parser = parser.spawn().expect("Python");
    parser.stdin.take().expect("a pipe").write_all(text).expect("it reads");
    let out = parser.wait_with_output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(text));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn prometheus_reads_the_metrics() {
    let (Some(python), Some(dd)) = (python(), need("dd")) else { return };
    // A name with what has to be escaped; the command shows control characters as question marks.
    let dir = faultless_e2e::scratch();
    let program = dir.path().join("d\"d\\\nx");
    std::fs::copy(dd, &program).expect("a copy of our own");
    let mut program = Command::new(program);
    program.args(["if=/dev/zero", "bs=8M", "count=2"]).env("LD_PRELOAD", library()).env_remove("FAULTLESS_STATS");
    let mut program = program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("dd");
    // Its first byte comes after its block.
    program.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("output");
    let pid = program.id().to_string();
    let out = command(["stat", "--openmetrics", "-e", "*", "-p", &pid]).output().expect("the command");
    program.kill().expect("a child of our own");
    program.wait().expect("a child of our own");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let families = parsed(&python, &out.stdout);
    let find = |name: &str| families.iter().find(|family| family["name"] == name).expect(name);
    let counters = families.iter().filter(|family| family["type"] == "counter");
    assert_eq!(counters.count(), COUNTERS.len());
    let served = find("faultless_malloc_served");
    assert_eq!(
        (&served["samples"][0]["name"], &served["samples"][0]["value"]),
        (&"faultless_malloc_served_total".into(), &1.0.into())
    );
    assert_eq!(served["samples"][0]["labels"]["pid"], pid);
    let bytes = find("faultless_malloc_bytes");
    assert_eq!((&bytes["unit"], bytes["samples"][0]["value"].as_f64() >= Some(8e6)), (&"bytes".into(), true));
    assert!(served["help"].as_str().is_some_and(|help| help.len() > 10));
    for counter in COUNTERS.iter().filter(|counter| counter.unit == Unit::Ns) {
        let name = format!("faultless_{}_seconds", counter.name.trim_end_matches("_ns"));
        assert_eq!(find(&name)["unit"], "seconds");
    }
    let info = find("faultless_process");
    assert_eq!((&info["type"], &info["samples"][0]["labels"]["command"]), (&"info".into(), &"d\"d\\?x".into()));
    let knobs = find("faultless_knob")["samples"].as_array().expect("samples");
    assert!(
        knobs.iter().any(|sample| sample["labels"]["knob"] == "budget" && sample["value"].as_f64() > Some(0.0))
    );
}
