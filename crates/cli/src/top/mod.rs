//! `faultless top`: a screen of processes that take page faults. Covered ones show what was done for them; of others,
//! those that take many faults are there too.
//!
//! [`sample`] looks at the machine, and tells what happened since its last look. [`app`] holds what is shown, and what
//! keys do to it. [`list`] and [`detail`] draw it. [`columns`] has the columns of the list.
//!
//! Only this module and [`signals`] touch the terminal. The others are tested without one, and all of it in tmux
//! (`tests/top.rs`).
//!
//! Exit status: 0 when the user ends it, 1 where there is no terminal to draw on or no process can be seen, 125 if
//! options are wrong. A signal that asks it to end ends it by that signal, with the terminal as it was. So it is while
//! it is stopped (Ctrl-Z). A background job is stopped until it is in front.

mod app;
mod columns;
mod detail;
mod keys;
mod list;
mod sample;
mod signals;
mod text;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::{Rect, Size};
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};

use crate::limits;
use crate::run::complain;
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

/// The most columns and lines that are drawn on: more than any screen has. Each cell takes memory, and a terminal may
/// say that it has 65535 times 65535.
const MOST: (u16, u16) = (1000, 500);

/// Of a terminal of this size, the part that is drawn on.
fn part(size: Size) -> Rect {
    Rect::new(0, 0, size.width.min(MOST.0), size.height.min(MOST.1))
}

/// The part of the terminal that is drawn on now.
fn area() -> Rect {
    let (width, height) = terminal::size().unwrap_or((80, 24));
    part(Size { width, height })
}

/// What is said where that fails.
const UNDRAWN: &str = "cannot draw on the terminal";

/// Takes the terminal, and draws on this part of it.
fn start(area: Rect) -> io::Result<DefaultTerminal> {
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    let terminal = ratatui::try_init_with_options(options)?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Ok(terminal)
}

/// Until the user ends it.
fn show(args: Args) -> Result<()> {
    check_terminal()?;
    if !is_proc_there() {
        return Err(Missing::Unseen.into());
    }
    signals::begin().context(UNDRAWN)?;
    limits::more_files();
    let mut sampler = Sampler::new();
    let mut app = App::new(args.sort, args.filter.unwrap_or_default(), text::Look::of_environment());
    app.take(sampler.look());
    // Rates come with the second look: soon, whatever the interval is.
    let mut next = Instant::now() + args.interval.min(SOON);
    let drawing = Arc::new(Mutex::new(()));
    let is_new = Arc::new(AtomicBool::new(false));
    signals::follow(Arc::clone(&drawing), Arc::clone(&is_new))?;
    // Its end would write to a terminal that may have gone, and abort when that fails: `restore` does what it is for.
    let mut terminal = {
        let _drawing = drawing.lock();
        ManuallyDrop::new(start(area()).context(UNDRAWN)?)
    };
    let mut drawn_on = area();
    let ended = loop {
        if signals::is_background() {
            signals::step_back();
            continue;
        }
        let drawn = {
            let _drawing = drawing.lock();
            let now = area();
            let is_changed = is_new.swap(false, Ordering::Relaxed) || now != drawn_on;
            drawn_on = now;
            let cleared = if is_changed { terminal.resize(now) } else { Ok(()) };
            cleared.and_then(|()| terminal.draw(|frame| app.draw(frame)).map(|_| ()))
        };
        let wait = next.saturating_duration_since(Instant::now());
        let event = drawn.and_then(|()| keys::next(wait));
        match event {
            // The terminal is gone, or another job's.
            Err(_) if signals::is_background() => {}
            Err(error) => break Err(error),
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => match app.key(key) {
                Flow::End => break Ok(()),
                Flow::Stop => signals::stop_all(),
                Flow::On => {}
            },
            // After a change of its size it is drawn anew.
            Ok(_) => {}
        }
        if Instant::now() >= next {
            app.take(sampler.look());
            next = Instant::now() + args.interval;
        }
    };
    // A signal may not touch it any more.
    std::mem::forget(drawing.lock());
    let restored = signals::restore();
    ended.and(restored).context("the terminal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_end_is_drawn_on_in_part() {
        let size = |width, height| part(Size { width, height });
        assert_eq!(size(80, 24), Rect::new(0, 0, 80, 24));
        assert_eq!(size(u16::MAX, u16::MAX), Rect::new(0, 0, MOST.0, MOST.1));
    }
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
