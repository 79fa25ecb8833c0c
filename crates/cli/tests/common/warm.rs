//! A daemon of a test's own, and what talks to it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{Scratch, faultless, text};

pub const MIB: u64 = 1 << 20;

/// A daemon of the test's own, which ends with it.
pub struct Warm(pub Scratch);

impl Warm {
    pub fn new(name: &str) -> Self {
        Self(Scratch::new(name))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.0.join("own/socket")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = faultless(["warm"]);
        command.args(args).env("FAULTLESS_WARM", self.socket());
        command
    }

    pub fn say(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn start(&self, args: &[&str]) {
        let out = self.command(&["start", "--force"]).args(args).output().unwrap();
        assert!(out.status.success() && text(&out.stdout).starts_with("a reserve of"), "{out:?}");
    }

    /// What it says of itself; `None`: it is not there.
    pub fn status(&self) -> Option<Value> {
        let out = loop {
            let out = self.say(&["status", "--json"]);
            // At idle priority it has no processor while others keep all busy.
            if !String::from_utf8_lossy(&out.stderr).contains("does not answer") {
                break out;
            }
        };
        let status: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(out.status.success(), !status.is_null());
        (!status.is_null()).then_some(status)
    }

    pub fn number(&self, name: &str) -> u64 {
        self.status().unwrap()[name].as_u64().unwrap()
    }

    /// Waits until it says that `name` is `number`.
    pub fn until(&self, name: &str, number: u64) {
        while self.number(name) != number {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub fn kill(&self) {
        if let Some(status) = self.status() {
            let pid = status["pid"].as_u64().unwrap();
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
            while Path::new(&format!("/proc/{pid}/stat")).exists() && self.status().is_some() {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.say(&["stop"]);
    }
}

pub fn growth(bytes: u64) -> Vec<u8> {
    [u64::from_le_bytes(*b"fltwarm1"), 1, bytes].iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// A process of its own that sends this, and then runs `words`.
pub fn sender(socket: &Path, message: Vec<u8>, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    faultless_testkit::sends_first(&mut command, socket, message).unwrap();
    command
}

/// Has another process send this, and waits for its end.
pub fn send(socket: &Path, message: Vec<u8>) -> io::Result<()> {
    sender(socket, message, &["true"]).status().map(drop)
}
