//! What is shown, and what was chosen.
//!
//! A view is the list, one process, or the help. Over each there may be a line that the user writes: the filter of the
//! list, or a knob's value. A process is held by number and start, so that a later one of the same number does not take
//! its place. When it ends, its last figures stay until the user goes back.

use faultless_page::knobs::{Knob, When};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::TableState;

use super::columns::Column;
use super::sample::{Row, Seen};
use super::text::Look;
use super::{detail, list};
use crate::sysctl;
use faultless_measure::pages::process::Process;

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    On,
    /// The user ends it.
    End,
    /// The user stops it for a while.
    Stop,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All processes.
    List,
    /// One.
    One(Process, Tab),
    /// What keys do.
    Help,
}

/// A part of what is known of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Its main figures, and graphs.
    Overview,
    /// All counters.
    Counters,
    /// Its regions.
    Regions,
    /// Its knobs.
    Knobs,
}

impl Tab {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Overview, Self::Counters, Self::Regions, Self::Knobs];

    /// The next one, or the one before.
    pub fn beside(self, step: isize) -> Self {
        Self::ALL[(self as isize + step).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

/// What the user writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    None,
    /// The filter. It counts at once; what it was before comes back with Escape.
    Filter {
        /// What it was.
        before: String,
    },
    /// A knob's value.
    Value(Knob, String),
}

/// Everything.
pub struct App {
    /// What fills the screen.
    pub view: View,
    /// What the user writes.
    pub input: Input,
    /// What the list is sorted by.
    pub sort: Column,
    /// Whether the other way round.
    pub is_reversed: bool,
    /// What names or numbers have in them.
    pub filter: String,
    /// Whether it stands still.
    pub is_paused: bool,
    /// What was done last, or what is wrong with it.
    pub message: Option<Message>,
    /// The chosen process of the list: it stays chosen when others come and go.
    pub chosen: Option<Process>,
    /// The first line that is shown of one process, or the chosen knob.
    pub line: usize,
    /// How many lines there are of it.
    pub lines: usize,
    /// What was seen.
    pub seen: Seen,
    /// The process that is shown, when it has ended.
    pub ended: bool,
    /// How it looks.
    pub look: Look,
    /// Where the list is.
    pub table: TableState,
}

/// A line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It was done.
    Done(String),
    /// It was not.
    Wrong(String),
}

impl App {
    /// With nothing seen yet.
    pub fn new(sort: Column, filter: String, look: Look) -> Self {
        let seen =
            Seen { rows: Vec::new(), closed: 0, wrong: Vec::new(), faults: 0.0, pressure: None, available: None };
        Self {
            view: View::List,
            input: Input::None,
            sort,
            is_reversed: false,
            filter,
            is_paused: false,
            message: None,
            chosen: None,
            line: 0,
            lines: 0,
            seen,
            ended: false,
            look,
            table: TableState::new(),
        }
    }

    /// Shows what was seen now, unless it stands still.
    pub fn take(&mut self, mut seen: Seen) {
        if self.is_paused {
            return;
        }
        if let View::One(process, _) = self.view {
            self.ended = seen.rows.iter().all(|row| row.process != process);
            // Its last figures stay.
            if self.ended
                && let Some(at) = self.seen.rows.iter().position(|row| row.process == process)
            {
                seen.rows.push(self.seen.rows.swap_remove(at));
            }
        }
        self.seen = seen;
        self.arrange();
    }

    /// Puts the rows in order, and chooses one.
    pub fn arrange(&mut self) {
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        self.seen.rows.sort_by(|a, b| {
            let order = sort.compare(a, b);
            if is_reversed { order.reverse() } else { order }
        });
        let shown: Vec<_> = self.shown().map(|row| row.process).collect();
        let at = self.chosen.and_then(|chosen| shown.iter().position(|process| *process == chosen));
        // Where the chosen one has gone, the one in its place is.
        let at = at.or(self.table.selected()).unwrap_or(0).min(shown.len().saturating_sub(1));
        self.chosen = shown.get(at).copied();
        self.table.select(self.chosen.map(|_| at));
    }

    /// The rows that the filter lets through.
    pub fn shown(&self) -> impl Iterator<Item = &Row> {
        let filter = self.filter.to_lowercase();
        let lets_through = move |row: &&Row| {
            row.command.to_lowercase().contains(&filter) || row.process.pid.to_string().contains(&filter)
        };
        self.seen.rows.iter().filter(lets_through)
    }

    /// A process.
    pub fn row(&self, process: Process) -> Option<&Row> {
        self.seen.rows.iter().find(|row| row.process == process)
    }

    /// Chooses another row of the list.
    pub fn step(&mut self, by: isize) {
        let shown: Vec<_> = self.shown().map(|row| row.process).collect();
        let at = self.table.selected().unwrap_or(0).saturating_add_signed(by).min(shown.len().saturating_sub(1));
        self.chosen = shown.get(at).copied();
        self.table.select(self.chosen.map(|_| at));
    }

    /// Sets a knob of the process that is shown.
    pub fn set(&mut self, process: Process, knob: Knob, value: &str) {
        let done = self.try_set(process, knob, value);
        self.message = Some(match done {
            Ok(text) => Message::Done(text),
            Err(text) => Message::Wrong(text),
        });
    }

    fn try_set(&mut self, process: Process, knob: Knob, value: &str) -> Result<String, String> {
        sysctl::may_change(knob)?;
        let declared = knob.declared();
        let number = declared.parse(value.trim().as_bytes()).map_err(|error| error.to_string())?;
        let row = self.seen.rows.iter_mut().find(|row| row.process == process);
        let service = row.and_then(|row| row.covered.as_mut()).ok_or("the process is not covered")?;
        if !process.runs() {
            return Err("the process has ended".into());
        }
        if let Some(why) = sysctl::deaf_because(&mut service.source) {
            return Err(why);
        }
        service.source.set(knob, number).map_err(|error| format!("cannot write to its page: {error}"))?;
        service.all = service.source.counters().clone();
        Ok(format!("{} = {}", declared.name, declared.show(service.all.knob(knob))))
    }

    /// The knobs that a running program has on its page, and whether each can be changed while it runs.
    pub fn knobs() -> impl Iterator<Item = (Knob, bool)> {
        let all = Knob::ALL.iter().filter(|knob| sysctl::is_on_page(**knob));
        all.map(|knob| (*knob, knob.declared().when == When::Live))
    }

    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame) {
        let [body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        match self.view {
            View::List => list::draw(self, frame, body),
            View::One(process, tab) => detail::draw(self, process, tab, frame, body),
            View::Help => list::help(self, frame, body),
        }
        self.draw_foot(frame, foot);
    }

    /// The last line: what the user writes, else what was done, else what keys do.
    fn draw_foot(&self, frame: &mut Frame, area: Rect) {
        let (text, style) = match (&self.input, &self.message) {
            (Input::Filter { .. }, _) => (format!("filter: {}_", self.filter), self.look.heading()),
            (Input::Value(knob, text), _) => {
                let declared = knob.declared();
                let range = sysctl::range(declared.kind);
                (format!("{} ({range}): {text}_", declared.name), self.look.heading())
            }
            (Input::None, Some(Message::Done(text))) => (text.clone(), self.look.heading()),
            (Input::None, Some(Message::Wrong(text))) => (text.clone(), self.look.wrong()),
            (Input::None, None) => (self.keys().to_owned(), self.look.heading()),
        };
        frame.render_widget(Line::styled(text, style), area);
    }

    fn keys(&self) -> &'static str {
        match self.view {
            View::List => "q quit  ? help  Enter details  / filter  < > sort  r reverse  Space pause",
            View::One(_, Tab::Knobs) => "Esc back  Tab next part  Up Down choose  Enter change  q quit",
            View::One(..) => "Esc back  Tab next part  Up Down scroll  Space pause  q quit",
            View::Help => "Esc back  q quit",
        }
    }
}
