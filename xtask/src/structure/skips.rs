//! A test that cannot run says so to `faultless_testkit::skip`, which fails where `CI=true`. One that only prints it
//! would pass.

use super::Source;

/// Where that is made.
const KIT: &str = "crates/testkit/";
/// How a test would say it by itself.
const SAID: &[&str] = &["not tested", "skipped:", "skipping"];

/// Tests that print that they do not run.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let counts = |path: &str| path.starts_with("crates/") && path.ends_with(".rs") && !path.starts_with(KIT);
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| counts(&source.path)) {
        for (number, line) in source.text.lines().enumerate() {
            if line.contains("println!(") && SAID.iter().any(|said| line.contains(said)) {
                found.push(format!("{}:{}: use faultless_testkit::skip", source.path, number + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_test_that_passes_without_running_is_found() {
        let check = |path: &str, text: &str| violations(&[source(path, text)]).len();
        assert_eq!(check("crates/cli/tests/a.rs", "    eprintln!(\"no perl: not tested\");"), 1);
        assert_eq!(check("crates/bench/src/a.rs", "return println!(\"skipped: no thing\")"), 1);
        assert_eq!(check("crates/cli/tests/a.rs", "    faultless_testkit::skip(\"no perl\");"), 0);
        assert_eq!(check("crates/testkit/src/a.rs", "eprintln!(\"skipped: x\")"), 0);
    }
}
