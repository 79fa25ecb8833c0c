//! The report for people, as wide as the terminal.

use std::fmt::{self, Display, Formatter, Write};

use super::Report;
use super::finding::{Finding, Level, Verdict};
use faultless_measure::costs::{Cost, Group, Measured};
use faultless_measure::figures::size;

/// Room for the level before a finding.
const LEVEL: usize = 9;
/// The narrowest that is tried.
const NARROW: usize = 36;
/// Beyond this, lines are hard to read.
const WIDE: usize = 100;

/// A report as text of a given width.
pub struct Text<'a> {
    /// What to say.
    pub report: &'a Report,
    /// Columns.
    pub columns: usize,
    /// All that is known of each finding.
    pub verbose: bool,
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let columns = self.columns.clamp(NARROW, WIDE);
        write_verdict(f, self.report, columns)?;
        let findings = self.report.topics.iter().flat_map(|(_, findings)| findings);
        let marked: Vec<_> = findings.filter(|finding| finding.level >= Level::Limited).collect();
        if !marked.is_empty() {
            writeln!(f, "\nWhat to change")?;
            marked.into_iter().try_for_each(|finding| write_finding(f, finding, Detail::Full, columns))?;
        }
        for (title, findings) in &self.report.topics {
            writeln!(f, "\n{title}")?;
            for finding in findings {
                let detail = match finding.level {
                    _ if self.verbose => Detail::Full,
                    Level::Note => Detail::Meaning,
                    Level::Good | Level::Limited | Level::Cannot => Detail::Found,
                };
                write_finding(f, finding, detail, columns)?;
            }
        }
        match &self.report.costs {
            Some(measured) => write_measured(f, measured, columns),
            None => Ok(()),
        }
    }
}

/// How much is said of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// What was found.
    Found,
    /// And what that means.
    Meaning,
    /// And the command that would improve it.
    Full,
}

/// Words in lines of at most `columns`, each after `indent`; a longer word has a line to itself.
fn wrap(text: &str, indent: usize, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            out += &" ".repeat(indent);
            used = indent;
        } else {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
    }
    out
}

fn write_finding(f: &mut impl Write, finding: &Finding, detail: Detail, columns: usize) -> fmt::Result {
    // A narrow terminal has no room for a column of levels.
    let indent = if columns < 60 { 2 } else { LEVEL + 2 };
    let found = wrap(&finding.found, indent, columns);
    let level = finding.level.name();
    if indent > level.len() + 2 {
        writeln!(f, "  {level:LEVEL$}{}", &found[indent..])?;
    } else {
        writeln!(f, "{level}:\n{found}")?;
    }
    if detail >= Detail::Meaning {
        writeln!(f, "{}", wrap(&finding.means, indent, columns))?;
    }
    match &finding.change {
        // In one piece, however long: to be copied.
        Some(command) if detail == Detail::Full => writeln!(f, "{}$ {command}", " ".repeat(indent)),
        _ => Ok(()),
    }
}

fn write_measured(f: &mut impl Write, measured: &Measured, columns: usize) -> fmt::Result {
    let place = measured.cpu.map_or("wherever it was put".into(), |cpu| format!("on CPU {cpu}"));
    writeln!(f, "\nCosts, measured {place}")?;
    writeln!(f, "{}", wrap(&warmth(measured), 2, columns))?;
    let group = |group| measured.costs.iter().filter(move |cost| cost.group == group).collect::<Vec<_>>();
    write_bars(f, &group(Group::Pages), Scale::Logarithmic, columns)?;
    writeln!(f, "{}", wrap("(bars: each further mark is a factor of the same size)", 2, columns))?;
    writeln!(f, "\nZeroing in the caches, per 4 KiB")?;
    write_bars(f, &group(Group::ZeroInside), Scale::Linear, columns)?;
    writeln!(f, "\nZeroing beyond the caches, per 4 KiB")?;
    write_bars(f, &group(Group::ZeroBeyond), Scale::Linear, columns)
}

/// Whether memory was warm, with the figures that say so.
fn warmth(measured: &Measured) -> String {
    let (Some(first), Some(second)) = (measured.first_touch_ns, measured.second_touch_ns) else {
        return "Whether memory was warm could not be measured.".into();
    };
    let figures = format!(
        "first touch of {} {} per 4 KiB, second {}",
        size(measured.touched as u64),
        time(first),
        time(second)
    );
    match measured.warm {
        Some(true) => format!("Memory was warm: {figures}."),
        _ => format!(
            "Memory was not warm: {figures}. The host had to bring it first; the costs below are of warm memory."
        ),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Logarithmic,
}

fn write_bars(f: &mut impl Write, costs: &[&Cost], scale: Scale, columns: usize) -> fmt::Result {
    let name = |cost: &Cost| match scale {
        Scale::Linear => cost.name.to_owned(),
        Scale::Logarithmic => format!("{} ({})", cost.name, cost.per),
    };
    let widest = costs.iter().map(|cost| name(cost).chars().count()).max().unwrap_or(0);
    let values: Vec<f64> = costs.iter().filter_map(|cost| cost.ns).filter(|ns| *ns > 0.0).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    // Indentation, name, figure, bar; the name has a line to itself where there is no room.
    const FIGURE: usize = 9;
    let in_line = 2 + widest + FIGURE + 12 <= columns;
    let before = if in_line { 2 + widest + FIGURE } else { 4 + FIGURE };
    let room = columns.saturating_sub(before + 1).min(50);
    for cost in costs {
        let bar = cost.ns.map_or(0, |ns| bar(ns, least, most, scale, room));
        let label = name(cost);
        let figure = match (cost.ns, &cost.missing) {
            (Some(ns), _) => format!("{:>FIGURE$} {}", time(ns), "█".repeat(bar)),
            (None, why) => format!("{:>FIGURE$} {}", "–", why.as_deref().unwrap_or_default()),
        };
        let figure = figure.trim_end();
        match (cost.ns.is_some(), in_line) {
            (true, true) => writeln!(f, "  {label:widest$}{figure}")?,
            (true, false) => writeln!(f, "{}\n    {figure}", wrap(&label, 2, columns))?,
            (false, _) => writeln!(f, "{}", wrap(&format!("{label}: {}", figure.trim()), 2, columns))?,
        }
    }
    Ok(())
}

/// How many marks a value gets of `room`.
fn bar(ns: f64, least: f64, most: f64, scale: Scale, room: usize) -> usize {
    if ns <= 0.0 || most <= 0.0 {
        return 0;
    }
    let share = match scale {
        Scale::Linear => ns / most,
        Scale::Logarithmic if most > least => (ns / least).ln() / (most / least).ln(),
        Scale::Logarithmic => 1.0,
    };
    ((share * room as f64).round() as usize).clamp(1, room.max(1))
}

/// Nanoseconds in the unit that suits them.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 999_500.0 => (ns / 1e6, "ms"),
        ns if ns >= 999.5 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

fn write_verdict(f: &mut impl Write, report: &Report, columns: usize) -> fmt::Result {
    let whom = if report.program.is_empty() { "Programs".into() } else { report.program.join(" ") };
    let text = match report.verdict {
        Verdict::Good => format!("Good: {whom} can be covered in full."),
        Verdict::Limited => format!("Limited: {whom} can be covered, but for what is said next."),
        Verdict::Cannot => format!("Cannot: {whom} cannot be covered: see what is marked `cannot`."),
    };
    writeln!(f, "{}", wrap(&text, 0, columns))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn report() -> Report {
        let long = "word ".repeat(40) + "averyveryverylongwordthatdoesnotfitanywhereatall";
        let finding =
            Finding::new("kernel", Level::Limited, long.clone(), long).change("sudo sysctl -w a=1".repeat(4));
        let cost = |ns, group, missing: Option<&str>| Cost {
            id: "touch",
            name: "fault by userfaultfd, thread",
            per: "4 KiB",
            group,
            ns,
            fastest_ns: ns,
            slowest_ns: ns,
            missing: missing.map(str::to_owned),
        };
        let costs = vec![
            cost(Some(20.0), Group::Pages, None),
            cost(Some(90_000.0), Group::Pages, None),
            cost(None, Group::Pages, Some("userfaultfd: not permitted, by the kernel or by a filter")),
            cost(Some(0.0), Group::ZeroInside, None),
        ];
        let costs = Measured {
            cpu: Some(1),
            rounds: 3,
            warm: Some(false),
            first_touch_ns: Some(5000.0),
            second_touch_ns: Some(500.0),
            touched: 256 << 20,
            costs,
        };
        Report::new(vec![("Kernel", vec![finding])], Some(costs), Vec::new())
    }

    #[test]
    fn every_line_fits_but_commands_and_long_words() {
        let report = report();
        for columns in [0, 10, 30, 40, 59, 60, 80, 100, 1000, usize::MAX] {
            let text = Text { report: &report, columns, verbose: columns % 2 == 0 }.to_string();
            let most = columns.clamp(NARROW, WIDE);
            for line in text.lines().filter(|line| !line.contains("$ ") && !line.contains("averyvery")) {
                assert!(line.chars().count() <= most, "{columns}: {line:?}");
            }
            assert!(text.contains(&"sudo sysctl -w a=1".repeat(4)), "a command stays in one piece");
            assert!(
                text.contains("Memory was not\nwarm") || text.replace("\n ", "").contains("not warm"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_verdict_comes_first_and_what_is_good_has_a_line() {
        let good = Finding::new("a", Level::Good, "this is there", "What good it does.");
        let note = Finding::new("b", Level::Note, "that is so", "What follows.").change("a command");
        let bad = Finding::new("c", Level::Limited, "it is missing", "What it costs.").change("another command");
        let report = Report::new(vec![("Kernel", vec![good, note, bad])], None, Vec::new());
        let text = |verbose| Text { report: &report, columns: 80, verbose }.to_string();
        let (short, long) = (text(false), text(true));
        assert!(
            short.starts_with("Limited: Programs can be covered, but for what is said next.\n\nWhat to change\n")
        );
        let listed = short.split_once("\nKernel\n").unwrap();
        assert!(listed.0.contains("it is missing") && listed.0.contains("$ another command"));
        assert_eq!(
            listed.1,
            "  good     this is there\n  note     that is so\n           What follows.\n  limited  it is missing\n"
        );
        assert!(long.contains("What good it does.") && long.contains("$ a command"));
        let none = Report::new(vec![("Kernel", Vec::new())], None, Vec::new());
        assert!(!Text { report: &none, columns: 80, verbose: false }.to_string().contains("What to change"));
    }

    #[test]
    fn bars_grow_with_the_cost() {
        let bars = |scale| [10.0, 100.0, 1000.0].map(|ns| bar(ns, 10.0, 1000.0, scale, 40));
        assert_eq!(bars(Scale::Logarithmic), [1, 20, 40]);
        assert_eq!(bars(Scale::Linear), [1, 4, 40]);
        assert_eq!(bar(5.0, 5.0, 5.0, Scale::Logarithmic, 10), 10);
        assert_eq!(bar(0.0, f64::INFINITY, 0.0, Scale::Linear, 10), 0);
        assert_eq!(bar(1.0, 1.0, 2.0, Scale::Linear, 0), 1);
    }

    #[test]
    fn times_have_three_digits() {
        let cases =
            [(0.5, "0.50 ns"), (13.26, "13.3 ns"), (999.7, "1.00 µs"), (71_234.0, "71.2 µs"), (2.5e6, "2.50 ms")];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }
}
