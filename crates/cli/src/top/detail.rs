//! One process: its main figures with graphs, all counters, its regions, its knobs.

use faultless_page::knobs::Knob;
use faultless_page::stats::{COUNTERS, Counter, Unit};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::app::{App, Tab};
use super::sample::{Point, Row, Service};
use super::text::{Look, percent, rate};
use crate::stat::{regions, short};
use faultless_measure::figures::{size, wrap_at};
use faultless_measure::pages::process::Process;

/// What the overview has of the counters: their name there.
const FIGURES: &[(&str, &[Counter])] = &[
    ("handed out", &[Counter::MmapBytes, Counter::MallocBytes]),
    ("  zero before", &[Counter::BytesZeroed]),
    ("  as it was", &[Counter::BytesUnzeroed]),
    ("  zeroed at once", &[Counter::BytesHotZeroed]),
    ("  new, huge pages", &[Counter::BytesFreshHuge]),
    ("  new, small pages", &[Counter::BytesFreshSmall]),
    ("touched ahead", &[Counter::BytesTouchedLent, Counter::BytesTouchedAhead]),
    ("zeroed in background", &[Counter::BytesScrubbed]),
    ("pool: kept", &[Counter::BytesKept]),
    ("  back: over budget", &[Counter::BytesOverBudget]),
    ("  back: not wanted", &[Counter::BytesDecayed]),
    ("  back: pressure", &[Counter::BytesPressed]),
];

/// One process, of which this part.
pub fn draw(app: &mut App, process: Process, tab: Tab, frame: &mut Frame, area: Rect) {
    let Some(row) = app.row(process) else { return };
    let width = usize::from(area.width);
    let mut head = vec![title(app, row), tabs(app, tab)];
    head.extend(why_plain(row, width).into_iter().map(|line| Line::styled(line, app.look.wrong())));
    let [top, body] = Layout::vertical([Constraint::Length(head.len() as u16), Constraint::Min(0)]).areas(area);
    let lines = match (tab, &row.covered) {
        (Tab::Overview, _) => {
            overview(row, app.look, frame, body);
            Vec::new()
        }
        (_, None) => vec!["It was not started under faultless: there is nothing to show here.".into()],
        (Tab::Counters, Some(service)) => counters(service),
        (Tab::Regions, Some(service)) => shown_regions(service, width),
        (Tab::Knobs, Some(service)) => knobs(service),
    };
    let height = usize::from(body.height);
    let chosen = (tab == Tab::Knobs && row.covered.is_some()).then_some(app.line);
    // Of the knobs, the chosen one is on the screen; of the others, the first line is as far down as there is more.
    let first = match chosen {
        Some(chosen) => (chosen + 1).saturating_sub(height),
        None => app.line.min(lines.len().saturating_sub(height)),
    };
    let count = if chosen.is_some() { lines.len() } else { (lines.len() + 1).saturating_sub(height) };
    let styled = (0..).zip(lines).skip(first).take(height).map(|(at, text): (usize, String)| {
        let is_chosen = Some(at) == chosen;
        let mark = match chosen {
            Some(_) if is_chosen => ">",
            Some(_) => " ",
            None => "",
        };
        let line = Line::from(format!("{mark}{text}"));
        if is_chosen { line.style(app.look.chosen()) } else { line }
    });
    frame.render_widget(Text::from(styled.collect::<Vec<_>>()), body);
    frame.render_widget(Text::from(head), top);
    app.lines = count;
    app.line = if chosen.is_some() { app.line } else { first };
}

fn title(app: &App, row: &Row) -> Line<'static> {
    let mut text = format!("{} {}: ", row.process.pid, row.command);
    text += match &row.covered {
        None => "not covered",
        Some(service) if service.all.plain().is_some() => "runs plain",
        Some(service) if service.listens == Some(false) => "another program has taken its place",
        Some(_) => "covered",
    };
    if app.ended {
        text += ", HAS ENDED";
    }
    if app.is_paused {
        text += ", PAUSED";
    }
    Line::styled(text, app.look.heading())
}

/// The parts, the shown one in brackets.
fn tabs(app: &App, shown: Tab) -> Line<'static> {
    let name = |tab: Tab| {
        let name = format!("{} {tab:?}", tab as usize + 1).to_lowercase();
        if tab == shown { format!("[{name}]") } else { format!(" {name} ") }
    };
    Line::styled(Tab::ALL.map(name).join(" "), app.look.heading())
}

fn why_plain(row: &Row, width: usize) -> Vec<String> {
    let why = row.covered.as_ref().and_then(|service| service.all.plain());
    why.map(|why| wrap_at(why, "", width.max(20)).lines().map(str::to_owned).collect()).unwrap_or_default()
}

/// The main figures, and as much of the graphs as there is room for.
fn overview(row: &Row, look: Look, frame: &mut Frame, area: Rect) {
    let lines = figures(row);
    let graphs = [
        ("page faults", Unit::Calls, (|point: &Point| point.faults) as fn(&Point) -> f64),
        ("handed out", Unit::Bytes, |point: &Point| point.handed),
    ];
    let shown = if row.covered.is_some() { &graphs[..] } else { &graphs[..1] };
    let [text, below] = Layout::vertical([Constraint::Length(lines.len() as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Text::from(lines.into_iter().map(Line::from).collect::<Vec<_>>()), text);
    // A graph has its name and two lines at least.
    let fitting = usize::from(below.height / 3).min(shown.len());
    if fitting == 0 {
        return;
    }
    let places = Layout::vertical(vec![Constraint::Fill(1); fitting]).split(below);
    for ((name, unit, of), place) in shown.iter().zip(places.iter()) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(*place);
        let points: Vec<f64> = row.history.iter().map(of).take(body.width.into()).collect();
        let most = points.iter().copied().fold(0.0, f64::max);
        let title = format!("{name} a second, {} at most, now at the right", rate(most, *unit));
        frame.render_widget(Line::styled(title, look.heading()), head);
        // In thousandths of the largest, for what is less than one.
        let bars = points.iter().map(|value| if most > 0.0 { (value / most * 1000.0) as u64 } else { 0 });
        let graph = Sparkline::default().data(bars.collect::<Vec<_>>()).max(1000).style(look.graph());
        frame.render_widget(graph.direction(RenderDirection::RightToLeft).bar_set(look.bars()), body);
    }
}

fn figures(row: &Row) -> Vec<String> {
    let faults = format!(
        "{} page faults/s, about {} of a processor; {} resident",
        rate(row.faults, Unit::Calls),
        percent(row.time),
        size(row.resident)
    );
    let Some(service) = &row.covered else {
        return vec![faults, "`faultless run -- PROGRAM` covers a program from its start.".into()];
    };
    let ready = service.ready().map_or_else(|| "nothing handed out".into(), |share| percent(share) + " ready");
    let budget = size(service.all.knob(Knob::Budget));
    let mut lines = vec![faults, format!("{ready}; budget {budget}; {}", hits(service))];
    lines.push(format!("{:<22} {:>12} {:>10}", "", "bytes so far", "a second"));
    for (name, counters) in FIGURES {
        let all: u64 = counters.iter().map(|counter| service.all.get(*counter)).sum();
        let more: f64 = counters.iter().map(|counter| service.rate(*counter)).sum();
        lines.push(format!("{name:<22} {:>12} {:>10}", size(all), rate(more, Unit::Bytes)));
    }
    let left = service.all.left();
    let reasons = left.iter().map(|(why, calls)| format!("{} {why}", short(*calls, Unit::Calls)));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    lines.push(format!("left to the kernel: {}", if reasons.is_empty() { "none" } else { &reasons }));
    lines
}

/// How requests for zeroes were served.
fn hits(service: &Service) -> String {
    let calls = |counter| short(service.all.get(counter), Unit::Calls);
    let [hits, hot, misses] = [Counter::ZeroHits, Counter::ZeroHot, Counter::ZeroMisses].map(calls);
    format!("zeroes: {hits} ready, {hot} at once, {misses} by the kernel")
}

/// All counters that counted something.
fn counters(service: &Service) -> Vec<String> {
    let all =
        COUNTERS.iter().zip(service.all.values()).zip(service.more.values()).filter(|((_, all), _)| **all > 0);
    let lines = all.map(|((counter, all), more)| {
        let a_second = rate(*more as f64 / service.seconds, counter.unit);
        format!("{all:>16} {:<22} {a_second:>10} /s  {}", counter.name, counter.unit.name())
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { vec!["Nothing was counted so far.".into()] } else { lines }
}

fn shown_regions(service: &Service, width: usize) -> Vec<String> {
    let text = regions(&service.all.regions, width);
    if text.is_empty() { vec!["It has no regions.".into()] } else { text.lines().map(str::to_owned).collect() }
}

/// The knobs: name, value, and what is fixed while the program runs.
fn knobs(service: &Service) -> Vec<String> {
    let line = |(knob, is_live): (Knob, bool)| {
        let declared = knob.declared();
        let value = declared.show(service.all.knob(knob)).to_string();
        let fixed = if is_live { "" } else { "  (set at the start)" };
        format!("{:<24} {value:>10}{fixed}", declared.name)
    };
    App::knobs().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::app::View;
    use super::super::columns::Column;
    use super::super::made::{row, screen, seen};
    use super::*;

    #[test]
    fn a_process_that_is_not_covered_has_a_graph_and_says_what_to_do() {
        let mut app = App::new(Column::Faults, String::new(), Look::PLAIN);
        let mut one = row(7, "python3", 50.0);
        one.history = [50.0, 100.0, 0.0].map(|faults| Point { faults, handed: 0.0 }).into();
        let process = one.process;
        app.take(seen(vec![one]));
        for tab in Tab::ALL {
            app.view = View::One(process, tab);
            for (width, height) in [(80, 24), (40, 10), (3, 3), (1, 1), (200, 80)] {
                let text = screen(&mut app, width, height);
                assert!(text.is_ascii() && text.lines().count() == usize::from(height), "{text}");
            }
        }
        app.view = View::One(process, Tab::Overview);
        let text = screen(&mut app, 80, 24);
        assert!(text.contains("7 python3: not covered") && text.contains("faultless run -- PROGRAM"), "{text}");
        assert!(text.contains("page faults a second, 100 at most"), "{text}");
        let last = text.lines().nth(22).unwrap();
        assert!(last.trim_end().ends_with("##") && last.ends_with('#') && !last.contains("###"), "{text}");
        app.view = View::One(process, Tab::Knobs);
        assert!(screen(&mut app, 80, 24).contains("not started under faultless"));
    }
}
