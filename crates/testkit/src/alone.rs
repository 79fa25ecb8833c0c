//! Tests that run in a process of their own: they make holes in memory, which other tests' threads would map
//! something into, or change what is the process's.

use std::process::Command;

const ALONE: &str = "FAULTLESS_TEST_ALONE";

/// Runs the test that calls it in a process that runs nothing else. It is to be the first thing that a test does, on
/// the thread that the test began on.
pub fn alone(test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let own = std::env::current_exe().expect("the path of this program");
    let thread = std::thread::current();
    let name = thread.name().expect("a thread has its test's name");
    let run =
        Command::new(own).args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().expect("a program");
    let (said, complaint) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && said.contains("1 passed"), "{name}: {}\n{said}{complaint}", run.status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_its_own_process_fails_here() {
        let ended = std::panic::catch_unwind(|| alone(|| std::process::exit(3)));
        assert!(ended.is_err());
    }
}
