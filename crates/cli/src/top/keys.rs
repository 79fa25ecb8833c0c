//! Keys: how they come, and what they do.

use std::io::{self, ErrorKind};
use std::time::Duration;

use faultless_page::knobs::Knob;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Flow, Input, Tab, View};
use super::signals;

/// Rows that a page is taken for.
const PAGE: isize = 10;

/// What comes next from the terminal, within so long. The terminal is looked at before it is read: crossterm reads one that
/// has gone without end.
pub fn next(wait: Duration) -> io::Result<Option<Event>> {
    look(Duration::ZERO)?;
    // Of several keys that came at once, the others are read already.
    if !event::poll(Duration::ZERO)? {
        // A change of its size ends this by its signal.
        look(wait)?;
        // What another job is to read is not for this one.
        if signals::is_background() || !event::poll(Duration::ZERO)? {
            return Ok(None);
        }
    }
    event::read().map(Some)
}

/// Waits so long for the terminal to have something to read; an error: it has gone.
fn look(wait: Duration) -> io::Result<()> {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    let wait = wait.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    // SAFETY: one description, which is writable.
    let found = unsafe { libc::poll(&mut input, 1, wait) };
    match found {
        -1 => Err(io::Error::last_os_error()).or_else(|error| match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }),
        _ if input.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 => {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "it has gone"))
        }
        _ => Ok(()),
    }
}

impl App {
    /// Does what a key says.
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Flow::End,
                KeyCode::Char('z') => Flow::Stop,
                _ => Flow::On,
            };
        }
        match std::mem::replace(&mut self.input, Input::None) {
            Input::None => {}
            Input::Filter { before } => {
                self.filter_key(key.code, before);
                return Flow::On;
            }
            Input::Value(knob, text) => {
                self.value_key(key.code, knob, text);
                return Flow::On;
            }
        }
        self.message = None;
        match (key.code, self.view) {
            (KeyCode::Char('q'), _) => return Flow::End,
            (KeyCode::Char('?' | 'h') | KeyCode::F(1), _) => self.view = View::Help,
            (KeyCode::Char(' '), _) => self.is_paused = !self.is_paused,
            (code, View::List) => self.list_key(code),
            (code, View::One(..)) => self.one_key(code),
            (KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace, View::Help) => self.view = View::List,
            (_, View::Help) => {}
        }
        Flow::On
    }

    fn filter_key(&mut self, code: KeyCode, before: String) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter = before;
                self.arrange();
                return;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.arrange();
        self.input = Input::Filter { before };
    }

    fn value_key(&mut self, code: KeyCode, knob: Knob, mut text: String) {
        match code {
            KeyCode::Enter => {
                if let View::One(process, _) = self.view {
                    self.set(process, knob, &text);
                }
                return;
            }
            KeyCode::Esc => return,
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        self.input = Input::Value(knob, text);
    }

    fn list_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-PAGE),
            KeyCode::PageDown => self.step(PAGE),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('<') | KeyCode::Left => self.sort = self.sort.beside(-1),
            KeyCode::Char('>') | KeyCode::Right => self.sort = self.sort.beside(1),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => self.input = Input::Filter { before: self.filter.clone() },
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => {
                if let Some(process) = self.chosen {
                    (self.view, self.line, self.ended) = (View::One(process, Tab::Overview), 0, false);
                }
                return;
            }
            _ => return,
        }
        self.arrange();
    }

    fn one_key(&mut self, code: KeyCode) {
        let View::One(process, tab) = self.view else { return };
        let mut turn = |to: Tab| (self.view, self.line) = (View::One(process, to), 0);
        match code {
            KeyCode::Esc | KeyCode::Backspace => {
                self.view = View::List;
                self.arrange();
            }
            KeyCode::Tab | KeyCode::Right => turn(tab.beside(1)),
            KeyCode::BackTab | KeyCode::Left => turn(tab.beside(-1)),
            KeyCode::Char(c @ '1'..='4') => turn(Tab::ALL[c as usize - '1' as usize]),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::PageUp => self.scroll(-PAGE),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::Enter if tab == Tab::Knobs => self.begin_change(),
            _ => {}
        }
    }

    fn scroll(&mut self, by: isize) {
        self.line = self.line.saturating_add_signed(by).min(self.lines.saturating_sub(1));
    }

    /// Has the user write a new value for the chosen knob.
    fn begin_change(&mut self) {
        let View::One(process, _) = self.view else { return };
        let is_covered = self.row(process).is_some_and(|row| row.covered.is_some());
        let Some((knob, _)) = App::knobs().nth(self.line).filter(|_| is_covered) else { return };
        match crate::sysctl::may_change(knob) {
            Ok(()) => self.input = Input::Value(knob, String::new()),
            Err(why) => self.message = Some(super::app::Message::Wrong(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::Column;
    use super::super::made::{row, seen};
    use super::super::text::Look;
    use super::*;

    fn press(app: &mut App, codes: impl IntoIterator<Item = KeyCode>) -> Flow {
        codes.into_iter().map(|code| app.key(KeyEvent::new(code, KeyModifiers::NONE))).last().unwrap()
    }

    fn letters(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    fn app() -> App {
        let mut app = App::new(Column::Faults, String::new(), Look::PLAIN);
        app.take(seen(vec![row(7, "python3", 900.0), row(30, "dd", 5000.0), row(31, "Dash", 0.0)]));
        app
    }

    fn shown(app: &App) -> Vec<u32> {
        app.shown().map(|row| row.process.pid).collect()
    }

    #[test]
    fn the_list_is_sorted_and_filtered() {
        let mut app = app();
        assert_eq!(shown(&app), [30, 7, 31]);
        press(&mut app, [KeyCode::Char('r')]);
        assert_eq!(shown(&app), [31, 7, 30]);
        press(&mut app, [KeyCode::Char('r'), KeyCode::Char('<')]);
        assert_eq!((app.sort, shown(&app)), (Column::Command, vec![31, 30, 7]));
        press(&mut app, letters("/DA"));
        assert_eq!(shown(&app), [31]);
        press(&mut app, [KeyCode::Esc]);
        assert_eq!(shown(&app).len(), 3, "what the filter was before");
        press(&mut app, letters("/3").into_iter().chain([KeyCode::Enter]));
        assert_eq!((shown(&app), &app.input), (vec![31, 30, 7], &Input::None));
        press(&mut app, letters("/1").into_iter().chain([KeyCode::Backspace, KeyCode::Char('0'), KeyCode::Enter]));
        assert_eq!(shown(&app), [30]);
        assert_eq!(press(&mut app, [KeyCode::Char('q')]), Flow::End);
    }

    #[test]
    fn a_chosen_process_stays_chosen() {
        let mut app = app();
        press(&mut app, [KeyCode::Down]);
        assert_eq!(app.chosen.unwrap().pid, 7);
        app.take(seen(vec![row(7, "python3", 9000.0), row(30, "dd", 5000.0)]));
        assert_eq!((app.chosen.unwrap().pid, app.table.selected()), (7, Some(0)));
        app.take(seen(vec![row(30, "dd", 5000.0)]));
        assert_eq!(app.chosen.unwrap().pid, 30);
        app.take(seen(Vec::new()));
        assert_eq!((app.chosen, app.table.selected()), (None, None));
        assert_eq!(press(&mut app, [KeyCode::Enter, KeyCode::Up, KeyCode::End, KeyCode::Char('x')]), Flow::On);
    }

    #[test]
    fn one_process_stays_when_it_has_ended() {
        let mut app = app();
        press(&mut app, [KeyCode::Enter]);
        assert!(matches!(app.view, View::One(process, Tab::Overview) if process.pid == 30));
        app.take(seen(vec![row(7, "python3", 1.0)]));
        let View::One(process, _) = app.view else { panic!() };
        assert!(app.ended && app.row(process).is_some_and(|row| row.faults == 5000.0));
        press(&mut app, [KeyCode::Tab, KeyCode::Tab, KeyCode::Tab]);
        assert!(matches!(app.view, View::One(_, Tab::Knobs)));
        // It is not covered: there is nothing to change.
        press(&mut app, [KeyCode::Enter]);
        assert_eq!(app.input, Input::None);
        press(&mut app, [KeyCode::Esc]);
        app.take(seen(vec![row(7, "python3", 1.0)]));
        assert_eq!((app.view, shown(&app)), (View::List, vec![7]));
    }

    #[test]
    fn it_stands_still_while_it_is_paused() {
        let mut app = app();
        press(&mut app, [KeyCode::Char(' ')]);
        app.take(seen(Vec::new()));
        assert_eq!(shown(&app).len(), 3);
        press(&mut app, [KeyCode::Char(' ')]);
        app.take(seen(Vec::new()));
        assert_eq!(shown(&app).len(), 0);
    }
}
