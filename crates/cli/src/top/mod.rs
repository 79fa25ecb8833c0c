//! `faultless top`: a screen of processes that take page faults. Covered ones show what was done for them; of others,
//! those that take many faults are there too.
//!
//! [`sample`] looks at the machine and tells what happened from one look to the next. [`app`] holds what is shown, and
//! what keys do to it. [`list`] and [`detail`] draw that; [`columns`] has the columns of the list. Nothing but this
//! module touches the terminal: the others are tested without one, and all of it in tmux (`tests/top.rs`).
//!
//! Exit status: 0 when the user ends it, 1 where there is no terminal to draw on or no process can be seen, 125 if
//! options are wrong. A signal that asks it to end ends it by that signal, with the terminal as it was.

mod app;
mod columns;
mod detail;
mod keys;
mod list;
mod sample;
mod text;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::limits;
use crate::run::{End, complain};
use crate::stat;
use app::{App, Flow};
use columns::Column;
use faultless_measure::pages::find::{Missing, is_proc_there};
use sample::Sampler;

/// Options of `faultless top`.
#[derive(clap::Args)]
pub struct Args {
    /// Look again after this many seconds.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = stat::interval)]
    interval: Duration,
    /// Show processes only of which the name or the number has this in it.
    #[arg(short, long, value_name = "TEXT")]
    filter: Option<String>,
    /// The column to sort by, largest first.
    #[arg(short, long, value_enum, default_value_t = Column::Faults)]
    sort: Column,
}

/// How long a signal waits for what is being drawn.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon the second look comes.
const SOON: Duration = Duration::from_millis(200);

/// Shows the screen until the user ends it.
pub fn main(args: Args) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(stat::status_of(&error))
        }
    }
}

/// Whether a screen can be drawn.
fn check_terminal() -> Result<()> {
    const INSTEAD: &str = "`faultless stat -i 1` writes lines instead";
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        bail!("top needs a terminal for its input and output; {INSTEAD}");
    }
    match std::env::var_os("TERM") {
        Some(name) if name == "dumb" => bail!("the terminal is a dumb one (TERM=dumb); {INSTEAD}"),
        Some(name) if !name.is_empty() => Ok(()),
        _ => bail!("it is not known what the terminal can do (TERM is not set); {INSTEAD}"),
    }
}

/// Until the user ends it.
fn show(args: Args) -> Result<()> {
    check_terminal()?;
    if !is_proc_there() {
        return Err(Missing::Unseen.into());
    }
    limits::more_files();
    let mut sampler = Sampler::new();
    let mut app = App::new(args.sort, args.filter.unwrap_or_default(), text::Look::of_environment());
    app.take(sampler.look());
    // Rates come with the second look: soon, whatever the interval is.
    let mut next = Instant::now() + args.interval.min(SOON);
    let drawing = Arc::new(Mutex::new(()));
    end_by_signals(Arc::clone(&drawing))?;
    let mut terminal = ratatui::try_init().context("cannot draw on the terminal")?;
    let ended = loop {
        let drawn = {
            let _drawing = drawing.lock();
            terminal.draw(|frame| app.draw(frame))
        };
        let wait = next.saturating_duration_since(Instant::now());
        let event = drawn.and_then(|_| keys::next(wait));
        match event {
            // The terminal is gone.
            Err(error) => break Err(error),
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                if app.key(key) == Flow::End {
                    break Ok(());
                }
            }
            // After a change of its size it is drawn anew.
            Ok(_) => {}
        }
        if Instant::now() >= next {
            app.take(sampler.look());
            next = Instant::now() + args.interval;
        }
    };
    // A signal may not restore it, too.
    let _drawing = drawing.lock();
    let restored = ratatui::try_restore();
    ended.and(restored).context("the terminal")
}

/// A signal that asks to end restores the terminal and ends this process by that signal, whatever the others do: also where they
/// wait for a terminal that has gone.
fn end_by_signals(drawing: Arc<Mutex<()>>) -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let end = move || {
        if let Some(signal) = signals.forever().next() {
            // A terminal that takes nothing cannot be restored either.
            let takes_it = |_| {
                let is_free = drawing.try_lock().map(std::mem::forget).is_ok();
                if !is_free {
                    std::thread::sleep(PATIENCE / 10);
                }
                is_free
            };
            if (0..10).any(takes_it) {
                let _ = ratatui::try_restore();
            }
            End::Signal(signal).copy();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(end)?;
    Ok(())
}

/// Rows, and screens as text, for tests.
#[cfg(test)]
mod made {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::app::App;
    use super::sample::{Row, Seen};
    use faultless_measure::pages::process::Process;

    /// A process that is not covered.
    pub fn row(pid: u32, command: &str, faults: f64) -> Row {
        let process = Process { pid, started: 1 };
        let (command, history) = (command.to_owned(), Default::default());
        Row { process, command, faults, time: faults / 2e6, resident: 5 << 20, covered: None, history }
    }

    /// These, and nothing else of note.
    pub fn seen(rows: Vec<Row>) -> Seen {
        Seen { rows, closed: 0, wrong: Vec::new(), faults: 12.0, pressure: Some(0.25), available: Some(3 << 30) }
    }

    /// What is on a screen of this size.
    pub fn screen(app: &mut App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
        (0..height).map(line).collect()
    }
}
