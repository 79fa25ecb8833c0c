//! Recording programs, and reading what was recorded.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Scratch, faultless, text};

/// Compiles `source`.
pub fn compiled(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (scratch.0.join("program.c"), scratch.0.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-omit-frame-pointer"]).args(flags).arg(&file).arg("-o").arg(&program);
    assert!(cc.status().expect("cc").success());
    program
}

/// Records a program into the scratch directory.
pub fn record(scratch: &Scratch, options: &[&str], program: &[&str]) -> Output {
    let file = scratch.0.join("it.rec");
    let mut command = faultless(["record", "-o", file.to_str().unwrap()]);
    command.args(options).arg("--").args(program).output().unwrap()
}

/// What `faultless report` says of it.
pub fn report(scratch: &Scratch, options: &[&str]) -> Output {
    let file = scratch.0.join("it.rec");
    faultless(["report", file.to_str().unwrap()]).args(options).output().unwrap()
}

/// The same as data.
pub fn json(scratch: &Scratch) -> Value {
    let out = report(scratch, &["--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Whether this machine lets faults be sampled; the tests ask for more where it does.
pub fn is_sampled(summary: &Value) -> bool {
    let is = summary["recording"]["period"] != 0;
    if !is {
        faultless_testkit::skip("faults cannot be sampled here");
    }
    is
}
