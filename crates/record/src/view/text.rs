//! The report as text.

use std::fmt::Write;

use faultless_measure::figures::{seconds, size, wrap_at};

use crate::summary::{Origin, Part, Summary, TimeSource, part_of_time};

/// How it is written.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns of a line.
    pub columns: usize,
    /// Rows of a table.
    pub rows: usize,
}

/// A number with a space between thousands.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Characters that a terminal would act on become dots: also those that turn the direction of what follows.
pub fn plain(text: &str) -> String {
    let is_direction =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || is_direction(c) { '.' } else { c }).collect()
}

/// `text` without its middle, if it is longer.
pub fn fit(text: &str, columns: usize) -> String {
    let text = plain(text);
    let length = text.chars().count();
    if length <= columns || columns < 8 {
        return text;
    }
    let (front, back) = (columns / 3, columns - columns / 3 - 1);
    let all: Vec<_> = text.chars().collect();
    all[..front].iter().chain(['…'].iter()).chain(&all[length - back..]).collect()
}

/// A short time.
fn short(ns: f64) -> String {
    if ns < 10_000.0 { format!("{ns:.0} ns") } else { seconds(ns / 1e9) }
}

/// The report.
pub fn report(summary: &Summary, style: Style) -> String {
    let mut out = String::new();
    head(&mut out, summary, style);
    if !summary.kinds.is_empty() {
        let rows = summary.kinds.iter().map(|by| {
            let each = by.per_fault_ns.map_or(String::new(), |ns| format!(", {} each", short(ns)));
            (&by.part, format!("{}{each}", by.kind.text()))
        });
        table(&mut out, "By kind", rows, 0, style);
        let rows = summary.mappings.iter().map(|by| {
            let mut about = Vec::new();
            if by.class == "anonymous" || by.class == "heap" {
                if by.areas > 1 {
                    about.push(format!("{} areas", number(by.areas)));
                }
                about.extend(by.allocator.as_ref().map(|allocator| format!("{allocator}?")));
            }
            let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
            (&by.part, format!("{}{about}", by.name))
        });
        table(&mut out, "By mapping", rows, summary.left_out.mappings, style);
        let rows = summary.functions.iter().map(|by| {
            let file = by.file.rsplit('/').next().unwrap_or_default();
            let is_in_name = by.name.starts_with('[');
            (&by.part, if is_in_name { by.name.clone() } else { format!("{} ({file})", by.name) })
        });
        table(&mut out, "By function", rows, summary.left_out.functions, style);
        let rows = summary.stacks.iter().map(|by| (&by.part, by.frames.join(" > ")));
        table(&mut out, "By call stack", rows, 0, style);
        if summary.processes.len() > 1 {
            let rows = summary.processes.iter().map(|by| (&by.part, format!("{} ({})", by.name, by.pid)));
            table(&mut out, "By process", rows, summary.left_out.processes, style);
        }
        if summary.threads.len() > 1 {
            let rows = summary.threads.iter().map(|by| (&by.part, format!("{} ({})", by.name, by.tid)));
            table(&mut out, "By thread", rows, summary.left_out.threads, style);
        }
        timeline(&mut out, summary);
        avoidable(&mut out, summary, style);
    }
    served(&mut out, summary, style);
    for note in &summary.notes {
        let _ = writeln!(out, "{}", wrap_at(&format!("Note: {}.", plain(note)), "", style.columns));
    }
    let _ = writeln!(out, "{}", wrap_at(&plain(&summary.advice.text), "", style.columns));
    out
}

fn head(out: &mut String, summary: &Summary, style: Style) {
    let recording = &summary.recording;
    let what = match recording.program.pid {
        Some(pid) => format!("process {pid} ({})", recording.program.command.join(" ")),
        None => recording.program.command.join(" "),
    };
    let how = if recording.program.covered { ", under faultless" } else { "" };
    let _ = writeln!(out, "{}{how}", fit(&what, style.columns.saturating_sub(how.len())));
    let mut line = format!("{} of wall time", seconds(recording.wall_s));
    if let Some(cpu) = recording.cpu_s {
        let _ = write!(line, ", {} of processor time", seconds(cpu));
    }
    if let Some(peak) = recording.peak_bytes.filter(|peak| *peak > 0) {
        let _ = write!(line, ", {} at its peak", size(peak));
    }
    if !recording.status.is_empty() {
        let _ = write!(line, ", ended with {}", plain(&recording.status));
    }
    let _ = writeln!(out, "{}", wrap_at(&line, "", style.columns));
    let faults = &summary.faults;
    let about = match faults.source {
        Origin::None => "not counted".into(),
        Origin::Samples => format!("about {} page faults", number(faults.total)),
        Origin::Counted | Origin::Getrusage => {
            let mut text = format!(
                "{} page faults: {} minor, {} major",
                number(faults.total),
                number(faults.minor),
                number(faults.major)
            );
            if faults.source == Origin::Counted && faults.in_calls > 0 {
                let _ = write!(text, "; {} of them within system calls", number(faults.in_calls));
            }
            if faults.source == Origin::Counted && faults.not_recorded > 0 {
                let rest = number(faults.not_recorded);
                let _ =
                    write!(text, "; {rest} of them in programs that were not recorded, or within system calls");
            }
            text
        }
    };
    let _ = writeln!(out, "{}", wrap_at(&about, "", style.columns));
    let time = &summary.time;
    if let (Some(total), Some(each)) = (time.total_s, time.per_fault_ns) {
        let mut line = format!("{} in page faults", seconds(total));
        if let Some(part) = time.of_wall {
            let _ = write!(line, ": {} of the wall time", part_of_time(part, 1));
        }
        if let Some(part) = time.of_cpu {
            let _ = write!(line, ", {} of the processor time", part_of_time(part, 1));
        }
        let how = match time.source {
            TimeSource::Timed => format!("{} of its faults were timed", number(time.timed)),
            _ if time.timed_huge > 0 => {
                format!(
                    "huge pages: {} of its faults were timed; others: a first touch here",
                    number(time.timed_huge)
                )
            }
            _ => "the cost of a first touch here".into(),
        };
        let _ = write!(line, " ({} each; {how})", short(each));
        let _ = writeln!(out, "{}", wrap_at(&line, "", style.columns));
    }
}

fn table<'a>(
    out: &mut String,
    title: &str,
    rows: impl ExactSizeIterator<Item = (&'a Part, String)>,
    left_out: u64,
    style: Style,
) {
    let _ = writeln!(out, "\n{title}:");
    // Names are made of those alone that are shown: they may be long.
    let more = rows.len().saturating_sub(style.rows) as u64 + left_out;
    let mut rest = 1.0;
    for (part, name) in rows.take(style.rows) {
        let time = part.time_s.map_or(String::new(), seconds);
        let front = format!("{:>8} {:>11} {:>8}  ", percent(part.share), number(part.faults), time);
        let width = style.columns.saturating_sub(front.chars().count()).max(20);
        let _ = writeln!(out, "{front}{}", fit(&name, width));
        rest -= part.share;
    }
    if more > 0 {
        let _ = writeln!(out, "{:>8} {} more", percent(rest.max(0.0)), number(more));
    }
}

/// What could be avoided: ranges, and how they were found.
fn avoidable(out: &mut String, summary: &Summary, style: Style) {
    if summary.avoidable.iter().all(|of| of.most == 0) {
        return;
    }
    let _ = writeln!(out, "What could be avoided (faults, at least and at most; docs/record.md):");
    for of in summary.avoidable.iter().filter(|of| of.most > 0) {
        let front = format!("{:>12} {:>12}  ", number(of.least), number(of.most));
        let about = format!("{}: {}", of.way.text(), of.how);
        let width = style.columns.saturating_sub(front.len()).max(30);
        for (i, line) in wrap_at(&about, "", width).lines().enumerate() {
            let front = if i == 0 { front.clone() } else { " ".repeat(front.len()) };
            let _ = writeln!(out, "{front}{line}");
        }
    }
    let rest = summary.kinds.iter().filter(|by| !by.kind.is_new_memory());
    let rest: Vec<_> = rest.map(|by| by.kind.text()).collect();
    if !rest.is_empty() {
        let _ = writeln!(
            out,
            "{}",
            wrap_at(&format!("None of these ways changes: {}.", rest.join("; ")), "", style.columns)
        );
    }
    out.push('\n');
}

/// What faultless did, as it counted it.
fn served(out: &mut String, summary: &Summary, style: Style) {
    let Some(served) = &summary.served else { return };
    let line = format!(
        "What faultless did in {} of {} processes, in {} requests (bytes, as it counted them; docs/record.md):",
        number(served.served_processes),
        number(served.processes),
        number(served.requests)
    );
    let _ = writeln!(out, "{}", wrap_at(&line, "", style.columns));
    for row in served.rows() {
        let _ = writeln!(out, "{:>12}  {}", size(row.bytes), row.text);
    }
    if served.avoided_most > 0 {
        let line = format!("Faults that this avoided: at most {}: {}.", number(served.avoided_most), served.how);
        let _ = writeln!(out, "{}", wrap_at(&line, "", style.columns));
    }
    out.push('\n');
}

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Faults over time as a row of bars.
fn timeline(out: &mut String, summary: &Summary) {
    let line = &summary.timeline;
    let Some(most) = line.faults.iter().copied().max().filter(|most| *most > 0) else { return };
    let parts = line.faults.chunks(line.faults.len().div_ceil(60).max(1));
    let sums: Vec<u64> = parts.map(|part| part.iter().copied().max().unwrap_or(0)).collect();
    let bar = |n: &u64| BARS[((*n as u128 * 8).div_ceil(most.into())) as usize];
    let rate = most as f64 / line.step_s;
    let _ = writeln!(out, "\nOver time (at most {} faults/s):", number(rate as u64));
    let bars: String = sums.iter().map(bar).collect();
    let _ = writeln!(out, "  0 s |{bars}| {}\n", seconds(line.step_s * line.faults.len() as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_fit_into_their_columns() {
        assert_eq!((number(0), number(999), number(1_234_567)), ("0".into(), "999".into(), "1 234 567".into()));
        assert_eq!(fit("/usr/lib/x86_64-linux-gnu/libc.so.6", 16), "/usr/…/libc.so.6");
        assert_eq!((fit("short", 16), fit("a\u{1b}[2Jb", 16)), ("short".into(), "a.[2Jb".into()));
        assert_eq!(plain("a\u{202e}b\u{2067}c\u{200f}\u{2029}é"), "a.b.c..é");
        assert_eq!((short(850.4), short(12_500.0)), ("850 ns".into(), "12 µs".into()));
    }
}
