//! Two recordings beside each other.

use std::collections::BTreeMap;
use std::fmt::Write;

use faultless_measure::figures::seconds;
use serde::Serialize;

use super::text::{Style, fit, number, plain};
use crate::summary::{Part, Summary};

/// A figure of both; none: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Both<T> {
    /// Of the first one.
    pub a: T,
    /// Of the second one.
    pub b: T,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// Faults.
    pub faults: Both<u64>,
    /// Seconds in them.
    pub time_s: Both<Option<f64>>,
}

/// The differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// 1.
    pub version: u32,
    /// What ran, and whether under faultless.
    pub command: Both<String>,
    /// Faults of all.
    pub faults: Both<u64>,
    /// Seconds in faults.
    pub time_s: Both<Option<f64>>,
    /// Seconds in all.
    pub wall_s: Both<f64>,
    /// Seconds of processors.
    pub cpu_s: Both<Option<f64>>,
    /// By kind, mapping and function: those that differ most first.
    pub kinds: Vec<Row>,
    /// By mapping.
    pub mappings: Vec<Row>,
    /// By function.
    pub functions: Vec<Row>,
}

/// Rows with the same name become one.
fn rows(a: Vec<(String, Part)>, b: Vec<(String, Part)>) -> Vec<Row> {
    let mut all: BTreeMap<String, (Part, Part)> = BTreeMap::new();
    let add = |to: &mut Part, part: Part| {
        to.faults = to.faults.saturating_add(part.faults);
        to.time_s = match (to.time_s, part.time_s) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
    };
    a.into_iter().for_each(|(name, part)| add(&mut all.entry(name).or_default().0, part));
    b.into_iter().for_each(|(name, part)| add(&mut all.entry(name).or_default().1, part));
    let row = |(name, (a, b)): (String, (Part, Part))| Row {
        name,
        faults: Both { a: a.faults, b: b.faults },
        time_s: Both { a: a.time_s, b: b.time_s },
    };
    let mut rows: Vec<_> = all.into_iter().map(row).collect();
    // The order of names stays where they differ alike.
    rows.sort_by_key(|row| std::cmp::Reverse(row.faults.a.abs_diff(row.faults.b)));
    rows
}

fn command(summary: &Summary) -> String {
    let how = if summary.recording.program.covered { " (under faultless)" } else { "" };
    format!("{}{how}", summary.recording.program.command.join(" "))
}

/// Compares `a` with `b`.
pub fn diff(a: &Summary, b: &Summary) -> Diff {
    let kinds = |s: &Summary| s.kinds.iter().map(|by| (by.kind.text().to_owned(), by.part)).collect::<Vec<_>>();
    let mappings = |s: &Summary| s.mappings.iter().map(|by| (by.name.clone(), by.part)).collect::<Vec<_>>();
    let functions = |s: &Summary| s.functions.iter().map(|by| (by.name.clone(), by.part)).collect::<Vec<_>>();
    Diff {
        version: 1,
        command: Both { a: command(a), b: command(b) },
        faults: Both { a: a.faults.total, b: b.faults.total },
        time_s: Both { a: a.time.total_s, b: b.time.total_s },
        wall_s: Both { a: a.recording.wall_s, b: b.recording.wall_s },
        cpu_s: Both { a: a.recording.cpu_s, b: b.recording.cpu_s },
        kinds: rows(kinds(a), kinds(b)),
        mappings: rows(mappings(a), mappings(b)),
        functions: rows(functions(a), functions(b)),
    }
}

impl Diff {
    /// As text.
    pub fn text(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "A: {}", fit(&self.command.a, style.columns.saturating_sub(3)));
        let _ = writeln!(out, "B: {}", fit(&self.command.b, style.columns.saturating_sub(3)));
        let _ = writeln!(out, "\n{:24} {:>12} {:>12} {:>8}", "", "A", "B", "B/A");
        let mut line = |name: &str, a: String, b: String, ratio: Option<f64>| {
            let ratio =
                ratio.filter(|ratio| ratio.is_finite()).map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(out, "{name:24} {a:>12} {b:>12} {ratio:>8}");
        };
        let faults = self.faults;
        line("page faults", number(faults.a), number(faults.b), Some(faults.b as f64 / faults.a as f64));
        let times = [("time in faults", self.time_s), ("processor time", self.cpu_s)];
        let wall = Both { a: Some(self.wall_s.a), b: Some(self.wall_s.b) };
        for (name, time) in times.into_iter().chain([("wall time", wall)]) {
            let shown = |time: Option<f64>| time.map_or("?".into(), seconds);
            line(name, shown(time.a), shown(time.b), time.a.zip(time.b).map(|(a, b)| b / a));
        }
        for (title, rows) in [("kind", &self.kinds), ("mapping", &self.mappings), ("function", &self.functions)] {
            let _ = writeln!(out, "\nFaults by {title}:");
            for row in rows.iter().take(style.rows) {
                let (a, b) = (number(row.faults.a), number(row.faults.b));
                let name = fit(&plain(&row.name), style.columns.saturating_sub(29).max(20));
                let _ = writeln!(out, "  {a:>12} {b:>12}  {name}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{ByKind, Kind};

    fn summary(kinds: &[(Kind, u64)]) -> Summary {
        let by = |(kind, faults): &(Kind, u64)| ByKind {
            kind: *kind,
            part: Part { faults: *faults, time_s: Some(*faults as f64), ..Part::default() },
            per_fault_ns: None,
        };
        let mut summary = Summary { kinds: kinds.iter().map(by).collect(), ..Summary::default() };
        summary.faults.total = kinds.iter().map(|(_, faults)| faults).sum();
        summary
    }

    #[test]
    fn what_differs_most_comes_first() {
        let a = summary(&[(Kind::FirstTouch, 1000), (Kind::File, 10)]);
        let b = summary(&[(Kind::Huge, 20), (Kind::File, 10)]);
        let diff = diff(&a, &b);
        let rows: Vec<_> = diff.kinds.iter().map(|row| (row.name.as_str(), row.faults.a, row.faults.b)).collect();
        let [first, huge, file] = [Kind::FirstTouch, Kind::Huge, Kind::File].map(Kind::text);
        assert_eq!(rows, [(first, 1000, 0), (huge, 0, 20), (file, 10, 10)]);
        assert_eq!(diff.kinds[0].time_s, Both { a: Some(1000.0), b: None });
        let text = diff.text(Style { columns: 80, rows: 2 });
        assert!(text.contains("page faults                     1 010           30     0.03"), "{text}");
        assert!(!text.contains(file), "{text}");
    }
}
