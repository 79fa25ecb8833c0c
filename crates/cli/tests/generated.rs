//! What is made from the tables of counters and knobs.

mod common;

use std::process::Command;

use common::{Scratch, faultless, text};
use faultless_page::knobs::KNOBS;
use faultless_page::stats::COUNTERS;

#[test]
fn the_reference_is_up_to_date_and_everything_has_all_names() {
    let scratch = Scratch::new("generated");
    let out = faultless(["generate".as_ref(), scratch.0.as_os_str()]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let read = |file: &str| std::fs::read_to_string(scratch.0.join(file)).unwrap();
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
    let stored = std::fs::read_to_string(stored).unwrap_or_default();
    assert!(read("reference.md") == stored, "docs/reference.md is out of date: run `cargo xtask generate`");
    let stat = read("man/man1/faultless-stat.1");
    let sysctl = read("man/man1/faultless-sysctl.1");
    for file in ["completions/faultless.bash", "completions/_faultless", "completions/faultless.fish"] {
        let shell = read(file);
        assert!(COUNTERS.iter().all(|counter| shell.contains(counter.name)), "{file}");
        assert!(KNOBS.iter().all(|knob| shell.contains(knob.name)), "{file}");
    }
    assert!(COUNTERS.iter().all(|counter| stat.contains(counter.name) && stored.contains(counter.name)));
    assert!(KNOBS.iter().all(|knob| sysctl.contains(knob.variable) && stored.contains(knob.variable)));
    assert!(
        ["", "-run", "-bench"].iter().all(|name| read(&format!("man/man1/faultless{name}.1")).contains(".TH"))
    );
    let page = |name: &str| read(&format!("man/man1/faultless-{name}.1"));
    assert!(["run", "stat", "sysctl", "doctor"].iter().all(|name| page(name).contains("EXIT STATUS")));
    assert!(["run", "sysctl"].iter().all(|name| page(name).contains("faultless/settings")));
    let bash = Command::new("bash").arg("-n").arg(scratch.0.join("completions/faultless.bash")).status();
    assert!(bash.is_ok_and(|status| status.success()), "the shell cannot read its completions");
}
