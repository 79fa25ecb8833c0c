//! Under valgrind one thread runs at a time, a thread that faults among them: what needs another one is refused, and
//! the default does without.

use std::process::Command;
use std::time::{Duration, Instant};

use faultless::region::{Delivery, Error, Region};
use faultless_testkit::limit::limit;

#[test]
#[ignore = "run by the other test, under valgrind"]
fn inside() {
    let mut region = Region::anonymous(4 << 20).unwrap();
    region.as_mut_slice().unwrap()[12345] = 1;
    assert_eq!(region.delivery(), Delivery::Kernel);
    assert_eq!(Region::builder(1).delivery(Delivery::Thread).build().err(), Some(Error::Valgrind));
    assert_eq!(Region::builder(1).events(true).build().err(), Some(Error::Valgrind));
}

#[test]
fn a_program_under_valgrind_ends() {
    limit();
    let test = std::env::current_exe().unwrap();
    let command = |program: &str| {
        let mut command = Command::new(program);
        command.args(["-q", "--tool=none"]).arg(&test).args(["--ignored", "--exact", "inside"]);
        command
    };
    let mut child = match command("valgrind").spawn() {
        Ok(child) => child,
        Err(error) => return faultless_testkit::skip(format_args!("valgrind, {error}")),
    };
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(90) => {
                // A signal that it could hold back would wait with it.
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{status}");
}
