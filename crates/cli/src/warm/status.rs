//! What the daemon says of itself.

use std::fmt;

use faultless_measure::figures::{seconds, size};
use serde::{Deserialize, Serialize};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It takes memory.
    Filling,
    /// It has what it is to have.
    Awake,
    /// It has none until someone asks.
    Asleep,
}

/// How the reserve stands. `faultless warm status --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of these fields.
    pub version: u32,
    /// The daemon.
    pub pid: u32,
    /// Where it listens.
    pub socket: String,
    /// What it does.
    pub state: State,
    /// What it holds at most, and now.
    pub size_bytes: u64,
    /// See above.
    pub held_bytes: u64,
    /// Processes that still run and asked for memory, and what they were given.
    pub clients: usize,
    /// See above.
    pub clients_bytes: u64,
    /// What all were given since the daemon began.
    pub given_bytes: u64,
    /// What it took from the kernel, and how much of it came from the host.
    pub taken_bytes: u64,
    /// See above.
    pub cold_bytes: u64,
    /// Messages about growth; messages of other users or of too many processes; what was no message.
    pub requests: u64,
    /// See above.
    pub refused: u64,
    /// See above.
    pub malformed: u64,
    /// How often everything went back: under pressure, and after `keep_s`.
    pub pressed: u64,
    /// See above.
    pub kept_out: u64,
    /// For how long memory is held without a message.
    pub keep_s: u64,
    /// For how long it runs.
    pub runs_s: f64,
    /// Processor time that it took, in the program and in the kernel.
    pub user_s: f64,
    /// See above.
    pub system_s: f64,
}

impl Status {
    /// As it is sent.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What was received.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        // Another program may listen there.
        let is_possible = |status: &Self| (1..=i32::MAX as u32).contains(&status.pid);
        serde_json::from_slice(bytes).ok().filter(is_possible)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Filling => "it takes memory",
            State::Awake => "it waits for programs",
            State::Asleep => "it holds nothing until a program asks",
        };
        let mut row = |name: &str, value: String| writeln!(f, "  {name:<34} {value}");
        row("process", format!("{} at {}", self.pid, self.socket))?;
        row("state", state.into())?;
        row("holds", format!("{} of {}", size(self.held_bytes), size(self.size_bytes)))?;
        row("given to programs that run", format!("{}, to {}", size(self.clients_bytes), self.clients))?;
        row("given in all", format!("{}, after {} messages", size(self.given_bytes), self.requests))?;
        row(
            "taken from the kernel",
            format!("{}, {} from the host", size(self.taken_bytes), size(self.cold_bytes)),
        )?;
        row("given back under pressure", format!("{} times", self.pressed))?;
        row(
            "given back after its time",
            format!("{} times, after {} s without a message", self.kept_out, self.keep_s),
        )?;
        if self.refused + self.malformed > 0 {
            row("messages left aside", format!("{} refused, {} not understood", self.refused, self.malformed))?;
        }
        let used = format!("{} in {}", seconds(self.user_s + self.system_s), seconds(self.runs_s));
        row("processor time", used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let status = Status {
            version: 1,
            pid: 7,
            socket: "/a".into(),
            state: State::Filling,
            size_bytes: 8 << 30,
            held_bytes: 1 << 30,
            clients: 2,
            clients_bytes: 5,
            given_bytes: 6,
            taken_bytes: 7,
            cold_bytes: 8,
            requests: 9,
            refused: 10,
            malformed: 11,
            pressed: 12,
            kept_out: 13,
            keep_s: 14,
            runs_s: 15.5,
            user_s: 16.5,
            system_s: 17.5,
        };
        assert_eq!(Status::decode(status.encode().as_bytes()), Some(status.clone()));
        assert_eq!(Status::decode(b"{}"), None);
        assert!(status.to_string().contains("1 GiB of 8 GiB"));
    }
}
