//! A tool in a real terminal: tmux draws it, and says what stands on the screen, with its colours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::shell::{command, output};

/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the shell of the terminal writes when its script has ended.
const DONE: &str = "done";

/// What is on the screen `name` of this many columns and lines once `script` has ended, or `ready` holds for its text.
pub fn screen(
    (dir, name): (&Path, &str),
    (columns, lines): (usize, usize),
    script: &str,
    ready: impl Fn(&str) -> bool,
) -> Result<String> {
    let terminal = Terminal::new(dir, name)?;
    let done = dir.join(DONE);
    let whole = format!("{script}; touch {DONE}; exec sleep 600");
    let (columns, lines) = (columns.to_string(), lines.to_string());
    let size = ["new-session", "-d", "-s", "picture", "-x", &columns, "-y", &lines];
    output(terminal.tmux(&size).args(["sh", "-c", &whole]))?;
    let start = Instant::now();
    loop {
        let is_done = done.exists();
        let text = output(&mut terminal.tmux(&["capture-pane", "-p", "-t", "picture"]))?;
        if is_done || ready(&text) {
            // What was written last is drawn now.
            std::thread::sleep(Duration::from_millis(200));
            return output(&mut terminal.tmux(&["capture-pane", "-e", "-p", "-t", "picture"]));
        }
        ensure!(start.elapsed() < PATIENCE, "{script} does not come to an end:\n{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A server of its own, which ends with this.
struct Terminal {
    dir: PathBuf,
    socket: String,
}

impl Terminal {
    fn new(dir: &Path, name: &str) -> Result<Self> {
        let _ = std::fs::remove_file(dir.join(DONE));
        std::fs::write(dir.join("tmux.conf"), "set -g status off\nset -g default-terminal screen-256color\n")?;
        // Each has its own: a server that ends still answers for a moment.
        Ok(Self { dir: dir.to_owned(), socket: format!("socket-{name}") })
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = command("tmux");
        tmux.current_dir(&self.dir).args(["-S", &self.socket, "-f", "tmux.conf"]).args(args);
        tmux.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8");
        tmux
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = output(&mut self.tmux(&["kill-server"]));
    }
}
