//! Tests that cannot run here.

use std::fmt::Display;
use std::io::Write;

/// Tests that may be unable to run where `CI=true`, and why. Every other test that cannot run fails there.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Says why the test of this thread does nothing. Where `CI=true` the test fails, unless it is a named exception.
pub fn skip(why: impl Display) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let is_excepted = EXCEPTIONS.iter().any(|(name, _)| test == *name || test.ends_with(&format!("::{name}")));
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        is_excepted || !is_ci,
        "{test} cannot run here: {why} (install or allow it, or name the test an exception)"
    );
    tell(&test, why);
}

/// The same for what a machine may lack: the test fails nowhere.
pub fn skip_optional(why: impl Display) {
    tell(std::thread::current().name().unwrap_or("test"), why);
}

/// It goes around the capture of output, so that it is seen.
fn tell(test: &str, why: impl Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
