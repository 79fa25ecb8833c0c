//! The list of processes, and the help.

use faultless_page::stats::Unit;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as Shown, Table};

use super::app::App;
use super::columns::{Column, fitting};
use super::sample::MANY;
use super::text::{percent, rate};
use crate::stat::short;

/// What the keys and the columns mean.
const HELP: &str = "\
Up Down PgUp PgDn choose   Enter details   Esc back   q quit
< >  sort by the column beside          r  the other way round
/    filter by name or number: Enter keeps it, Esc drops it
Space  stand still, and go on           Tab or 1 to 4  parts of the details

FAULTS/s  page faults that the kernel took for the process, a second
TIME      their share of one processor's time, about: by what a fault of a small page costs here
HANDED/s  bytes that requests got, a second
READY     of all that was handed out, the share that was in memory, without faults to come
ZEROED/s  bytes zeroed in the background, a second
RESIDENT  memory of the process
KEPT/s    bytes kept for the process when it gave them back, a second
LEFT/s    requests left to the kernel or the C library, a second

(name)  not covered, and takes 100 faults a second or more    [plain]  runs plain: details say why
";

/// The list.
pub fn draw(app: &mut App, frame: &mut Frame, area: Rect) {
    let head = head(app, area.width);
    let [top, body] = Layout::vertical([Constraint::Length(head.len() as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Text::from(head), top);
    let columns = fitting(area.width);
    let side = |column: &Column| if column.is_text() { Alignment::Left } else { Alignment::Right };
    let cell = |column: &Column, text: String| Cell::from(Line::from(text).alignment(side(column)));
    let titles = columns.iter().map(|column| {
        let mark = if *column == app.sort { "*" } else { "" };
        let title = format!("{mark}{}", column.title());
        cell(column, title).style(app.look.heading())
    });
    let rows = app.shown().map(|row| Shown::new(columns.iter().map(|column| cell(column, column.show(row)))));
    let rows: Vec<_> = rows.collect();
    let is_empty = rows.is_empty();
    let widths = columns.iter().map(|column| match column {
        Column::Command => Constraint::Fill(1),
        column => Constraint::Length(column.width()),
    });
    let table = Table::new(rows, widths)
        .header(Shown::new(titles))
        .row_highlight_style(app.look.chosen())
        .highlight_symbol(">");
    frame.render_stateful_widget(table, body, &mut app.table);
    if is_empty && body.height > 1 {
        let below = Rect { y: body.y + 1, height: body.height - 1, ..body };
        frame.render_widget(Paragraph::new(nothing(app)).wrap(Default::default()), below);
    }
}

/// Why there is nothing in the list.
fn nothing(app: &App) -> String {
    if !app.filter.is_empty() {
        return format!("No process has {:?} in its name or number (/ changes that).", app.filter);
    }
    format!(
        "No process is covered that you may watch, and none takes {MANY} page faults a second. `faultless run -- PROGRAM`, \
         in another terminal, starts one."
    )
}

/// The lines above the list: the machine, and all that is shown.
fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let seen = &app.seen;
    let covered = seen.rows.iter().filter(|row| row.covered.is_some()).count();
    let others = seen.rows.len() - covered;
    let mut machine = vec![format!("{} faults/s", rate(seen.faults, Unit::Calls))];
    machine.extend(seen.available.map(|bytes| format!("{} available", short(bytes, Unit::Bytes))));
    machine.extend(seen.pressure.map(|share| format!("memory pressure {}", percent(share))));
    let sum = |of: &dyn Fn(&super::sample::Service) -> f64| -> f64 {
        seen.rows.iter().filter_map(|row| row.covered.as_ref()).map(of).sum()
    };
    let handed = sum(&super::sample::Service::handed);
    let mut all = vec![format!("{covered} covered"), format!("{others} others")];
    all.push(format!("{}/s handed out", rate(handed, Unit::Bytes)));
    if seen.closed > 0 {
        all.push(format!("{} more that you may not look at", seen.closed));
    }
    if !app.filter.is_empty() {
        all.push(format!("filter {:?}", app.filter));
    }
    if app.is_paused {
        all.push("PAUSED".into());
    }
    let line = |title: &str, parts: Vec<String>| {
        let text = format!("{title}{}", parts.join(", "));
        Line::from(text.chars().take(width.into()).collect::<String>())
    };
    let mut lines = vec![line("machine: ", machine), line("processes: ", all)];
    if let Some(wrong) = seen.wrong.first() {
        lines.push(line("", vec![wrong.clone()]).style(app.look.wrong()));
    }
    lines
}

/// What keys and columns mean.
pub fn help(app: &App, frame: &mut Frame, area: Rect) {
    let title = Line::styled("faultless top", app.look.heading());
    let lines = std::iter::once(title).chain(HELP.lines().map(Line::from));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).wrap(Default::default()), area);
}

#[cfg(test)]
mod tests {
    use super::super::made::{row, screen, seen};
    use super::super::text::Look;
    use super::*;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    fn app() -> App {
        let mut app = App::new(Column::Faults, String::new(), Look::PLAIN);
        let rows = (0..40).map(|i| row(1000 + i, "a program of 15", f64::from(i) * 100.0));
        app.take(seen(rows.collect()));
        app
    }

    #[test]
    fn a_screen_of_any_size_shows_what_it_can() {
        let mut app = app();
        let text = screen(&mut app, 80, 24);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with("machine: 12 faults/s")
                && lines[1].starts_with("processes: 0 covered, 40 others")
        );
        assert!(lines[2].contains(" *FAULTS/s "), "{text}");
        assert!(lines[3].starts_with('>') && lines[3].contains("1039") && lines[3].contains("3900"), "{text}");
        assert!(lines[23].starts_with("q quit"));
        for (width, height) in [(80, 24), (200, 60), (40, 12), (20, 5), (1, 1), (80, 1), (1, 24)] {
            let text = screen(&mut app, width, height);
            assert_eq!(text.lines().count(), usize::from(height));
            assert!(text.is_ascii(), "{text}");
        }
        assert!(screen(&mut app, 120, 10).contains("LEFT/s") && !screen(&mut app, 80, 10).contains("LEFT/s"));
    }

    #[test]
    fn the_chosen_row_is_always_on_the_screen() {
        let mut app = app();
        for code in [KeyCode::End, KeyCode::Home, KeyCode::PageDown] {
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
            let text = screen(&mut app, 80, 12);
            let chosen = text.lines().find(|line| line.starts_with('>')).expect("a row is chosen");
            assert!(chosen.contains(&app.chosen.unwrap().pid.to_string()), "{text}");
        }
    }

    #[test]
    fn an_empty_list_says_what_to_do_and_help_fits() {
        let mut app = App::new(Column::Faults, String::new(), Look::PLAIN);
        assert!(screen(&mut app, 80, 24).contains("faultless run -- PROGRAM"));
        app.filter = "zsh".into();
        assert!(screen(&mut app, 80, 24).contains("\"zsh\""));
        app.key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
        let help = screen(&mut app, 80, 24);
        assert!(help.contains("[plain]") && help.contains("q quit"), "{help}");
    }
}
