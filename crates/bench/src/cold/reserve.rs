//! The daemon of the reserve, with a socket of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::LIMIT;
use crate::undo::Undo;

/// A daemon, which ends with this.
pub struct Reserve {
    pub daemon: Daemon,
    _undo: Undo,
}

/// How it is spoken to.
#[derive(Clone)]
pub struct Daemon {
    exe: PathBuf,
    pub socket: PathBuf,
}

impl Reserve {
    /// Starts one, and waits until it holds `bytes`.
    pub fn start(exe: &Path, dir: &Path, bytes: u64) -> Result<Self, String> {
        let daemon = Daemon { exe: exe.to_owned(), socket: dir.join("warm/socket") };
        let undone = daemon.clone();
        let reserve = Self { daemon: daemon.clone(), _undo: Undo::by(move || _ = undone.say(&["stop"])) };
        let size = bytes.to_string();
        daemon.say(&["start", "--force", "--keep", "5m", "--size", &size])?;
        let end = std::time::Instant::now() + LIMIT;
        while daemon.held()? < bytes {
            if std::time::Instant::now() > end {
                return Err("the reserve does not fill".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(reserve)
    }
}

impl Daemon {
    fn say(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.exe);
        command.arg("warm").args(args).env("FAULTLESS_WARM", &self.socket).stderr(Stdio::inherit());
        let out = command.output().map_err(|error| format!("{}: {error}", self.exe.display()))?;
        if out.status.success() { Ok(out.stdout) } else { Err(format!("warm {args:?}: {}", out.status)) }
    }

    fn status(&self, key: &str) -> Result<serde_json::Value, String> {
        let status: serde_json::Value =
            serde_json::from_slice(&self.say(&["status", "--json"])?).map_err(|error| error.to_string())?;
        status.get(key).cloned().ok_or_else(|| format!("no {key}"))
    }

    fn held(&self) -> Result<u64, String> {
        self.status("held_bytes")?.as_u64().ok_or_else(|| "held_bytes is no number".into())
    }

    /// Seconds of a processor that it took by now.
    pub fn processor(&self) -> Result<f64, String> {
        let seconds = |key| self.status(key)?.as_f64().ok_or_else(|| format!("{key} is no number"));
        Ok(seconds("user_s")? + seconds("system_s")?)
    }
}
