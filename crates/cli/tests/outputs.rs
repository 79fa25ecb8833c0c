//! Where the output goes: files that hold something, none at all, and names that would disturb a terminal.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::recording::record;
use common::{Scratch, faultless, text, within};

/// Rust's runtime opens /dev/null in place of what is closed.
#[test]
fn without_standard_output_nothing_is_done_in_vain() {
    let scratch = Scratch::new("closed");
    assert!(record(&scratch, &[], &["true"]).status.success());
    let recording = scratch.0.join("it.rec");
    let cases: [(&[&str], i32); 8] = [
        (&["report", recording.to_str().unwrap()], 1),
        (&["sysctl", "budget"], 1),
        (&["stat", "--openmetrics"], 1),
        (&["doctor", "--no-measure"], 125),
        (&["profile", "show"], 125),
        (&["warm", "status"], 125),
        (&["run", "--compare", "1", "--", "true"], 125),
        (&["--help"], 125),
    ];
    for (words, status) in cases {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" >&-", "sh"]);
        let out = within(shell, &faultless(words)).output().unwrap();
        assert!(text(&out.stderr).contains("Bad file descriptor"), "{words:?}: {}", text(&out.stderr));
        assert_eq!(out.status.code(), Some(status), "{words:?}");
    }
    // A program's own output is its own business.
    let json = scratch.0.join("json");
    let program = ["run", "--quiet", "--json", json.to_str().unwrap(), "--", "sh", "-c", "exit 3"];
    assert_eq!(faultless(program).status().unwrap().code(), Some(3));
}

#[test]
fn names_that_are_told_disturb_no_terminal() {
    let name = "none\n\u{1b}[31mred";
    let cases: [&[&str]; 6] = [
        &["run", "--", name],
        &["stat", "--", name],
        &["record", "-o", "/dev/null", "--", name],
        &["doctor", "--", name],
        &["report", name],
        &["profile", "import", name],
    ];
    for words in cases {
        let out = faultless(words).output().unwrap();
        let said = text(&out.stderr);
        assert!(said.contains("none??[31mred") && said.matches('\n').count() == 1, "{words:?}: {said:?}");
        assert!(!out.status.success(), "{words:?}");
    }
}

#[test]
fn a_report_takes_the_place_of_the_file_before_it() {
    let scratch = Scratch::new("replaced");
    let file = scratch.0.join("json");
    std::fs::write(&file, "x".repeat(1 << 16)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o604)).unwrap();
    let old = std::fs::File::open(&file).unwrap();
    assert!(
        faultless(["run", "--quiet", "--json", file.to_str().unwrap(), "--", "true"]).status().unwrap().success()
    );
    let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(whole["exit_status"], 0);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o604);
    // Who reads the old one meanwhile reads all of it.
    assert_eq!((old.metadata().unwrap().len(), scratch.entries()), (1 << 16, 1));
    // One that no report came to is not made.
    let none = scratch.0.join("none");
    assert!(
        !faultless(["run", "--json", none.to_str().unwrap(), "--", "no-such-program"]).status().unwrap().success()
    );
    assert!(!none.exists());
    // What stands for standard output stays what it is.
    let out = faultless(["run", "--quiet", "--json", "/dev/stdout", "--", "true"]).output().unwrap();
    assert!(text(&out.stdout).starts_with('{') && text(&out.stdout).ends_with("}\n"));
}

/// A redirection opens the file once, and the option names it once more.
#[test]
fn a_report_to_the_file_of_an_output_follows_what_is_there() {
    let scratch = Scratch::new("follows");
    let file = scratch.0.join("out");
    for (redirection, path) in [(">", "/dev/stdout"), (">>", "/dev/stdout"), ("2>", "/dev/stderr"), (">", "$OUT")]
    {
        std::fs::write(&file, "before\n").unwrap();
        let script = format!("exec \"$@\" --json {path} -- sh -c 'echo one; echo two >&2' {redirection} \"$OUT\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).env("OUT", &file);
        assert!(within(shell, &faultless(["run", "--quiet"])).status().unwrap().success());
        let all = std::fs::read_to_string(&file).unwrap();
        let (kept, word) =
            (if redirection == ">>" { "before\n" } else { "" }, if redirection == "2>" { "two" } else { "one" });
        let rest = all.strip_prefix(&format!("{kept}{word}\n"));
        let report = rest.unwrap_or_else(|| panic!("{redirection} {path}: {all}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(report).unwrap()["exit_status"], 0);
    }
}
