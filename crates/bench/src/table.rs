//! The tables, as Markdown.

use comfy_table::{Table, presets};

pub use crate::format::{bytes, interval, seconds};

use super::contender::Contender;
use super::measure::Sample;
use super::plan::{Against, Line, Metric, Section};
use super::rule::Judged;
use super::verdict::{Board, Judgement, Peaks};
use faultless_measure::paired::Spread;

/// What stands in a cell that has nothing to say.
pub const NOTHING: &str = "–";

fn figure(value: f64, metric: Metric) -> String {
    if metric.is_bytes() { bytes(value) } else { seconds(value) }
}

/// Median and extremes, the unit said once.
pub fn spread(spread: &Spread, metric: Metric) -> String {
    let median = figure(spread.median, metric);
    if spread.min == spread.max {
        return median;
    }
    let unit = median.rsplit(' ').next().unwrap_or_default();
    let end = |value| {
        let text = figure(value, metric);
        text.strip_suffix(unit).map(|number| number.trim_end().to_owned()).unwrap_or(text)
    };
    format!("{median} ({}..{})", end(spread.min), end(spread.max))
}

/// Wall, user and system time of runs, a cell each.
pub fn times(samples: &[Sample]) -> [String; 3] {
    let figures: [fn(&Sample) -> f64; 3] =
        [|sample| sample.wall, |sample| sample.used.user, |sample| sample.used.system];
    figures.map(|figure| {
        let values: Vec<f64> = samples.iter().map(figure).collect();
        Spread::of(&values).map_or(NOTHING.into(), |values| spread(&values, Metric::Wall))
    })
}

/// One table; `None` when no row belongs to it.
pub fn section(board: &Board, section: Section) -> Option<String> {
    let mut table = new_table(&[
        "work",
        "plain",
        "huge pages always",
        "faultless",
        "best other",
        "to plain",
        "to huge pages always",
        "to best other",
        "rounds",
        "target (reached)",
    ]);
    let rows = board.rows.iter().enumerate().filter(|(_, row)| row.section == section);
    for (index, row) in rows {
        let mut title = row.title.clone();
        if let Some(note) = &board.results[index].note {
            title += &format!(" ({note})");
        }
        for line in &row.lines {
            table.add_row(cells(board, index, line, &title));
        }
    }
    (!table.is_empty()).then(|| format!("### {}\n\n{table}\n", section.title()))
}

/// What a line is about, in a row of this title.
pub fn title(title: &str, metric: Metric) -> String {
    match metric {
        Metric::System => format!("{title}: system time"),
        _ => title.to_owned(),
    }
}

/// A contender's figures, or why it has none.
pub fn cell(board: &Board, index: usize, contender: Contender, metric: Metric) -> String {
    match (board.spread(index, contender, metric), board.results[index].failures.get(&contender)) {
        (_, Some(failure)) => format!("**failed**: {failure}"),
        (Some(values), _) => spread(&values, metric),
        (None, None) => NOTHING.into(),
    }
}

fn cells(board: &Board, index: usize, line: &Line, title: &str) -> Vec<String> {
    let (row, results) = (&board.rows[index], &board.results[index]);
    let title = self::title(title, line.metric);
    if let Some(reason) = &results.missing {
        return vec![title, reason.clone()];
    }
    let metric = line.metric;
    let cell = |contender: Contender| cell(board, index, contender, metric);
    let others: Vec<Contender> = Contender::RETAINING
        .into_iter()
        .chain([Contender::Empty])
        .filter(|c| row.field.contenders().contains(c))
        .collect();
    let best = board.best(index, &others, metric);
    let mut best_text = best.map_or(NOTHING.into(), |best| format!("{}: {}", best.name(), cell(best)));
    for failed in others.iter().filter(|other| results.failures.contains_key(other)) {
        best_text += &format!("; {}: {}", failed.name(), cell(*failed));
    }
    let compare = |against: Against| {
        let ratio = board.ratio(index, against, metric).ok()?;
        Some(interval(&if row.section.is_speed() { ratio.inverse() } else { ratio }))
    };
    let to = |against| compare(against).unwrap_or(NOTHING.into());
    let targets: Vec<String> =
        line.targets.iter().map(|target| judgement(&board.judge(index, target, metric))).collect();
    vec![
        title,
        cell(Contender::Plain),
        cell(Contender::Huge),
        cell(Contender::Faultless),
        best_text,
        to(Against::PLAIN),
        to(Against::HUGE),
        best.map_or(NOTHING.into(), |best| to(Against::One(best))),
        results.runs.values().map(Vec::len).max().unwrap_or(0).to_string(),
        if targets.is_empty() { NOTHING.into() } else { targets.join("; ") },
    ]
}

fn judgement(judgement: &Judgement) -> String {
    let reached = judgement.reached.as_ref().map_or(String::new(), |reached| format!("{reached}, "));
    format!("{}: {reached}{}", judgement.target, judgement.judged)
}

/// Page faults, and the peaks of each row that both ran.
pub fn memory(board: &Board) -> Option<String> {
    let mut table = new_table(&[
        "work",
        "faults plain",
        "faults faultless",
        "peak plain",
        "peak faultless",
        "plain's peak + budget",
        "",
    ]);
    for (index, row) in board.rows.iter().enumerate() {
        let results = &board.results[index];
        let of = |contender| results.runs.get(&contender).map_or(&[][..], Vec::as_slice);
        let (plain, own) = (of(Contender::Plain), of(Contender::Faultless));
        // A crash is no reason to say nothing.
        if plain.is_empty() || own.is_empty() && !results.failures.contains_key(&Contender::Faultless) {
            continue;
        }
        let faults = |runs: &[super::schedule::Run]| {
            let all: Vec<f64> = runs.iter().map(|run| run.sample.used.faults as f64).collect();
            Spread::of(&all).map_or(NOTHING.into(), |spread| format!("{:.0}", spread.median))
        };
        let peaks = board.peaks(index);
        let cell = |part: fn(&Peaks) -> u64| peaks.as_ref().ok().map_or(NOTHING.into(), |p| bytes(part(p) as f64));
        let judged = peaks.as_ref().map_or_else(|verdict| Judged::without_figure(verdict.clone()), Peaks::judged);
        table.add_row(vec![
            row.title.clone(),
            faults(plain),
            faults(own),
            cell(|p| p.plain),
            cell(|p| p.own),
            cell(|p| p.limit),
            judged.to_string(),
        ]);
    }
    let title = "Page faults, and peaks";
    let note = "A peak is the most anonymous memory that all processes of a run have together, the largest of all \
                rounds. 1 MiB of tables for each process is allowed beside the budget.";
    (!table.is_empty()).then(|| format!("### {title}\n\n{note}\n\n{table}\n"))
}

/// A table without lines yet.
pub fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::peak::Peak;
    use crate::plan::{Bound, Row};
    use crate::schedule::{Results, Run};

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(seconds(0.050_64), "50.6 ms");
        assert_eq!(seconds(1.0), "1.00 s");
        assert_eq!(seconds(-3.2e-9), "-3.20 ns");
        assert_eq!(bytes(1.5 * 1024f64.powi(3)), "1.50 GiB");
        assert_eq!(bytes(4096.0), "4.00 KiB");
        assert_eq!(crate::format::three_digits(22.04), "22.0");
    }

    #[test]
    fn the_unit_is_said_once_where_it_is_the_same() {
        let of = |median, min, max| spread(&Spread { median, min, max }, Metric::Cost);
        assert_eq!(of(0.05, 0.04, 0.06), "50.0 ms (40.0..60.0)");
        assert_eq!(of(0.05, 0.04, 2.0), "50.0 ms (40.0..2.00 s)");
        assert_eq!(of(0.05, 0.05, 0.05), "50.0 ms");
    }

    #[test]
    fn a_missing_program_and_a_crash_are_shown() {
        let rows = [
            Row::new("a", Section::Programs, "first").line(Metric::Wall, &[]),
            Row::new("b", Section::Programs, "second").line(Metric::Wall, &[(Bound::Share(0.6), Against::PLAIN)]),
        ];
        let missing = Results { missing: Some("not installed: pip install polars".into()), ..Results::default() };
        let mut crashed = Results::default();
        crashed.failures.insert(Contender::Faultless, "killed by signal 11".into());
        let board = Board { rows: &rows, results: &[missing, crashed], budget: 0 };
        let text = section(&board, Section::Programs).unwrap();
        assert!(text.contains("| first  | not installed: pip install polars |"), "{text}");
        assert!(text.contains("**failed**: killed by signal 11"), "{text}");
        assert!(text.contains("≤ 0.6 × plain: **missed**"), "{text}");
        assert!(section(&board, Section::Loops).is_none());
    }

    /// A run in which `processes` processes had `bytes` bytes at its peak.
    fn run_of(bytes: u64, processes: u64) -> Run {
        let sample = Sample { peak: Some(Peak { bytes, processes }), ..Sample::default() };
        Run { round: 0, cost: None, sample }
    }

    #[test]
    fn a_peak_above_plains_and_the_budget_and_tables_is_missed() {
        const MIB: u64 = 1 << 20;
        let verdict = |plain: &[u64], own: &[(u64, u64)]| {
            let mut results = Results::default();
            results.runs.insert(Contender::Plain, plain.iter().map(|bytes| run_of(*bytes, 1)).collect());
            results.runs.insert(Contender::Faultless, own.iter().map(|(b, n)| run_of(*b, *n)).collect());
            let rows = [Row::new("a", Section::Loops, "work")];
            let text = memory(&Board { rows: &rows, results: &[results], budget: 64 * MIB }).unwrap();
            match (text.contains("| met "), text.contains("**missed**")) {
                (met, missed) if met != missed => met,
                _ => panic!("{text}"),
            }
        };
        assert!(verdict(&[100 * MIB], &[(165 * MIB, 1)]));
        assert!(!verdict(&[100 * MIB], &[(165 * MIB + 1, 1)]));
        // The largest of all rounds counts, on both sides.
        assert!(!verdict(&[100 * MIB, 90 * MIB], &[(165 * MIB + 1, 1), (100 * MIB, 1)]));
        assert!(verdict(&[90 * MIB, 100 * MIB], &[(100 * MIB, 1), (165 * MIB, 1)]));
        // Each process has tables.
        assert!(verdict(&[100 * MIB], &[(167 * MIB, 3)]));
    }

    #[test]
    fn a_peak_that_is_not_known_has_no_verdict() {
        let mut results = Results::default();
        let run = Run { sample: Sample::default(), ..run_of(0, 0) };
        results.runs.insert(Contender::Plain, vec![run.clone()]);
        results.runs.insert(Contender::Faultless, vec![run]);
        let rows = [Row::new("a", Section::Loops, "work")];
        let text = memory(&Board { rows: &rows, results: &[results], budget: 0 }).unwrap();
        assert!(text.contains("unresolved: no figure") && !text.contains("missed"), "{text}");
    }

    #[test]
    fn a_program_that_crashes_misses_the_promise_on_memory() {
        let mut results = Results::default();
        results.runs.insert(Contender::Plain, vec![run_of(1 << 20, 1)]);
        results.failures.insert(Contender::Faultless, "killed by signal 11".into());
        let rows = [Row::new("a", Section::Loops, "work")];
        let text = memory(&Board { rows: &rows, results: &[results], budget: 0 }).expect("a row");
        assert!(text.contains("**missed**"), "{text}");
    }
}
